//! The command `graph` draws a pipeline, or the path of a run.

use std::path::{Path, PathBuf};

use ferrata::record::Labels;
use ferrata::{Position, RunKey};
use ferrata_dot::Pipeline;
use ferrata_dot::run_dir::RunDirectory;

use crate::args::{DrawingFormat, GraphArgs};
use crate::context::CommandContext;
use crate::draw::{self, GraphSketch};
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::nodes::ReadMoment;
use crate::output::OutputFormat;
use crate::run::location;
use crate::{pipeline, store};

pub(super) async fn run(context: &CommandContext, args: &GraphArgs) -> Result<ExitReason, CommandFailure> {
    let path = Path::new(&args.what);
    // The id of a run may look like a file name. If such a file exists, the argument names the file.
    let sketch = if path.is_file() || path.extension().is_some_and(|ext| ext == "dot" || ext == "gv") {
        if args.pipeline.is_some() {
            let message = "--pipeline needs a run, and the argument is a file; leave out --pipeline";
            return Err(CommandFailure::usage(message, "ferrata graph --help"));
        }
        GraphSketch::of_pipeline(&pipeline::load(context, path)?)
    } else {
        let runtime = context.runtime()?;
        let head = context.find(&**runtime.store(), &args.what).await?;
        let (checkpoint, logged) = runtime.checkpoint_and_graph(&head.run, Position::Latest).await?;
        let mut sketch = match &args.pipeline {
            Some(path) => GraphSketch::of_pipeline(&pipeline::load(context, path)?),
            None => find_pipeline(
                &context.global.store,
                &checkpoint.run,
                checkpoint.workflow.as_str(),
                &checkpoint.labels,
            )
            .map_or_else(
                || GraphSketch::new(checkpoint.workflow.as_str()),
                |pipeline| GraphSketch::of_pipeline(&pipeline),
            ),
        };
        let is_of_log = sketch.nodes.is_empty();
        // Add nodes in the order of their activation, so that the picture reads from start to end.
        sketch.color(&checkpoint, ReadMoment::of(&checkpoint, &head, context.now()));
        if is_of_log {
            sketch.add_logged(&logged);
        }
        sketch
    };
    match context.out.format {
        OutputFormat::Json => context.out.json(&sketch)?,
        OutputFormat::Jsonl => context.out.json_line(&sketch)?,
        OutputFormat::Ids => sketch.nodes.iter().try_for_each(|node| context.out.line(&node.id))?,
        OutputFormat::Table => context.out.text(&match args.format {
            DrawingFormat::Dot => draw::dot(&sketch),
            DrawingFormat::Mermaid => draw::mermaid(&sketch),
            DrawingFormat::Svg => draw::svg(&sketch),
        })?,
    }
    Ok(ExitReason::Done)
}

/// Finds the pipeline of a run, which has the nodes that the run has not reached. The function reads the copy in the run's directory, or the original
/// file.
pub(super) fn find_pipeline(store: &str, run: &RunKey, workflow: &str, labels: &Labels) -> Option<Pipeline> {
    let store = store::folder(store);
    let beside = store.as_deref().and_then(Path::parent).map(Path::to_owned);
    let directories = [beside, Some(location::default_directory(run))].into_iter().flatten();
    let started = labels.get(crate::idle_warnings::PIPELINE).map(PathBuf::from);
    let files = directories.map(RunDirectory::source_path).chain(started);
    let read = |path: PathBuf| Pipeline::parse(&crate::input::bytes(path.to_str()?).ok()?).ok();
    // The file may contain another pipeline in the meantime.
    files.filter_map(read).find(|pipeline| *pipeline.name() == *workflow)
}
