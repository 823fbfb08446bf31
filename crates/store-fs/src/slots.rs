//! The logs that this instance keeps open: up to a limit, those that were used last.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use ferrata_store::RunKey;

use crate::log::CachedLog;

/// The slot of one run in this instance: a lock for its writers, and the cached log.
///
/// A slot only saves work. Two slots of the same run may exist if one was dropped from the cache while in use. They exclude each other by the lock
/// on the file, as two processes do.
#[derive(Debug, Default)]
pub(crate) struct RunSlot {
    turn: Mutex<()>,
    log: Mutex<Option<Arc<CachedLog>>>,
}

impl RunSlot {
    /// Waits until no other caller of this instance writes to the run, and takes the turn.
    pub(crate) fn lock_turn(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data. If a writer panics, the next writer checks what it left, under the file's lock.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn if no other caller of this instance writes to the run.
    pub(crate) fn try_lock_turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn cached_log(&self) -> Option<Arc<CachedLog>> {
        self.log().clone()
    }

    pub(crate) fn cache_log(&self, log: CachedLog) {
        *self.log() = Some(Arc::new(log));
    }

    pub(crate) fn drop_cached_log(&self) {
        *self.log() = None;
    }

    fn log(&self) -> MutexGuard<'_, Option<Arc<CachedLog>>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slots of the runs that were used last.
#[derive(Debug)]
pub(crate) struct RunSlots {
    capacity: NonZeroUsize,
    used: Mutex<RecentSlots>,
}

#[derive(Debug, Default)]
struct RecentSlots {
    slots: HashMap<RunKey, (Arc<RunSlot>, u64)>,
    tick: u64,
}

impl RunSlots {
    pub(crate) fn new(capacity: NonZeroUsize) -> Self {
        Self { capacity, used: Mutex::default() }
    }

    /// Returns the slot of the run. Creates the slot if it does not exist.
    pub(crate) fn slot_of(&self, run: &RunKey) -> Arc<RunSlot> {
        let mut used = self.lock_recent();
        used.tick += 1;
        let tick = used.tick;
        if let Some((slot, last)) = used.slots.get_mut(run) {
            *last = tick;
            return Arc::clone(slot);
        }
        if used.slots.len() >= self.capacity.get() {
            used.drop_oldest();
        }
        let slot = Arc::<RunSlot>::default();
        used.slots.insert(run.clone(), (Arc::clone(&slot), tick));
        slot
    }

    /// Returns the cached log of the run, if there is one.
    pub(crate) fn cached_log(&self, run: &RunKey) -> Option<Arc<CachedLog>> {
        let slot = Arc::clone(&self.lock_recent().slots.get(run)?.0);
        slot.cached_log()
    }

    /// Closes every log as soon as no call uses it. The next call opens the log again.
    pub(crate) fn close(&self) {
        let slots: Vec<Arc<RunSlot>> =
            self.lock_recent().slots.values().map(|(slot, _)| Arc::clone(slot)).collect();
        slots.iter().for_each(|slot| slot.drop_cached_log());
    }

    fn lock_recent(&self) -> MutexGuard<'_, RecentSlots> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentSlots {
    /// Drops the eighth of the slots that was unused for the longest time. The cost of finding these slots is spread over many insertions.
    fn drop_oldest(&mut self) {
        let mut ticks: Vec<u64> = self.slots.values().map(|(_, tick)| *tick).collect();
        let last = ticks.len() / 8;
        let (_, last, _) = ticks.select_nth_unstable(last);
        let last = *last;
        self.slots.retain(|_, (_, tick)| *tick > last);
    }
}

#[cfg(test)]
mod tests {
    use ferrata_store::RunId;

    use super::*;

    fn run(name: &str) -> RunKey {
        RunId::new(name).unwrap().into()
    }

    #[test]
    fn run_keeps_slot_until_others_displace_it() {
        for capacity in [1, 2, 8, 20] {
            let slots = RunSlots::new(NonZeroUsize::new(capacity).unwrap());
            let first = slots.slot_of(&run("first"));
            assert!(Arc::ptr_eq(&first, &slots.slot_of(&run("first"))));
            for other in 0..100 {
                slots.slot_of(&run(&other.to_string()));
                assert!(slots.lock_recent().slots.len() <= capacity);
                assert!(slots.lock_recent().slots.contains_key(&run(&other.to_string())));
            }
            assert!(!Arc::ptr_eq(&first, &slots.slot_of(&run("first"))));
        }
    }
}
