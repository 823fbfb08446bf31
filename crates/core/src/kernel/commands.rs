//! The commands that a process sends to its drivers.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::Result;
use crate::id::HeadRef;
use crate::record::body::Signal;
use crate::state::Patch;

/// A command to a driver from its own process.
pub(crate) enum DriverCommand {
    /// A signal for the run. The driver replies when the signal is durable.
    Signal { signal: Box<Signal>, reply: oneshot::Sender<Result<()>> },
    /// An edit of the state. The driver replies when the edit is durable.
    Edit { patch: Box<Patch>, by: Option<String>, reply: oneshot::Sender<Result<()>> },
    /// A caller waits until the driver has started. If the sender is dropped, the driver never started.
    Begun(oneshot::Sender<()>),
    /// The run may have changed in the store, so the driver must check it. Contains the new head of the run, if it is known.
    Look(Option<HeadRef>),
    /// The driver must release the run at once, because the run will be claimed again.
    Release,
    /// The driver must stop, because the runtime shuts down or has lost its claims.
    Stop,
}

/// The phase of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RuntimePhase {
    #[default]
    Open,
    /// The runtime claims no further runs, and waits until its runs end or become idle.
    Draining,
    /// The runtime lets running nodes finish during this grace period, and then releases its runs.
    Ending(Duration),
}

/// The stop signal of a runtime's drivers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StopSignal {
    pub(crate) phase: RuntimePhase,
    /// The heartbeat term: the number of times that this process has lost its claims. A driver of an earlier term must stop.
    pub(crate) term: u64,
}
