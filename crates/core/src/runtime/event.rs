//! What subscribers hear of runs as they go on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::broadcast;

use super::watch::{Feeds, StreamRelay};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, NodeName, RunKey, Seq, Visit};
use crate::past::Verdict;
use crate::record::{Failure, RunStatus};

/// Something that happened in a run of this process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunEvent {
    /// The run.
    pub run: RunKey,
    /// What happened.
    pub event: Event,
}

/// What happened.
///
/// Events tell what this process saw, as it saw it; they are not stored, and a slow subscriber misses some. What is certain
/// stands in the log, and [`Runtime::watch`](super::Runtime::watch) tells it: an event other than [`Event::Durable`] may be of work that a
/// crash undoes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The run was started here.
    Started,
    /// The run was taken up here; `recorded` activations had ended and are not run again.
    Resumed {
        /// How often the run has been claimed, this time included.
        epoch: Epoch,
        /// How many activations are recorded.
        recorded: u64,
        /// Whether the graph differs from the one of the start, though not where it matters.
        graph_changed: bool,
    },
    /// An attempt of an activation began.
    NodeStarted {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// Which attempt, from 1.
        attempt: u32,
    },
    /// An activation succeeded.
    NodeCompleted {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// How long the attempt took.
        took: Duration,
        /// What it said itself of how its work came out, if that was not success.
        verdict: Option<Verdict>,
    },
    /// An attempt failed; another follows after the delay if there is one.
    NodeFailed {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// Why.
        failure: Failure,
        /// When the next attempt follows; `None` if it was the last.
        retry_in: Option<Duration>,
    },
    /// An attempt of an `External` node ended without saying whether its work was done. It is not made again unasked: the run
    /// asks what became of it, see [`Resolution`](crate::record::Resolution).
    NodeInDoubt {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// How the attempt ended.
        failure: Failure,
    },
    /// Everything up to this record is on stable storage.
    Durable {
        /// The position of the record.
        seq: Seq,
    },
    /// The store lost records that it had acknowledged to this process. The run stops here with
    /// [`ErrorKind::Corrupt`]; what must not be repeated and had begun is asked about.
    RecordsLost {
        /// The last record that was acknowledged.
        acknowledged: Seq,
        /// The last one that the store has.
        found: Seq,
    },
    /// The run's status changed.
    Status {
        /// The status it has now.
        status: RunStatus,
    },
    /// A question was asked.
    Asked {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// The name of the question; it is answered by `node@visit:name`.
        name: String,
    },
    /// A message could not be read by the node that took it, and was set aside; it stands in the log.
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
    /// A node said something of its own, see [`NodeContext::emit`](crate::node::NodeContext::emit).
    Custom {
        /// The node.
        node: NodeName,
        /// Which visit.
        visit: Visit,
        /// The name the node gave it.
        name: String,
        /// What it said, as JSON text.
        payload: Arc<RawValue>,
    },
}

/// The subscribers of a runtime's events.
pub(crate) struct Subscribers {
    /// Made by the first of them: its room for events is most of what a runtime takes.
    sender: OnceLock<broadcast::Sender<RunEvent>>,
    lag: usize,
    /// How many subscribe, and how many runs are watched.
    count: Arc<AtomicUsize>,
    /// Those who watch a run.
    pub(crate) feeds: Arc<Feeds>,
    /// What they hear of other processes, and those of this one.
    pub(crate) relayed: Arc<StreamRelay>,
}

impl Subscribers {
    /// Each may lag behind by so many events.
    pub(crate) fn new(lag: usize) -> Self {
        let count = Arc::default();
        let relayed = Arc::default();
        let feeds = Arc::new(Feeds::new(Arc::clone(&count), Arc::clone(&relayed)));
        Self { sender: OnceLock::new(), lag, count, feeds, relayed }
    }

    /// Tells every subscriber; `event` is made only if there is one.
    pub(crate) fn emit(&self, run: &RunKey, event: impl FnOnce() -> Event) {
        if self.is_empty() {
            return;
        }
        let event = event();
        self.feeds.hear(run, &event);
        if let Some(sender) = self.sender.get().filter(|sender| sender.receiver_count() > 0) {
            // The last subscriber may have gone by now.
            let _ = sender.send(RunEvent { run: run.clone(), event });
        }
    }

    /// Whether there is no subscriber. Asked of every event, so it takes no lock, as asking the channel would.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Subscribes to the events of all runs.
    pub(crate) fn subscribe(&self) -> Events {
        self.count.fetch_add(1, Ordering::Release);
        let sender = self.sender.get_or_init(|| broadcast::channel(self.lag).0);
        Events { receiver: sender.subscribe(), subscribers: Arc::clone(&self.count) }
    }
}

/// What happens in this process, in whichever run; [`Runtime::watch`](super::Runtime::watch) tells what happens to one run, wherever that is.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<RunEvent>,
    /// How many subscribers there are, this one included.
    subscribers: Arc<AtomicUsize>,
}

impl Events {
    /// Waits for the next event. `Ok(None)` says that some were missed, because they came faster than they were taken.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] when the runtime is gone.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost by dropping the future.
    ///
    /// <!-- held by: retries::a_failure_and_the_success_after_the_retry_are_both_told -->
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

impl Drop for Events {
    fn drop(&mut self) {
        self.subscribers.fetch_sub(1, Ordering::Release);
    }
}
