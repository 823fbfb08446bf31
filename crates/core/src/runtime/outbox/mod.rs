//! Delivers outbox messages after their records are durable.
//!
//! The messages of one run and topic form a *lane*. A lane that has messages has a task. If this process drives the run, the driver adds messages to
//! the lane when their records are durable. If no process drives the run, a sweep finds the run by its wake time. The results of deliveries are
//! recorded like signals: by the driver in this process, or by an append to the log. Two processes may deliver the messages of the same run. Both
//! then deliver in the order of the log, and the log accepts only the first result.

mod lane;
mod takeover;

use std::sync::Arc;

pub(crate) use self::takeover::{take, take_listed};
use crate::engine::machine::Machine;
use crate::id::RunKey;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::outbox::OutboxMessage;
use crate::kernel::tasks::spawn;

/// Passes the messages of a run up to the number `to` to the lanes of this process. The records of these messages are durable.
pub(crate) fn queue_messages(shared: &Arc<RuntimeInner>, run: &RunKey, machine: &Machine, to: u64) {
    let Some(letters) = machine.letters().filter(|_| shared.post().has_outlets()) else { return };
    let start_id = machine.start_id();
    for posted in letters.waiting().iter().filter(|letter| !letter.dead && letter.number <= to) {
        if !shared.post().routes.contains_key(&*posted.topic) {
            continue;
        }
        let key = (run.clone(), start_id, Arc::clone(&posted.topic));
        let mut lines = shared.post().lines();
        let is_new = !lines.contains_key(&key);
        let line = lines.entry(key.clone()).or_default();
        if !line.in_hand.contains(&posted.number) {
            let first = line.waiting.keys().chain(&line.in_hand).min();
            if first.is_some_and(|first| posted.number < *first) {
                line.bell.notify_one();
            }
            line.waiting.entry(posted.number).or_insert_with(|| OutboxMessage::new(run, start_id, posted));
        }
        if is_new {
            let bell = Arc::clone(&line.bell);
            shared.post().count.send_replace(lines.len());
            drop(lines);
            spawn(lane::deliver(Arc::downgrade(shared), key, bell));
        }
    }
}
