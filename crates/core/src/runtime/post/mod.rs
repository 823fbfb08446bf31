//! Delivering letters: what nodes sent out of their runs, once the record of it is durable.
//!
//! A run's letters of one topic are a *line*, and a line that has letters has a task. Where the run is driven here, its driver hands letters
//! in when their record is durable; otherwise a sweep finds a run that is to be woken for them. What became of them is said to the run as
//! a signal is: to its driver in this process, or to its log. Nothing rests on who delivers: of two processes that do, both deliver in
//! order from what the log says, and the log takes what the first one says.

mod line;
mod outlet;
mod request;
mod take;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use uuid::Uuid;

pub use self::outlet::{OutboxMessage, OutboxSink, SinkError};
pub(crate) use self::take::{take, take_listed};
use super::shared::RuntimeInner;
use super::tasks::spawn;
use crate::engine::machine::Machine;
use crate::graph::RetryPolicy;
use crate::id::RunKey;

/// How many letters an outlet is handed at once.
const BATCH: usize = 100;

/// What an outlet is tried with unless its own is set: for about an hour and a half, which is longer than most disturbances.
pub(crate) const RETRY: RetryPolicy = RetryPolicy::standard()
    .with_attempts(25)
    .with_delay(Duration::from_secs(1))
    .with_cap(Duration::from_secs(300));

/// The outlet of a topic.
#[derive(Clone)]
pub(crate) struct SinkRoute {
    pub(crate) outlet: Arc<dyn OutboxSink>,
    pub(crate) retry: RetryPolicy,
}

/// Which run and topic, and which life of the run.
type LineKey = (RunKey, Uuid, Arc<str>);

/// The letters of one run to one topic.
#[derive(Default)]
struct OutboxLane {
    waiting: BTreeMap<u64, OutboxMessage>,
    /// The last letter of the batch that is being delivered.
    in_hand: Vec<u64>,
    /// Ends the pause before the next try: another letter is first.
    bell: Arc<Notify>,
}

/// The outlets of this process, and what it has for them.
pub(crate) struct OutboxRegistry {
    routes: BTreeMap<String, SinkRoute>,
    lines: Mutex<HashMap<LineKey, OutboxLane>>,
    /// How many lines there are.
    count: watch::Sender<usize>,
}

impl OutboxRegistry {
    pub(crate) fn new(routes: BTreeMap<String, SinkRoute>) -> Self {
        Self { routes, lines: Mutex::default(), count: watch::channel(0).0 }
    }

    /// Whether this process delivers anything.
    pub(crate) fn has_outlets(&self) -> bool {
        !self.routes.is_empty()
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<LineKey, OutboxLane>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many lines have letters here, and tells when that changes.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Takes the next letters of a line; `None` ends the line, which has none.
    fn next(&self, key: &LineKey) -> Option<Vec<OutboxMessage>> {
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
            // What failed before is tried alone, so that what is refused is known.
            && (batch.is_empty() || batch.iter().chain([letter]).all(|letter| letter.tries == 0))
        {
            batch.extend(line.waiting.pop_first().map(|(_, letter)| letter));
        }
        line.in_hand = batch.iter().map(|letter| letter.number).collect();
        Some(batch)
    }

    /// Puts back what was not delivered. Of the letters up to a number, nothing else waits.
    fn put_back(&self, key: &LineKey, to: u64, letters: Vec<OutboxMessage>) {
        if let Some(line) = self.lines().get_mut(key) {
            line.in_hand.clear();
            line.waiting.retain(|number, _| *number > to);
            line.waiting.extend(letters.into_iter().map(|letter| (letter.number, letter)));
        }
    }

    /// Ends a line, whatever it has.
    fn end(&self, key: &LineKey) {
        let mut lines = self.lines();
        lines.remove(key);
        self.count.send_replace(lines.len());
    }
}

/// Delivers the letters of a run up to this number, whose records are durable, as far as this process has outlets for them.
pub(crate) fn hand_in(shared: &Arc<RuntimeInner>, run: &RunKey, machine: &Machine, to: u64) {
    let Some(letters) = machine.letters().filter(|_| shared.post().has_outlets()) else { return };
    let life = machine.life();
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
            spawn(line::deliver(Arc::downgrade(shared), key, bell));
        }
    }
}
