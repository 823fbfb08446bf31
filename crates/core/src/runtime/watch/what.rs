//! What a watcher is told: events that stand in the log, and events that are only heard.

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

/// One event of a watched run, or of a run of its family.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchEvent {
    /// The run that it is about.
    pub run: RunKey,
    /// The way down to that run from the watched one, as in the ids of [questions](crate::ask::Question): one `node@visit:child` for each
    /// level, separated by `/`. Empty for the watched run itself.
    pub path: Arc<str>,
    /// The record that says so; `None` for what is only heard.
    pub seq: Option<Seq>,
    /// When that record was made, by its writer's clock.
    pub at: Option<Timestamp>,
    /// What happened.
    pub what: WatchEventKind,
}

/// What a watcher is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WatchEventKind {
    /// A record of the log says so. Each is told once and in the order of the log, whoever drives the run and however often the watcher
    /// went away and came back.
    Recorded(Recorded),
    /// It was heard while it happened, in this process, and stands nowhere. It may be of work that a crash undoes.
    Live(Live),
    /// This many live events were not told, because they came faster than the watcher took them. Nothing recorded is missing.
    Lagged {
        /// How many.
        missed: u64,
    },
    /// The records before this one were pruned, and the watcher had not seen them. Read the state with
    /// [`Runtime::channels_at`](crate::runtime::Runtime::channels_at), or take [`WatchRequest::values`](super::WatchRequest::values); the
    /// events of the records from here on follow.
    Pruned {
        /// The oldest record that is kept.
        first: Seq,
    },
}

/// What a record says happened.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Recorded {
    /// The run was started.
    Started {
        /// Where it begins.
        entry: NodeName,
    },
    /// An executor took the run.
    Claimed {
        /// Which one.
        executor: ExecutorId,
        /// How often the run has been claimed, this time included.
        epoch: Epoch,
    },
    /// Its owner let the run go, or another process did in its place.
    Released {
        /// Why.
        reason: String,
    },
    /// An activation succeeded.
    NodeCompleted {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// How many attempts it took.
        attempts: u32,
        /// How long the last attempt took.
        #[serde(rename = "took_ms", serialize_with = "in_ms")]
        took: Duration,
        /// What it said itself of how its work came out, if that was not success.
        #[serde(skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
        /// The nodes that its edges lead on to.
        next: Vec<NodeName>,
    },
    /// An activation failed for good.
    NodeFailed {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// How many attempts were made.
        attempts: u32,
        /// Why.
        failure: Failure,
        /// The nodes that edges which take failures lead on to; none if the run failed with it.
        next: Vec<NodeName>,
    },
    /// An attempt failed, and another follows.
    AttemptFailed {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// How many attempts have failed, this one included.
        failed: u32,
        /// Why.
        failure: Failure,
        /// When the next may start.
        #[serde(rename = "retry_at_ms")]
        retry_at: Timestamp,
    },
    /// An attempt of an `External` node ended without saying whether its work was done: the run asks what became of it.
    InDoubt {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// How the attempt ended.
        failure: Failure,
    },
    /// An attempt that must not be repeated is about to start.
    Intent {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
    },
    /// A step has a result.
    StepDone {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// The step.
        name: String,
    },
    /// An attempt [said](crate::node::NodeContext::progress) how far it has come.
    Progress {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// What it said, as JSON text.
        value: Arc<RawValue>,
    },
    /// A node sent chunks of a [durable stream](super::StreamWriter::durable): see [`WatchEvent::chunks`].
    Chunks {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// Which attempt sent them.
        attempt: u32,
        /// The stream.
        stream: Arc<str>,
        /// How often the activation has begun the stream, this time included: a further attempt begins it anew, and so does one that
        /// runs again after a crash.
        round: u32,
        /// How many chunks were sent before these, since the stream was begun.
        first: u64,
        /// The chunks, each as JSON text.
        chunks: Vec<Arc<RawValue>>,
    },
    /// A timer runs, or a message is waited for, until then.
    Waiting {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// Until when.
        #[serde(rename = "until_ms")]
        until: Timestamp,
    },
    /// A node took a message.
    MessageTaken {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// How many messages were sent to the run before it.
        message: u64,
    },
    /// A node could not read a message that it took, and it was set aside.
    MessageRefused {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// How many messages were sent to the run before it.
        message: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A node is about to start a child, or to spawn a run. The child's own records follow.
    ChildStarted {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// What the node calls it.
        name: String,
        /// Its id, in the tenant of the run.
        child: RunId,
        /// Its workflow.
        workflow: WorkflowName,
        /// Whether no parent waits for it: such a run is not of the family.
        detached: bool,
    },
    /// What came of a child is noted.
    ChildEnded {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// What the node calls it.
        name: String,
        /// How it ended; `None` if it was purged before.
        status: Option<RunStatus>,
    },
    /// A node asked a question.
    Asked {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// The question is answered by this id.
        question: String,
    },
    /// A question was answered.
    Answered {
        /// The question's id.
        question: String,
        /// Who answered, if named.
        by: Option<String>,
    },
    /// No answer to a question came in time.
    Expired {
        /// The question's id.
        question: String,
    },
    /// A message was sent to the run.
    MessageSent {
        /// The sender, if named.
        by: Option<String>,
    },
    /// A signaller asked the run to pause.
    Paused {
        /// Why.
        reason: String,
        /// Who, if named.
        by: Option<String>,
    },
    /// A signaller let a paused run go on.
    Unpaused {
        /// Who, if named.
        by: Option<String>,
    },
    /// A signaller asked the run to stop for good.
    CancelRequested {
        /// Why.
        reason: String,
        /// Who, if named.
        by: Option<String>,
    },
    /// A signaller had a failed run tried again.
    RetryRequested {
        /// Who, if named.
        by: Option<String>,
    },
    /// A signaller had the run [go on elsewhere](crate::runtime::Runtime::go_to).
    Moved {
        /// The nodes at which it goes on.
        to: Vec<NodeName>,
        /// Why.
        reason: String,
        /// Who, if named.
        by: Option<String>,
    },
    /// A signaller changed the state.
    Edited {
        /// Who, if named.
        by: Option<String>,
    },
    /// How the record changed the state; told where [asked for](super::WatchRequest::updates).
    Update {
        /// The change, as plain operations.
        patch: Patch,
    },
    /// The whole state after the record; told where [asked for](super::WatchRequest::values).
    Value {
        /// The state, as JSON text.
        state: Arc<RawValue>,
    },
    /// The run's status is another one from this record on.
    Status {
        /// The status.
        status: RunStatus,
    },
}

/// What is heard of a run that goes on in this process.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Live {
    /// An attempt of an activation began.
    AttemptStarted {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// Which attempt, from 1.
        attempt: u32,
    },
    /// A node said something of its own, see [`NodeContext::emit`](crate::node::NodeContext::emit).
    Custom {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// The name that the node gave it.
        name: String,
        /// What it said, as JSON text.
        payload: Arc<RawValue>,
    },
    /// A node sent a chunk of a [stream](crate::node::NodeContext::stream) that is not recorded.
    Chunk {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// Which attempt sent it: a further one begins the stream anew.
        attempt: u32,
        /// The stream.
        stream: Arc<str>,
        /// How many chunks the attempt sent before, so that a gap shows.
        number: u64,
        /// The chunk, as JSON text.
        data: Arc<RawValue>,
    },
    /// The store lost records that it had acknowledged to this process. The run stops here.
    RecordsLost {
        /// The last record that was acknowledged.
        acknowledged: Seq,
        /// The last one that the store has.
        found: Seq,
    },
}

#[expect(clippy::cast_possible_truncation, reason = "no attempt takes 500 million years")]
fn in_ms<S: Serializer>(took: &Duration, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_u64(took.as_millis() as u64)
}

/// Makes the kinds of events, and says of each event which it is and which activation it is about.
macro_rules! kinds {
    (
        recorded { $($r:ident = $rw:literal $(($rn:ident, $rv:ident))?,)* }
        live { $($l:ident = $lw:literal $(($ln:ident, $lv:ident))?,)* }
        other { $($o:ident = $ow:literal,)* }
    ) => {
        /// Which kind of event; as text it is the `event` of a [server-sent event](super::SseFrames).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "each is the kind of the event of the same name")]
        pub enum WatchKind { $($r,)* $($l,)* $($o,)* }

        impl WatchKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$r,)* $(Self::$l,)* $(Self::$o,)*];

            /// Returns the word for it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$r => $rw,)*
                    $(Self::$l => $lw,)*
                    $(Self::$o => $ow,)*
                }
            }
        }

        impl WatchEventKind {
            /// Returns which kind it is.
            pub fn kind(&self) -> WatchKind {
                match self {
                    $(Self::Recorded(Recorded::$r { .. }) => WatchKind::$r,)*
                    $(Self::Live(Live::$l { .. }) => WatchKind::$l,)*
                    $(Self::$o { .. } => WatchKind::$o,)*
                }
            }

            /// Returns the activation that it is about, if it is about one.
            pub fn activation(&self) -> Option<(&NodeName, Visit)> {
                match self {
                    $($(Self::Recorded(Recorded::$r { $rn, $rv, .. }) => Some(($rn, *$rv)),)?)*
                    $($(Self::Live(Live::$l { $ln, $lv, .. }) => Some(($ln, *$lv)),)?)*
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

/// The fields of an event that is neither recorded nor live.
#[derive(Serialize)]
#[serde(untagged)]
enum Other {
    Lagged { missed: u64 },
    Pruned { first: Seq },
}

/// A piece of a [stream](crate::node::NodeContext::stream).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Chunk<'a> {
    /// The stream.
    pub stream: &'a str,
    /// The node that sent it.
    pub node: &'a NodeName,
    /// Which visit.
    pub visit: Visit,
    /// Which attempt. When it changes, or `number` is 0, the stream begins anew: drop what was shown of it.
    pub attempt: u32,
    /// How many chunks were sent before it, since the stream was begun.
    pub number: u64,
    /// The chunk, as JSON text.
    pub data: &'a RawValue,
}

impl Chunk<'_> {
    /// Reads the chunk as the type that the node sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is of another type.
    ///
    /// <!-- held by: streaming::chunks_are_told_in_order_and_before_the_end_of_their_node -->
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.data.get()).map_err(|source| {
            let message = format!("the chunk is not of type {}", std::any::type_name::<T>());
            Error::new(ErrorKind::Invalid, message).with_node(self.node).with_source(source)
        })
    }
}

impl WatchEvent {
    /// Returns which kind it is.
    pub fn kind(&self) -> WatchKind {
        self.what.kind()
    }

    /// Lists the chunks of a stream that the event brings: one of a stream that is not recorded, several of a durable one, none if it is
    /// of another kind.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        let (of, all): (_, &[Arc<RawValue>]) = match &self.what {
            WatchEventKind::Live(Live::Chunk { node, visit, attempt, stream, number, data }) => {
                (Some((node, *visit, *attempt, stream, *number)), std::slice::from_ref(data))
            }
            WatchEventKind::Recorded(Recorded::Chunks {
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

    /// Returns the event as one line of JSON: `kind`, `run`, `path`, `seq`, `at_ms`, and under `event` the fields of its kind.
    ///
    /// What nodes, answers and errors said stands in it: it is as secret as the run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a node gave what is no JSON, which is refused where it is given.
    ///
    /// <!-- held by: watching::an_event_as_json_says_what_it_says_as_a_type -->
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|source| {
            Error::new(ErrorKind::Invalid, "the event cannot be expressed in JSON").with_source(source)
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
                map.serialize_entry("event", &Other::Lagged { missed: *missed })?
            }
            WatchEventKind::Pruned { first } => {
                map.serialize_entry("event", &Other::Pruned { first: *first })?
            }
        }
        map.end()
    }
}
