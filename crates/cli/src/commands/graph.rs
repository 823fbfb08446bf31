//! `graph`: draws a pipeline, or the path of a run.

use std::path::{Path, PathBuf};

use ferrata::record::Labels;
use ferrata::{Position, RunKey};
use ferrata_dot::Pipeline;
use ferrata_dot::run_dir::RunDirectory;

use crate::args::{Drawing, GraphArgs};
use crate::context::Context;
use crate::draw::{self, Sketch};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::nodes::Moment;
use crate::output::Format;
use crate::run::place;
use crate::{pipeline, store};

pub(super) async fn run(context: &Context, args: &GraphArgs) -> Result<Exit, Failure> {
    let path = Path::new(&args.what);
    // A run's id may look like a file's name, but hardly when that file exists.
    let sketch = if path.is_file() || path.extension().is_some_and(|ext| ext == "dot" || ext == "gv") {
        if args.pipeline.is_some() {
            let message = "--pipeline needs a run, and the argument is a file; leave out --pipeline";
            return Err(Failure::usage(message, "ferrata graph --help"));
        }
        Sketch::of_pipeline(&pipeline::load(context, path)?)
    } else {
        let runtime = context.runtime()?;
        let head = context.find(&**runtime.store(), &args.what).await?;
        let (checkpoint, logged) = runtime.checkpoint_and_graph(&head.run, Position::Latest).await?;
        let mut sketch = match &args.pipeline {
            Some(path) => Sketch::of_pipeline(&pipeline::load(context, path)?),
            None => {
                kept(&context.global.store, &checkpoint.run, checkpoint.workflow.as_str(), &checkpoint.labels)
                    .map_or_else(
                        || Sketch::new(checkpoint.workflow.as_str()),
                        |pipeline| Sketch::of_pipeline(&pipeline),
                    )
            }
        };
        let is_of_log = sketch.nodes.is_empty();
        // In the order of activation, so that the picture reads from start to end.
        sketch.color(&checkpoint, Moment::of(&checkpoint, &head, context.now()));
        if is_of_log {
            sketch.add_logged(&logged);
        }
        sketch
    };
    match context.out.format {
        Format::Json => context.out.json(&sketch)?,
        Format::Jsonl => context.out.json_line(&sketch)?,
        Format::Ids => sketch.nodes.iter().try_for_each(|node| context.out.line(&node.id))?,
        Format::Table => context.out.text(&match args.format {
            Drawing::Dot => draw::dot(&sketch),
            Drawing::Mermaid => draw::mermaid(&sketch),
            Drawing::Svg => draw::svg(&sketch),
        })?,
    }
    Ok(Exit::Done)
}

/// Finds the pipeline of a run, for the nodes that it has not reached: the copy in its directory, or its original file.
pub(super) fn kept(store: &str, run: &RunKey, workflow: &str, labels: &Labels) -> Option<Pipeline> {
    let store = store::folder(store);
    let beside = store.as_deref().and_then(Path::parent).map(Path::to_owned);
    let directories = [beside, Some(place::usual(run))].into_iter().flatten();
    let started = labels.get(crate::driven::PIPELINE).map(PathBuf::from);
    let files = directories.map(RunDirectory::source_path).chain(started);
    let read = |path: PathBuf| Pipeline::parse(&crate::input::bytes(path.to_str()?).ok()?).ok();
    // The file may have another pipeline by now.
    files.filter_map(read).find(|pipeline| *pipeline.name() == *workflow)
}
