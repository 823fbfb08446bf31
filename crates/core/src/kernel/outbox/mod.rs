//! The outbox sinks of a process, and the messages that wait for them.

mod sink;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_engine::graph::RetryPolicy;
use tokio::sync::{Notify, watch};

pub use self::sink::{OutboxMessage, OutboxSink, SinkError};
use crate::claim::StartId;
use crate::id::RunKey;

/// The maximum number of messages in one delivery.
const BATCH: usize = 100;

/// The default retry policy of a sink. Its attempts last for about an hour and a half, which is longer than most outages.
pub(crate) const RETRY: RetryPolicy = RetryPolicy::standard()
    .with_attempts(25)
    .with_delay(Duration::from_secs(1))
    .with_cap(Duration::from_secs(300));

/// The sink of a topic, with its retry policy.
#[derive(Clone)]
pub(crate) struct SinkRoute {
    pub(crate) sink: Arc<dyn OutboxSink>,
    pub(crate) retry: RetryPolicy,
}

/// The key of a lane: the run, its start, and the topic.
pub(crate) type LaneKey = (RunKey, StartId, Arc<str>);

/// The messages of one run to one topic.
#[derive(Default)]
pub(crate) struct OutboxLane {
    pub(crate) waiting: BTreeMap<u64, OutboxMessage>,
    /// The numbers of the messages in the current batch.
    pub(crate) in_hand: Vec<u64>,
    /// Ends the delay before a retry when another message becomes the first of the lane.
    pub(crate) bell: Arc<Notify>,
}

/// The sinks of this process, and its lanes.
pub(crate) struct OutboxRegistry {
    pub(crate) routes: BTreeMap<String, SinkRoute>,
    lines: Mutex<HashMap<LaneKey, OutboxLane>>,
    /// The number of lanes.
    pub(crate) count: watch::Sender<usize>,
}

impl OutboxRegistry {
    pub(crate) fn new(routes: BTreeMap<String, SinkRoute>) -> Self {
        Self { routes, lines: Mutex::default(), count: watch::channel(0).0 }
    }

    /// Returns whether this process has sinks.
    pub(crate) fn has_outlets(&self) -> bool {
        !self.routes.is_empty()
    }

    pub(crate) fn lines(&self) -> MutexGuard<'_, HashMap<LaneKey, OutboxLane>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver of the number of lanes with messages in this process.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Takes the next messages of a lane. Returns `None` if the lane is empty, which ends the lane.
    pub(crate) fn next(&self, key: &LaneKey) -> Option<Vec<OutboxMessage>> {
        let mut lines = self.lines();
        let line = lines.get_mut(key)?;
        if line.waiting.is_empty() {
            lines.remove(key);
            self.count.send_replace(lines.len());
            return None;
        }
        let mut batch: Vec<OutboxMessage> = Vec::new();
        while let Some((_, letter)) = line.waiting.first_key_value()
            && batch.len() < BATCH
            // A message that failed before is retried alone, so that a rejection names exactly one message.
            && (batch.is_empty() || batch.iter().chain([letter]).all(|letter| letter.tries == 0))
        {
            batch.extend(line.waiting.pop_first().map(|(_, letter)| letter));
        }
        line.in_hand = batch.iter().map(|letter| letter.number).collect();
        Some(batch)
    }

    /// Puts undelivered messages back into the lane, and drops all other waiting messages up to the number `to`.
    pub(crate) fn put_back(&self, key: &LaneKey, to: u64, letters: Vec<OutboxMessage>) {
        if let Some(line) = self.lines().get_mut(key) {
            line.in_hand.clear();
            line.waiting.retain(|number, _| *number > to);
            line.waiting.extend(letters.into_iter().map(|letter| (letter.number, letter)));
        }
    }

    /// Ends a lane and drops its messages.
    pub(crate) fn end(&self, key: &LaneKey) {
        let mut lines = self.lines();
        lines.remove(key);
        self.count.send_replace(lines.len());
    }
}
