//! Restores a run that has only a `checkpoint.json`. A new run begins at the node of the checkpoint, with its context and its goal gates.

use std::path::Path;

use ferrata::state::Op;
use ferrata::{Context as State, Graph, Patch, Position, RunHandle, RunId, RunKey, Runtime};
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Manager, Registry};
use ferrata_dot::run_dir::{RestorePoint, RunDirectory};
use ferrata_dot::transform::Transforms;

use super::FILE;
use super::job::DriveJob;
use super::load::LoadedPipeline;
use super::location::{RunLocation, new_id};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

/// Values that are set at the start of a run. These values must not change when the run is continued.
const OF_START: [&str; 6] =
    ["current_node", "outcome", "preferred_label", "failure_reason", "internal.input", "graph.goal"];

/// Returns handlers that do no work. These handlers are only used to compile the pipeline.
fn registry(loaded: &LoadedPipeline) -> Registry {
    let transforms = Transforms::in_directory(loaded.folder());
    let manager = Manager::with(Registry::default(), transforms, loaded.folder());
    Registry::default().with("stack.manager_loop", manager)
}

/// Reads the checkpoint in a directory whose log does not exist.
pub(super) fn read(
    loaded: &LoadedPipeline,
    directory: Option<&Path>,
) -> Result<Option<RestorePoint>, CommandFailure> {
    let Some(directory) = directory else { return Ok(None) };
    // Report mistakes in the pipeline in the same way as for any other run.
    loaded.with(registry(loaded), None)?;
    let compiler = Compiler::new(registry(loaded));
    let restored = RunDirectory::restore(directory, &loaded.pipeline, &compiler);
    restored.map_err(|error| {
        let next = format!("ferrata run {}", crate::output::quoted(&loaded.path.display().to_string()));
        CommandFailure::from(error).or_type(next)
    })
}

/// Returns the key of the new run. The new run has the same id as the old run, unless this id is in use.
pub(super) async fn run(
    context: &CommandContext,
    place: &RunLocation,
    loaded: &LoadedPipeline,
    restored: &RestorePoint,
) -> Result<RunKey, CommandFailure> {
    let tenant = context.global.tenant.clone().unwrap_or_default();
    if let Some(id) = restored.run.as_deref().and_then(|id| RunId::new(id).ok()) {
        let key = RunKey::new(tenant.clone(), id);
        if place.store.head(&key).await?.is_none() {
            return Ok(key);
        }
    }
    Ok(RunKey::new(tenant, new_id(loaded.pipeline.name())?))
}

/// Starts the new run. The new run is a fork of a temporary run that ends at its start and is then removed.
pub(super) async fn begin(
    context: &CommandContext,
    job: &DriveJob,
    restored: &RestorePoint,
    runtime: &Runtime,
    graph: &Graph<State>,
) -> Result<RunHandle<State>, CommandFailure> {
    let pipeline = &job.loaded.pipeline;
    let Some(node) = &restored.node else {
        let message = format!("the run is already completed; ended nodes: {}", restored.ended);
        return Err(CommandFailure::new(ExitReason::Conflict, message, "ferrata run --help"));
    };
    let starts = pipeline.starts();
    let start = starts.first().map(|&at| pipeline.nodes()[at].id()).unwrap_or_default();
    let stopped = job.loaded.with(registry(&job.loaded), Some(start))?.graph;
    let seed = RunId::new(format!("{}.restored", job.run.run))?;
    let request = runtime.start(&stopped, restored.context.clone()).id(&seed).tenant(&job.run.tenant);
    let absolute = std::path::absolute(&job.loaded.path).unwrap_or_else(|_| job.loaded.path.clone());
    let file = absolute.display().to_string();
    let seeded = match (1..=256).contains(&file.len()) {
        true => request.label(FILE, file).await?,
        false => request.await?,
    };
    seeded.wait().await?;
    let ops: Vec<Op> = OF_START
        .iter()
        .filter_map(|key| Some(Op::Set((*key).to_owned(), restored.context.get_value(key)?.clone())))
        .collect();
    let fork = runtime.fork(seeded.run(), Position::Latest).start_at(node.as_str()).id(&job.run.run);
    let run = fork.edit(Patch::from_ops(&ops)?).drive(graph).await?;
    runtime.cancel(seeded.run(), "only the start of another run").await?;
    runtime.store().purge(seeded.run(), None).await?;
    let mut lost = vec!["visits are counted from 1", "the output of earlier nodes is not in its log"];
    if restored.failed > 0 {
        lost.push("failed attempts of the node are counted from 0");
    }
    let fork = restored.fork.as_ref().map(|fork| format!(", because branches of `{fork}` were running"));
    context.out.note(&format!(
        "the log is missing: a new run starts at `{node}`{} with the context and the goal gates of checkpoint.json; nodes that had ended: \
         {}; {}",
        fork.unwrap_or_default(),
        restored.ended,
        lost.join(", ")
    ));
    Ok(run)
}
