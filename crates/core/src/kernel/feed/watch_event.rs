//! The events of a watch. Recorded events come from the log. Live events are not stored.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::Failure;
use crate::id::{Epoch, ExecutorId, NodeName, RunId, RunKey, Seq, Visit, WorkflowName};
use crate::past::Verdict;
use crate::record::RunStatus;
use crate::state::Patch;

/// An event of a watched run, or of a descendant of this run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchEvent {
    /// The run that the event is about.
    pub run: RunKey,
    /// The path from the watched run to the run of the event, with one `node@visit:child` for each level, separated by `/`. The ids of
    /// [questions](crate::ask::Question) have the same form. Empty for the watched run itself.
    pub path: Arc<str>,
    /// The number of the record that contains the event. `None` for a live event.
    pub seq: Option<Seq>,
    /// The time of the record, by its writer's clock. `None` for a live event.
    pub at: Option<Timestamp>,
    /// The kind of the event, with its data.
    pub what: WatchEventKind,
}

/// A kind of watch event, with its data.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WatchEventKind {
    /// An event from the log. Each recorded event is delivered once and in the order of the log, whichever process drives the run. This also holds if
    /// the watcher reconnects with a cursor.
    Recorded(RecordedEvent),
    /// A live event in this process, which is in no record. It may report work that is not durable yet.
    Live(LiveEvent),
    /// Live events were dropped because the watcher was too slow. No recorded event is missing.
    Lagged {
        /// The number of live events that were dropped.
        missed: u64,
    },
    /// Records were pruned before the watcher received them. Read the current state with
    /// [`Runtime::channels_at`](crate::runtime::Runtime::channels_at), or use [`WatchRequest::values`](crate::runtime::WatchRequest::values). The
    /// events of the remaining records follow.
    Pruned {
        /// The number of the oldest remaining record.
        first: Seq,
    },
}

/// A recorded event.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum RecordedEvent {
    /// The run was started.
    Started {
        /// The node at which the run starts.
        entry: NodeName,
    },
    /// A process claimed the run.
    Claimed {
        /// The process that claimed the run.
        executor: ExecutorId,
        /// The epoch of the run: the number of its claims, including this claim.
        epoch: Epoch,
    },
    /// The owner of the run released it, or another process released it for the owner.
    Released {
        /// The reason.
        reason: String,
    },
    /// An activation succeeded.
    NodeCompleted {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The number of attempts.
        attempts: u32,
        /// The duration of the last attempt.
        #[serde(rename = "took_ms", serialize_with = "in_ms")]
        took: Duration,
        /// The verdict of the node on its own work, if the verdict was not `success`.
        #[serde(skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
        /// The targets of the edges that fired.
        next: Vec<NodeName>,
    },
    /// An activation failed permanently.
    NodeFailed {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The number of attempts.
        attempts: u32,
        /// The reason.
        failure: Failure,
        /// The targets of the failure edges that fired. Empty if the run failed with this activation.
        next: Vec<NodeName>,
    },
    /// An attempt failed, and another attempt follows.
    AttemptFailed {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The number of failed attempts of the activation, including this attempt.
        failed: u32,
        /// The reason.
        failure: Failure,
        /// The earliest time of the next attempt.
        #[serde(rename = "retry_at_ms")]
        retry_at: Timestamp,
    },
    /// An attempt of an `External` node ended with an unknown outcome. The run asks a question about the outcome.
    InDoubt {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// A description of how the attempt ended.
        failure: Failure,
    },
    /// An attempt that must not be repeated is about to start.
    Intent {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
    },
    /// The result of a step was recorded.
    StepDone {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The name of the step.
        name: String,
    },
    /// An attempt [reported](crate::node::NodeContext::progress) its progress.
    Progress {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The progress value, as JSON text.
        value: Arc<RawValue>,
    },
    /// A node sent chunks of a [durable stream](crate::runtime::StreamWriter::durable): see [`WatchEvent::chunks`].
    Chunks {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The attempt that sent the chunks.
        attempt: u32,
        /// The name of the stream.
        stream: Arc<str>,
        /// How often the activation has started the stream, including this start. Each attempt starts the stream again, and so does a repetition
        /// after a crash.
        round: u32,
        /// The number of chunks that were sent before this chunk since the start of the stream.
        first: u64,
        /// The chunks, each as JSON text.
        chunks: Vec<Arc<RawValue>>,
    },
    /// A node waits for a time, or waits for a message until a time.
    Waiting {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The time at which the wait ends.
        #[serde(rename = "until_ms")]
        until: Timestamp,
    },
    /// A node took a message.
    MessageTaken {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The number of the message in its run, counted from 0.
        message: u64,
    },
    /// A node took a message that it could not deserialize. The run set the message aside.
    MessageRefused {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The number of the message in its run, counted from 0.
        message: u64,
        /// The reason why the message could not be deserialized.
        why: String,
    },
    /// A node is about to start a child or a detached run. The records of the started run follow in its own log.
    ChildStarted {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The name that the node gave to the child.
        name: String,
        /// The run id of the child. The child has the tenant of the run.
        child: RunId,
        /// The workflow of the child.
        workflow: WorkflowName,
        /// Whether the started run is detached, so that no parent waits for it. A detached run does not belong to the run tree.
        detached: bool,
    },
    /// The run recorded the result of a child.
    ChildEnded {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The name that the node gave to the child.
        name: String,
        /// The final status of the child. `None` if the child was purged before its end was recorded.
        status: Option<RunStatus>,
    },
    /// A node asked a question.
    Asked {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The id of the question.
        question: String,
    },
    /// A question was answered.
    Answered {
        /// The id of the question.
        question: String,
        /// The author, if the caller named one.
        by: Option<String>,
    },
    /// A question expired without an answer.
    Expired {
        /// The id of the question.
        question: String,
    },
    /// A message was sent to the run.
    MessageSent {
        /// The sender, if the caller named one.
        by: Option<String>,
    },
    /// A caller paused the run.
    Paused {
        /// The reason.
        reason: String,
        /// The author, if the caller named one.
        by: Option<String>,
    },
    /// A caller unpaused the run.
    Unpaused {
        /// The author, if the caller named one.
        by: Option<String>,
    },
    /// A caller cancelled the run.
    CancelRequested {
        /// The reason.
        reason: String,
        /// The author, if the caller named one.
        by: Option<String>,
    },
    /// A caller retried the failed run.
    RetryRequested {
        /// The author, if the caller named one.
        by: Option<String>,
    },
    /// A caller [moved](crate::runtime::Runtime::go_to) the run to other nodes.
    Moved {
        /// The nodes at which the run continues.
        to: Vec<NodeName>,
        /// The reason.
        reason: String,
        /// The author, if the caller named one.
        by: Option<String>,
    },
    /// A caller edited the state of the run.
    Edited {
        /// The author, if the caller named one.
        by: Option<String>,
    },
    /// The change of the state by the record. It is delivered only if [`updates`](crate::runtime::WatchRequest::updates) is set.
    Update {
        /// The change of the state, as operations on channels.
        patch: Patch,
    },
    /// The whole state after the record. It is delivered only if [`values`](crate::runtime::WatchRequest::values) is set.
    Value {
        /// The state, as JSON text.
        state: Arc<RawValue>,
    },
    /// The run's status changed with this record.
    Status {
        /// The new status.
        status: RunStatus,
    },
}

/// A live event of a run that is active in this process.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum LiveEvent {
    /// An attempt of an activation began.
    AttemptStarted {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The number of the attempt, counted from 1.
        attempt: u32,
    },
    /// A node emitted a custom event, see [`NodeContext::emit`](crate::node::NodeContext::emit).
    Custom {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The name of the event.
        name: String,
        /// The payload, as JSON text.
        payload: Arc<RawValue>,
    },
    /// A node sent a chunk of a [stream](crate::node::NodeContext::stream) that is not durable.
    Chunk {
        /// The node.
        node: NodeName,
        /// The visit of the node.
        visit: Visit,
        /// The attempt that sent the chunk. Each attempt starts the stream again.
        attempt: u32,
        /// The name of the stream.
        stream: Arc<str>,
        /// The number of chunks that the attempt sent before this chunk. With it, you can detect missing chunks.
        number: u64,
        /// The value of the chunk, as JSON text.
        data: Arc<RawValue>,
    },
    /// The store lost records that it had acknowledged to this process. This process stops the run.
    RecordsLost {
        /// The number of the last record that the store acknowledged to this process.
        acknowledged: Seq,
        /// The number of the last record that the store now has.
        found: Seq,
    },
}

#[expect(clippy::cast_possible_truncation, reason = "no attempt takes 500 million years")]
fn in_ms<S: Serializer>(took: &Duration, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_u64(took.as_millis() as u64)
}

/// Defines the kinds of events, and the kind and activation of each event.
macro_rules! kinds {
    (
        recorded { $($r:ident = $rw:literal $(($rn:ident, $rv:ident))?,)* }
        live { $($l:ident = $lw:literal $(($ln:ident, $lv:ident))?,)* }
        other { $($o:ident = $ow:literal,)* }
    ) => {
        /// The kind of an event, without its data. Its text is the `event` field of a [server-sent event](crate::runtime::SseFrames).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "each is the kind of the event of the same name")]
        pub enum WatchKind { $($r,)* $($l,)* $($o,)* }

        impl WatchKind {
            /// All kinds of events.
            pub const ALL: &[Self] = &[$(Self::$r,)* $(Self::$l,)* $(Self::$o,)*];

            /// Returns the text of the kind.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$r => $rw,)*
                    $(Self::$l => $lw,)*
                    $(Self::$o => $ow,)*
                }
            }
        }

        impl WatchEventKind {
            /// Returns the kind of the event.
            pub fn kind(&self) -> WatchKind {
                match self {
                    $(Self::Recorded(RecordedEvent::$r { .. }) => WatchKind::$r,)*
                    $(Self::Live(LiveEvent::$l { .. }) => WatchKind::$l,)*
                    $(Self::$o { .. } => WatchKind::$o,)*
                }
            }

            /// Returns the activation of the event, if it has one.
            pub fn activation(&self) -> Option<(&NodeName, Visit)> {
                match self {
                    $($(Self::Recorded(RecordedEvent::$r { $rn, $rv, .. }) => Some(($rn, *$rv)),)?)*
                    $($(Self::Live(LiveEvent::$l { $ln, $lv, .. }) => Some(($ln, *$lv)),)?)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    recorded {
        Started = "started",
        Claimed = "claimed",
        Released = "released",
        NodeCompleted = "node_completed" (node, visit),
        NodeFailed = "node_failed" (node, visit),
        AttemptFailed = "attempt_failed" (node, visit),
        InDoubt = "in_doubt" (node, visit),
        Intent = "intent" (node, visit),
        StepDone = "step_done" (node, visit),
        Progress = "progress" (node, visit),
        Chunks = "chunks" (node, visit),
        Waiting = "waiting" (node, visit),
        MessageTaken = "message_taken" (node, visit),
        MessageRefused = "message_refused" (node, visit),
        ChildStarted = "child_started" (node, visit),
        ChildEnded = "child_ended" (node, visit),
        Asked = "asked" (node, visit),
        Answered = "answered",
        Expired = "expired",
        MessageSent = "message_sent",
        Paused = "paused",
        Unpaused = "unpaused",
        CancelRequested = "cancel_requested",
        RetryRequested = "retry_requested",
        Moved = "moved",
        Edited = "edited",
        Update = "update",
        Value = "value",
        Status = "status",
    }
    live {
        AttemptStarted = "attempt_started" (node, visit),
        Custom = "custom" (node, visit),
        Chunk = "chunk" (node, visit),
        RecordsLost = "records_lost",
    }
    other {
        Lagged = "lagged",
        Pruned = "pruned",
    }
}

impl fmt::Display for WatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The JSON fields of an event that is neither recorded nor live, but reports missing events.
#[derive(Serialize)]
#[serde(untagged)]
enum GapFields {
    Lagged { missed: u64 },
    Pruned { first: Seq },
}

/// A chunk (one sent value) of a [stream](crate::node::NodeContext::stream).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Chunk<'a> {
    /// The name of the stream.
    pub stream: &'a str,
    /// The node that sent the chunk.
    pub node: &'a NodeName,
    /// The visit of the node.
    pub visit: Visit,
    /// The attempt of the node. When the attempt changes, or `number` is 0, the stream starts again, and you must discard its earlier chunks.
    pub attempt: u32,
    /// The number of chunks that were sent before this chunk since the start of the stream.
    pub number: u64,
    /// The value of the chunk, as JSON text.
    pub data: &'a RawValue,
}

impl Chunk<'_> {
    /// Deserializes the chunk as the type that the node sent.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the chunk is not of type `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.data.get()).map_err(|source| {
            let message = format!("the chunk is not of type {}", std::any::type_name::<T>());
            Error::new(ErrorKind::Invalid, message).with_node(self.node).with_source(source)
        })
    }
}

impl WatchEvent {
    /// Returns the kind of the event.
    pub fn kind(&self) -> WatchKind {
        self.what.kind()
    }

    /// Returns the chunks that the event contains. A live chunk event contains one chunk, a recorded event of a durable stream may contain several,
    /// and other events contain none.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        let (of, all): (_, &[Arc<RawValue>]) = match &self.what {
            WatchEventKind::Live(LiveEvent::Chunk { node, visit, attempt, stream, number, data }) => {
                (Some((node, *visit, *attempt, stream, *number)), std::slice::from_ref(data))
            }
            WatchEventKind::Recorded(RecordedEvent::Chunks {
                node,
                visit,
                attempt,
                stream,
                first,
                chunks,
                ..
            }) => (Some((node, *visit, *attempt, stream, *first)), chunks),
            _ => (None, &[]),
        };
        of.into_iter().flat_map(move |(node, visit, attempt, stream, first)| {
            (first..).zip(all).map(move |(number, data)| Chunk { stream, node, visit, attempt, number, data })
        })
    }

    /// Returns the event as one line of JSON with the fields `kind`, `run`, `path`, `seq`, `at_ms` and `event`. The field `event` contains the fields
    /// of the event's kind.
    ///
    /// The text contains outputs of nodes, answers and errors, so protect it like the data of the run.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if a value of a node is not JSON. Earlier checks normally prevent this.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|source| {
            Error::new(ErrorKind::Invalid, "cannot encode the event as JSON").with_source(source)
        })
    }
}

impl Serialize for WatchEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.kind().as_str())?;
        map.serialize_entry("run", &self.run.to_string())?;
        if !self.path.is_empty() {
            map.serialize_entry("path", &*self.path)?;
        }
        if let Some(seq) = self.seq {
            map.serialize_entry("seq", &seq)?;
        }
        if let Some(at) = self.at {
            map.serialize_entry("at_ms", &at)?;
        }
        match &self.what {
            WatchEventKind::Recorded(event) => map.serialize_entry("event", event)?,
            WatchEventKind::Live(event) => map.serialize_entry("event", event)?,
            WatchEventKind::Lagged { missed } => {
                map.serialize_entry("event", &GapFields::Lagged { missed: *missed })?
            }
            WatchEventKind::Pruned { first } => {
                map.serialize_entry("event", &GapFields::Pruned { first: *first })?
            }
        }
        map.end()
    }
}
