//! When a process looks at a queue though nothing is asked of it, and what it looks after then.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::runtime::{Runtime, StateCell};
use ferrata_core::store::Notices;

use super::{Clerk, Mine, acts};
use crate::tasks::spawn;

/// How many holders the clerk looks after at a time, and how many times rarer it does so while nobody waits.
const HOLDERS: usize = 64;
const RARER: u32 = 15;

impl Clerk {
    /// How long after a look it looks again though nothing happens.
    pub(super) fn interval(&self) -> Duration {
        let waits = self.mine.values().any(|mine| matches!(mine, Mine::Waits(_)));
        if waits && !self.fails { (self.pace.poll / 5).min(self.pace.look) } else { self.pace.look }
    }

    /// How long it waits for something to do, if the next look is due then.
    pub(super) fn pause(&self, due: Duration) -> Duration {
        let look = due.saturating_sub(self.clock.monotonic());
        if self.fails {
            return look;
        }
        if !self.owed.is_empty() {
            return Duration::ZERO;
        }
        // A moment more, for it is a moment that is not to be missed.
        let next = self.next.map(|next| next.since(self.clock.now()) + Duration::from_millis(1));
        next.map_or(look, |next| look.min(next))
    }

    /// Looks after some of the holders of other processes: whether they are still there. By time alone, or a queue of which much is asked would ask as
    /// much again for their heads.
    pub(super) fn look_after(&mut self, runtime: &Runtime) {
        let Some(ledger) = &self.ledger else { return };
        let now = self.clock.monotonic();
        if now.saturating_sub(self.looked) < self.pace.look {
            return;
        }
        self.looked = now;
        self.looks = self.looks.wrapping_add(1);
        if ledger.waiting.is_empty() && !self.looks.is_multiple_of(RARER) {
            return;
        }
        let after = (Bound::Excluded(self.looked_after.as_str()), Bound::Unbounded);
        let some: Vec<_> = ledger
            .held
            .range::<str, _>(after)
            .filter(|(id, _)| !self.mine.contains_key(*id))
            .take(HOLDERS)
            .map(|(id, held)| (id.clone(), held.clone()))
            .collect();
        // From the start again when all had their turn.
        self.looked_after = if some.len() < HOLDERS {
            String::new()
        } else {
            some.last().map_or_else(String::new, |(id, _)| id.clone())
        };
        let Some(commands) = self.commands.upgrade() else { return };
        if some.is_empty() || self.is_looking_after.swap(true, Ordering::Relaxed) {
            return;
        }
        let (runtime, seen) = (runtime.clone(), self.seen.clone());
        let done = Arc::clone(&self.is_looking_after);
        spawn(async move {
            acts::look_after(&runtime, some, &commands, &seen).await;
            done.store(false, Ordering::Relaxed);
        });
    }
}

/// Waits until the store says that the queue was changed; for ever if it says nothing.
pub(super) async fn noticed(notices: &mut Option<Notices>, cell: &StateCell) {
    loop {
        let Some(heard) = notices else { return std::future::pending().await };
        match heard.next().await {
            Ok(Some(notice)) if notice.run != *cell.run() => {}
            Ok(_) => return,
            Err(_) => *notices = None,
        }
    }
}
