//! Delivers outbox messages after their records are durable.
//!
//! The messages of one run and topic form a *lane*. A lane that has messages has a task. If this process drives the run, the driver adds messages to
//! the lane when their records are durable. If no process drives the run, a sweep finds the run by its wake time. The results of deliveries are
//! recorded like signals: by the driver in this process, or by an append to the log. Two processes may deliver the messages of the same run. Both
//! then deliver in the order of the log, and the log accepts only the first result.

mod lane;
mod request;
mod sink;
mod takeover;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use uuid::Uuid;

pub use self::sink::{OutboxMessage, OutboxSink, SinkError};
pub(crate) use self::takeover::{take, take_listed};
use super::shared::RuntimeInner;
use super::tasks::spawn;
use crate::engine::machine::Machine;
use crate::graph::RetryPolicy;
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

/// The key of a lane: the run, its generation, and the topic.
type LaneKey = (RunKey, Uuid, Arc<str>);

/// The messages of one run to one topic.
#[derive(Default)]
struct OutboxLane {
    waiting: BTreeMap<u64, OutboxMessage>,
    /// The numbers of the messages in the current batch.
    in_hand: Vec<u64>,
    /// Ends the delay before a retry when another message becomes the first of the lane.
    bell: Arc<Notify>,
}

/// The sinks of this process, and its lanes.
pub(crate) struct OutboxRegistry {
    routes: BTreeMap<String, SinkRoute>,
    lines: Mutex<HashMap<LaneKey, OutboxLane>>,
    /// The number of lanes.
    count: watch::Sender<usize>,
}

impl OutboxRegistry {
    pub(crate) fn new(routes: BTreeMap<String, SinkRoute>) -> Self {
        Self { routes, lines: Mutex::default(), count: watch::channel(0).0 }
    }

    /// Returns whether this process has sinks.
    pub(crate) fn has_outlets(&self) -> bool {
        !self.routes.is_empty()
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<LaneKey, OutboxLane>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver of the number of lanes with messages in this process.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Takes the next messages of a lane. Returns `None` if the lane is empty, which ends the lane.
    fn next(&self, key: &LaneKey) -> Option<Vec<OutboxMessage>> {
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
    fn put_back(&self, key: &LaneKey, to: u64, letters: Vec<OutboxMessage>) {
        if let Some(line) = self.lines().get_mut(key) {
            line.in_hand.clear();
            line.waiting.retain(|number, _| *number > to);
            line.waiting.extend(letters.into_iter().map(|letter| (letter.number, letter)));
        }
    }

    /// Ends a lane and drops its messages.
    fn end(&self, key: &LaneKey) {
        let mut lines = self.lines();
        lines.remove(key);
        self.count.send_replace(lines.len());
    }
}

/// Passes the messages of a run up to the number `to` to the lanes of this process. The records of these messages are durable.
pub(crate) fn queue_messages(shared: &Arc<RuntimeInner>, run: &RunKey, machine: &Machine, to: u64) {
    let Some(letters) = machine.letters().filter(|_| shared.post().has_outlets()) else { return };
    let life = machine.generation();
    for posted in letters.waiting().iter().filter(|letter| !letter.dead && letter.number <= to) {
        if !shared.post().routes.contains_key(&*posted.topic) {
            continue;
        }
        let key = (run.clone(), life, Arc::clone(&posted.topic));
        let mut lines = shared.post().lines();
        let is_new = !lines.contains_key(&key);
        let line = lines.entry(key.clone()).or_default();
        if !line.in_hand.contains(&posted.number) {
            let first = line.waiting.keys().chain(&line.in_hand).min();
            if first.is_some_and(|first| posted.number < *first) {
                line.bell.notify_one();
            }
            line.waiting.entry(posted.number).or_insert_with(|| OutboxMessage::new(run, life, posted));
        }
        if is_new {
            let bell = Arc::clone(&line.bell);
            shared.post().count.send_replace(lines.len());
            drop(lines);
            spawn(lane::deliver(Arc::downgrade(shared), key, bell));
        }
    }
}
