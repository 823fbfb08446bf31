//! The run that stores a queue, and changes of the queue without its actor.

use ferrata_core::graph::Graph;
use ferrata_core::runtime::{CellChanges, Runtime, StateCell};
use ferrata_core::state::Context;
use ferrata_core::{Error, ErrorKind, Result, RunId, RunKey};

use crate::settings::{QueueSettings, check_name};
use crate::state::{OpResult, QueueOp, QueueState};

/// The label that contains the name of a queue. Runs in the queue have it, and so does the run that stores the queue.
#[doc(hidden)]
pub const QUEUE: &str = "queue";
/// The label that distinguishes the run that stores the queue from the runs that go through it.
pub(crate) const ROLE: &str = "queue.role";
pub(crate) const LEDGER: &str = "ledger";
/// The label with the start of a queued run, which distinguishes it from other starts of its id.
pub(crate) const START_ID: &str = "queue.start";
/// Labels with further options of the start. An option with its default value has no label. So a revived run waits with the same key and priority.
pub(crate) const KEY: &str = "queue.key";
pub(crate) const PRIORITY: &str = "queue.priority";
pub(crate) const NOT_BEFORE: &str = "queue.not_before";
pub(crate) const DEADLINE: &str = "queue.deadline";

/// The workflow name of the runs that store queues.
pub(crate) const WORKFLOW: &str = "queue";

/// Author of the changes in the queue's log.
pub(crate) const BY: &str = "queue";

/// Maximum number of retries of a change after write conflicts.
const RACES: u32 = 256;

/// Returns the run that stores a queue.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the name is invalid.
pub(crate) fn run_of(name: &str) -> Result<RunKey> {
    check_name(name)?;
    Ok(RunKey::from(RunId::new(format!("queue:{name}"))?))
}

/// Reads the current state of a queue.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if the queue was not declared; otherwise any error of the store.
pub(crate) async fn read_queue(runtime: &Runtime, name: &str) -> Result<QueueState> {
    let mut cell = StateCell::new(run_of(name)?);
    let (channels, _) = cell.load(runtime).await.map_err(|error| undeclared_error(name, error))?;
    QueueState::read(channels)
}

/// Loads the current state of a queue, and returns whether it changed. With `known`, the call reads and applies only the changes since then.
///
/// # Errors
///
/// The errors of [`read_queue`].
pub(crate) async fn load_current(
    runtime: &Runtime,
    name: &str,
    cell: &mut StateCell,
    known: Option<QueueState>,
) -> Result<(QueueState, bool)> {
    let (channels, news) = cell.load(runtime).await.map_err(|error| undeclared_error(name, error))?;
    match (known, news) {
        (Some(ledger), CellChanges::Changes(changes)) if changes.is_empty() => Ok((ledger, false)),
        (Some(ledger), CellChanges::Changes(changes)) => {
            let followed = ledger.apply_changes(&changes)?;
            let ledger = followed.map_or_else(|| QueueState::read(channels), Ok)?;
            Ok((ledger.for_process(runtime), true))
        }
        _ => Ok((QueueState::read(channels)?.for_process(runtime), true)),
    }
}

/// Applies the changes that `decide` returns to a queue. Retries if another process has changed the queue since the last read.
///
/// # Errors
///
/// The errors of [`read_queue`] and `decide`, and [`ErrorKind::Unavailable`] if other processes changed the queue before each retry.
pub(crate) async fn change_queue(
    runtime: &Runtime,
    name: &str,
    by: &str,
    mut decide: impl FnMut(&QueueState) -> Result<QueueOp>,
) -> Result<OpResult> {
    let (mut cell, mut known) = (StateCell::new(run_of(name)?), None);
    for _ in 0..RACES {
        let (mut ledger, _) = load_current(runtime, name, &mut cell, known.take()).await?;
        let now = runtime.clock().now();
        let op = decide(&ledger)?;
        let said = ledger.apply(op, now);
        ledger.grant(now);
        let patch = ledger.take_patch()?;
        if patch.is_empty() {
            return Ok(said);
        }
        match cell.append(runtime, patch, by).await {
            Ok(()) => return Ok(said),
            Err(error) if error.kind() == ErrorKind::Conflict => known = Some(ledger),
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "other processes keep changing the queue; retry"))
}

/// Ensures that a queue exists with these settings or with settings of a higher version.
///
/// # Errors
///
/// [`ErrorKind::AlreadyExists`] if the store has other settings under the version; otherwise any error of the store.
pub(crate) async fn declare(runtime: &Runtime, name: &str, settings: &QueueSettings) -> Result<()> {
    let declared = |_: &QueueState| Ok(QueueOp::Declare(Box::new(settings.clone())));
    for _ in 0..RACES {
        // Boxed: the state is large, and callers await this call within their own futures.
        let stored = match Box::pin(change_queue(runtime, name, BY, declared)).await {
            Ok(OpResult::Differs(stored)) => stored,
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match start_queue(runtime, name, settings).await {
                    Ok(()) => return Ok(()),
                    // Another process created the queue at the same moment, perhaps with other settings.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        let message = format!(
            "queue `{name}` is stored in version {} with another {}; raise `.version(..)` with each change",
            stored.version,
            stored.differences(settings).join(", another ")
        );
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    Err(Error::new(ErrorKind::Unavailable, "other processes keep declaring and purging the queue; retry"))
}

async fn start_queue(runtime: &Runtime, name: &str, settings: &QueueSettings) -> Result<()> {
    let graph = Graph::<Context>::builder(WORKFLOW).node("rest", async |_cx, s| Ok(s)).entry("rest").build();
    let graph = graph.map_err(|source| {
        Error::new(ErrorKind::Invalid, "cannot create the workflow of the queue").with_source(source)
    })?;
    let state = QueueState::new(settings.clone()).initial_state()?;
    runtime
        .start(&graph, state)
        .id(run_of(name)?.run)
        .label(QUEUE, name)
        .label(ROLE, LEDGER)
        .on_hold("it is a queue, which never runs")
        .await?;
    Ok(())
}

pub(crate) fn undeclared_error(name: &str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => {
            let message = format!(
                "cannot find queue `{name}` in this store; declare it with `runtime.queue(\"{name}\")…declare()`"
            );
            Error::new(ErrorKind::NotFound, message)
        }
        ErrorKind::WrongStatus => {
            let message = format!(
                "queue `{name}` was cancelled; purge the run `queue:{name}` and declare the queue again"
            );
            Error::new(ErrorKind::WrongStatus, message).with_source(error)
        }
        _ => error,
    }
}
