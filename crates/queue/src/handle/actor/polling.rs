//! The schedule of a process for queue checks without a request, and the scope of each check.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::runtime::Runtime;
use ferrata_core::store::RunHead;
use ferrata_core::{ExecutorId, RunKey};

use super::{HolderWatch, LocalSlot, QueueActor};
use crate::handle::entry_id;
use crate::tasks::spawn;

/// Number of holders per check, and the factor by which checks are rarer while the queue has no waiters.
const HOLDERS: usize = 64;
const RARER: u32 = 15;

/// Number of processes with waiting nodes per check.
const EXECUTORS: usize = 4;

/// Number of checks between two listings of the runs on hold. A run that another process revived enters the line at the next listing.
const SCANS: u32 = 5;

/// Number of checks before the actor reads whether an idle run that holds a slot is on hold. The run may have been revived before the queue recorded
/// its end.
const STALE: u32 = 60;

impl QueueActor {
    /// Returns the time between two checks if nothing happens.
    pub(super) fn poll_interval(&self) -> Duration {
        let waits = self.local_slots.values().any(|mine| matches!(mine, LocalSlot::Waits(_)));
        if waits && !self.is_failing { (self.pace.poll / 5).min(self.pace.look) } else { self.pace.look }
    }

    /// Returns how long the actor waits for a command. `due` is the time of the next check.
    pub(super) fn poll_pause(&self, due: Duration) -> Duration {
        let look = due.saturating_sub(self.clock.monotonic());
        if self.is_failing {
            return look;
        }
        if !self.pending_ops.is_empty() {
            return Duration::ZERO;
        }
        // One millisecond more, so that the check does not run just before the time.
        let next = self.next_check.map(|next| next.since(self.clock.now()) + Duration::from_millis(1));
        next.map_or(look, |next| look.min(next))
    }

    /// Checks whether holders in other processes are alive. The interval between checks depends only on time. Otherwise a busy queue would read as
    /// many heads as it gets requests.
    pub(super) fn check_holders(&mut self, runtime: &Runtime) {
        let now = self.clock.monotonic();
        if now.saturating_sub(self.checked_at) < self.pace.look {
            return;
        }
        self.checked_at = now;
        self.poll_count = self.poll_count.wrapping_add(1);
        if self.poll_count.is_multiple_of(SCANS) || self.scan.is_unfinished() {
            self.scan_held(runtime);
        }
        let Some(ledger) = &self.ledger else { return };
        self.recorded_starts.retain(|id| ledger.held.contains_key(id) || ledger.waiting.contains_key(id));
        if ledger.waiting.is_empty() && !self.poll_count.is_multiple_of(RARER) {
            return;
        }
        let after = (Bound::Excluded(self.checked_holder.as_str()), Bound::Unbounded);
        let some: Vec<_> = ledger
            .held
            .range::<str, _>(after)
            .filter(|(id, _)| !self.local_slots.contains_key(*id))
            .take(HOLDERS)
            .map(|(id, held)| (id.clone(), held.clone()))
            .collect();
        // After the last holder, continue with the first.
        self.checked_holder = if some.len() < HOLDERS {
            String::new()
        } else {
            some.last().map_or_else(String::new, |(id, _)| id.clone())
        };
        let executors = self.next_executors();
        let Some(watch) = self.holder_watch(runtime) else { return };
        if some.is_empty() && executors.is_empty() || self.is_checking_holders.swap(true, Ordering::Relaxed) {
            return;
        }
        let done = Arc::clone(&self.is_checking_holders);
        spawn(async move {
            watch.check(some).await;
            watch.check_executors(executors).await;
            done.store(false, Ordering::Relaxed);
        });
    }

    /// Returns the next few of the other processes with nodes that wait in memory. Repeated calls return them in rotation.
    fn next_executors(&mut self) -> Vec<ExecutorId> {
        let Some(ledger) = &self.ledger else { return Vec::new() };
        let nodes = ledger.waiting.nodes_in_memory().map(|(_, waiting)| waiting.executor);
        let all: BTreeSet<ExecutorId> = nodes.filter(|executor| *executor != self.executor).collect();
        let after = self.checked_executor.map_or(Bound::Unbounded, Bound::Excluded);
        let some: Vec<ExecutorId> = all.range((after, Bound::Unbounded)).take(EXECUTORS).copied().collect();
        // After the last process, continue with the first.
        self.checked_executor = if some.len() < EXECUTORS { None } else { some.last().copied() };
        some
    }

    /// Returns the value that checks the holders; `None` once the runtime is about to be dropped.
    pub(super) fn holder_watch(&self, runtime: &Runtime) -> Option<HolderWatch> {
        let (commands, runtime) = (self.commands.upgrade()?, runtime.clone());
        Some(HolderWatch {
            runtime,
            commands,
            seen: self.dwell_times.clone(),
            recorded: self.recorded_starts.clone(),
        })
    }

    /// Reads a page of the runs on hold.
    fn scan_held(&self, runtime: &Runtime) {
        let Some(commands) = self.commands.upgrade().filter(|_| self.scan.begin()) else { return };
        let (runtime, scan) = (runtime.clone(), self.scan.clone());
        spawn(async move { scan.read_page(&runtime, &commands).await });
    }

    /// Requests a slot for a run that this process left on hold.
    pub(super) fn enter_held(&self, runtime: &Runtime, run: RunKey) {
        let Some(commands) = self.commands.upgrade() else { return };
        let (runtime, scan) = (runtime.clone(), self.scan.clone());
        spawn(async move { scan.enter_run(&runtime, &run, &commands).await });
    }

    /// Returns the runs of `held` that may be on hold and have no entry in the queue. Also returns a run that has held a slot while idle for a long
    /// time.
    pub(super) fn find_missing(&self, mut held: Vec<RunHead>) -> Vec<RunHead> {
        let Some(ledger) = &self.ledger else { return Vec::new() };
        held.retain(|head| {
            let id = entry_id(&head.run);
            match ledger.held.get(&id) {
                Some(holder) => {
                    let unchanged = format!("{id} {}", head.id);
                    let stale = self.pace.look.saturating_mul(STALE);
                    !holder.on_hold && self.dwell_times.for_longer(&unchanged, holder.at, stale)
                }
                None => {
                    !(ledger.waiting.contains_key(&id)
                        || ledger.expired.contains_key(&id)
                        || ledger.replaced.contains_key(&id))
                }
            }
        });
        held
    }
}
