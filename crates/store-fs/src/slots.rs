//! The logs this instance holds open: at most so many, those used last.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use ferrata_store::RunKey;

use crate::log::Log;

/// The slot of one run: the order of its writers, and the cached log.
///
/// It only saves work. Two slots of one run, as after one was dropped from the cache while in use, keep apart by the lock
/// on the file as two processes do.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    turn: Mutex<()>,
    log: Mutex<Option<Arc<Log>>>,
}

impl Slot {
    /// Waits until no other caller of this instance writes to the run.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data. The next writer checks a panicking writer's remains under the file's lock.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, if no other does just now.
    pub(crate) fn turn_now(&self) -> Option<MutexGuard<'_, ()>> {
        match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn known(&self) -> Option<Arc<Log>> {
        self.log().clone()
    }

    pub(crate) fn keep(&self, log: Log) {
        *self.log() = Some(Arc::new(log));
    }

    pub(crate) fn forget(&self) {
        *self.log() = None;
    }

    fn log(&self) -> MutexGuard<'_, Option<Arc<Log>>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slots of the runs used last.
#[derive(Debug)]
pub(crate) struct Slots {
    capacity: NonZeroUsize,
    used: Mutex<RecentSlots>,
}

#[derive(Debug, Default)]
struct RecentSlots {
    slots: HashMap<RunKey, (Arc<Slot>, u64)>,
    tick: u64,
}

impl Slots {
    pub(crate) fn new(capacity: NonZeroUsize) -> Self {
        Self { capacity, used: Mutex::default() }
    }

    /// Returns the run's slot, making one if there is none.
    pub(crate) fn of(&self, run: &RunKey) -> Arc<Slot> {
        let mut used = self.used();
        used.tick += 1;
        let tick = used.tick;
        if let Some((slot, last)) = used.slots.get_mut(run) {
            *last = tick;
            return Arc::clone(slot);
        }
        if used.slots.len() >= self.capacity.get() {
            used.drop_oldest();
        }
        let slot = Arc::<Slot>::default();
        used.slots.insert(run.clone(), (Arc::clone(&slot), tick));
        slot
    }

    /// Returns what is known of the run's log, if anything is.
    pub(crate) fn known(&self, run: &RunKey) -> Option<Arc<Log>> {
        let slot = Arc::clone(&self.used().slots.get(run)?.0);
        slot.known()
    }

    /// Closes every log once its active call ends. The next call opens it again.
    pub(crate) fn close(&self) {
        let slots: Vec<Arc<Slot>> = self.used().slots.values().map(|(slot, _)| Arc::clone(slot)).collect();
        slots.iter().for_each(|slot| slot.forget());
    }

    fn used(&self) -> MutexGuard<'_, RecentSlots> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentSlots {
    /// Drops the eighth that was not used for the longest time, so that finding it is paid for by many.
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
    fn a_run_keeps_its_slot_until_others_were_used_more() {
        for capacity in [1, 2, 8, 20] {
            let slots = Slots::new(NonZeroUsize::new(capacity).unwrap());
            let first = slots.of(&run("first"));
            assert!(Arc::ptr_eq(&first, &slots.of(&run("first"))));
            for other in 0..100 {
                slots.of(&run(&other.to_string()));
                assert!(slots.used().slots.len() <= capacity);
                assert!(slots.used().slots.contains_key(&run(&other.to_string())));
            }
            assert!(!Arc::ptr_eq(&first, &slots.of(&run("first"))));
        }
    }
}
