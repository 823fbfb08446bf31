//! Events of active runs, for subscribers in this process.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::id::{Epoch, NodeName, RunKey, Seq, Visit};
use crate::past::Verdict;
use crate::record::{Failure, RunStatus};

/// An event of a run in this process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunEvent {
    /// The run that the event is about.
    pub run: RunKey,
    /// The kind of the event, with its data.
    pub event: Event,
}

/// A kind of event, with its data.
///
/// An event reports what this process observed. Events are not stored, and a slow subscriber misses some. Only [`Event::Durable`] reports records
/// that a crash cannot undo. To get every durable event, use [`Runtime::watch`](crate::runtime::Runtime::watch), which reads the log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// This process started the run.
    Started,
    /// This process claimed the run. `recorded` activations have already ended and will not run again.
    Resumed {
        /// The epoch of the run: the number of its claims, including this claim.
        epoch: Epoch,
        /// The number of activations whose end is recorded.
        recorded: u64,
        /// Whether the graph of this process differs from the graph at the start of the run. Nodes with unfinished activations do not differ.
        graph_changed: bool,
    },
    /// An attempt of an activation began.
    NodeStarted {
        /// The node of the activation.
        node: NodeName,
        /// The visit of the activation.
        visit: Visit,
        /// The number of the attempt, counted from 1.
        attempt: u32,
    },
    /// An activation succeeded.
    NodeCompleted {
        /// The node of the activation.
        node: NodeName,
        /// The visit of the activation.
        visit: Visit,
        /// The duration of the attempt.
        took: Duration,
        /// The verdict of the node on its own work, if the verdict was not `success`.
        verdict: Option<Verdict>,
    },
    /// An attempt failed. If a delay is set, another attempt follows after it.
    NodeFailed {
        /// The node of the activation.
        node: NodeName,
        /// The visit of the activation.
        visit: Visit,
        /// The failure.
        failure: Failure,
        /// The delay before the next attempt. `None` if no further attempt follows.
        retry_in: Option<Duration>,
    },
    /// An attempt of an `External` node ended with an unknown outcome. The run does not repeat the attempt on its own. It asks a question, which must
    /// be answered with a [`Resolution`](crate::record::Resolution).
    NodeInDoubt {
        /// The node of the activation.
        node: NodeName,
        /// The visit of the activation.
        visit: Visit,
        /// A description of how the attempt ended.
        failure: Failure,
    },
    /// All records up to and including this record are durable.
    Durable {
        /// The number of the record.
        seq: Seq,
    },
    /// The store lost records that it had acknowledged to this process. This process stops the run with
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt). If work had started that must not be repeated, the run asks for its outcome.
    RecordsLost {
        /// The number of the last record that the store acknowledged to this process.
        acknowledged: Seq,
        /// The number of the last record that the store now has.
        found: Seq,
    },
    /// The run's status changed.
    Status {
        /// The new status.
        status: RunStatus,
    },
    /// The run asked a question.
    Asked {
        /// The node of the activation.
        node: NodeName,
        /// The visit of the activation.
        visit: Visit,
        /// The name of the question. Its id is `node@visit:name`.
        name: String,
    },
    /// A node took a message that it could not deserialize. The run set the message aside, and the message stays in the log.
    MessageRefused {
        /// The node of the activation.
        node: NodeName,
        /// The visit of the activation.
        visit: Visit,
        /// The number of the message in its run, counted from 0.
        message: u64,
        /// The reason why the message could not be deserialized.
        why: String,
    },
    /// A node emitted a custom event, see [`NodeContext::emit`](crate::node::NodeContext::emit).
    Custom {
        /// The node of the activation.
        node: NodeName,
        /// The visit of the activation.
        visit: Visit,
        /// The name of the event.
        name: String,
        /// The payload of the event, as JSON text.
        payload: Arc<RawValue>,
    },
}
