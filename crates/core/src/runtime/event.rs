//! Events of active runs, for subscribers in this process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::broadcast;

use super::watch::{RunFeeds, StreamRelay};
use crate::error::{Error, ErrorKind, Result};
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
/// that a crash cannot undo. To get every durable event, use [`Runtime::watch`](super::Runtime::watch), which reads the log.
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
    /// The store lost records that it had acknowledged to this process. This process stops the run with [`ErrorKind::Corrupt`]. If work had started
    /// that must not be repeated, the run asks for its outcome.
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

/// The subscribers of a runtime's events.
pub(crate) struct Subscribers {
    /// The channel of events. The first subscriber creates it. Without subscribers there is no channel, because its buffer would take most of the
    /// memory of a runtime.
    sender: OnceLock<broadcast::Sender<RunEvent>>,
    lag: usize,
    /// The number of subscribers and watched runs.
    count: Arc<AtomicUsize>,
    /// The watchers of single runs.
    pub(crate) feeds: Arc<RunFeeds>,
    /// The relay of stream chunks to and from other processes.
    pub(crate) relayed: Arc<StreamRelay>,
}

impl Subscribers {
    /// Creates an empty list of subscribers. A subscriber misses events if it is more than `lag` events behind.
    pub(crate) fn new(lag: usize) -> Self {
        let count = Arc::default();
        let relayed = Arc::default();
        let feeds = Arc::new(RunFeeds::new(Arc::clone(&count), Arc::clone(&relayed)));
        Self { sender: OnceLock::new(), lag, count, feeds, relayed }
    }

    /// Sends an event to every subscriber. Calls `event` only if there is one.
    pub(crate) fn emit(&self, run: &RunKey, event: impl FnOnce() -> Event) {
        if self.is_empty() {
            return;
        }
        let event = event();
        self.feeds.publish_event(run, &event);
        if let Some(sender) = self.sender.get().filter(|sender| sender.receiver_count() > 0) {
            // The last subscriber may just have left.
            let _ = sender.send(RunEvent { run: run.clone(), event });
        }
    }

    /// Returns whether there is no subscriber. The function is called for every event, so it uses a counter and takes no lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Subscribes to the events of all runs.
    pub(crate) fn subscribe(&self) -> EventSubscription {
        self.count.fetch_add(1, Ordering::Release);
        let sender = self.sender.get_or_init(|| broadcast::channel(self.lag).0);
        EventSubscription { receiver: sender.subscribe(), subscribers: Arc::clone(&self.count) }
    }
}

/// A subscription to the events of all runs in this process. [`Runtime::watch`](super::Runtime::watch) follows one run in any process.
#[derive(Debug)]
pub struct EventSubscription {
    receiver: broadcast::Receiver<RunEvent>,
    /// The number of subscribers, including this subscriber.
    subscribers: Arc<AtomicUsize>,
}

impl EventSubscription {
    /// Waits for the next event. `Ok(None)` means that this subscriber was too slow and missed some events.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Closed`] after the runtime was dropped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the next call returns the event.
    pub async fn next(&mut self) -> Result<Option<RunEvent>> {
        match self.receiver.recv().await {
            Ok(event) => Ok(Some(event)),
            Err(broadcast::error::RecvError::Lagged(_)) => Ok(None),
            Err(broadcast::error::RecvError::Closed) => {
                let message = "the runtime is gone; there will be no more events";
                Err(Error::new(ErrorKind::Closed, message))
            }
        }
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        self.relayed.end();
    }
}

impl Drop for EventSubscription {
    fn drop(&mut self) {
        self.subscribers.fetch_sub(1, Ordering::Release);
    }
}
