//! The registry of the runs that this process drives, with the signals that stop their drivers.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;

use crate::compact::queue::{Receiver, Sender, queue};
use crate::error::{Error, ErrorKind, Result};
use crate::id::RunKey;
use crate::kernel::child_starts::ChildStarts;
use crate::kernel::commands::{DriverCommand, StopSignal};
use crate::kernel::end_waiters::EndWaiters;
use crate::kernel::run_change::{LeftRun, RunChange};

/// The drivers of this process, by run.
pub(crate) struct DriverRegistry {
    /// The channel to the driver of each run, and whether recovery claimed the run.
    active: Mutex<BTreeMap<RunKey, (Sender<DriverCommand>, bool)>>,
    /// The number of drivers.
    count: watch::Sender<usize>,
    stop: watch::Sender<StopSignal>,
    /// Waiters for the end of a run in this process.
    pub(crate) end_waiters: EndWaiters,
    /// The starts of children that are in progress in this process.
    pub(crate) starts: ChildStarts,
    /// The channels of libraries that are notified of the changes that this process makes to runs.
    listeners: Mutex<Vec<UnboundedSender<RunChange>>>,
    doubts: Mutex<UnknownOutcomes>,
}

/// Starts and claims with unknown outcome, by number. A run may have several, even in one start.
#[derive(Default)]
pub(crate) struct UnknownOutcomes {
    open: BTreeMap<u64, RunKey>,
    next: u64,
}

impl UnknownOutcomes {
    /// Returns the next number.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Adds a start or claim with unknown outcome, and returns its number.
    pub(crate) fn add(&mut self, run: &RunKey) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, run.clone());
        number
    }

    /// Returns whether the entry with this number exists.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// Removes the entries of a run whose number is smaller than `before`.
    pub(crate) fn remove_before(&mut self, run: &RunKey, before: u64) {
        self.open.retain(|number, doubted| *number >= before || doubted != run);
    }
}

impl Default for DriverRegistry {
    fn default() -> Self {
        Self {
            active: Mutex::default(),
            count: watch::channel(0).0,
            stop: watch::channel(StopSignal::default()).0,
            end_waiters: EndWaiters::default(),
            starts: ChildStarts::default(),
            listeners: Mutex::default(),
            doubts: Mutex::default(),
        }
    }
}

impl DriverRegistry {
    fn active(&self) -> MutexGuard<'_, BTreeMap<RunKey, (Sender<DriverCommand>, bool)>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the starts and claims with unknown outcome.
    pub(crate) fn lock_unknown_outcomes(&self) -> MutexGuard<'_, UnknownOutcomes> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the driver of a run. Returns the receiver of its commands.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Conflict`] if this process drives the run already.
    pub(crate) fn enter(&self, run: &RunKey, is_recovered: bool) -> Result<Receiver<DriverCommand>> {
        let (sender, control) = queue();
        let mut active = self.active();
        if active.contains_key(run) {
            let message = "this process already drives the run; use the handle that its start returned";
            return Err(Error::new(ErrorKind::Conflict, message).with_run(run));
        }
        active.insert(run.clone(), (sender, is_recovered));
        self.count.send_modify(|count| *count += 1);
        Ok(control)
    }

    /// Removes the driver of a run.
    pub(crate) fn unregister(&self, left: &LeftRun) {
        self.active().remove(&left.run);
        self.count.send_modify(|count| *count -= 1);
        self.publish(|| RunChange::Left(left.clone()));
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<UnboundedSender<RunChange>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a stream of the changes that this process makes to runs after this call.
    pub(crate) fn news(&self) -> UnboundedReceiver<RunChange> {
        let (listener, news) = mpsc::unbounded_channel();
        self.listeners().push(listener);
        news
    }

    /// Returns whether a library listens to changes. Only then it is worth reading the store to build a change.
    pub(crate) fn has_listeners(&self) -> bool {
        !self.listeners().is_empty()
    }

    /// Sends a change to the libraries that listen to changes.
    pub(crate) fn publish(&self, news: impl Fn() -> RunChange) {
        self.listeners().retain(|listener| listener.send(news()).is_ok());
    }

    /// Returns whether recovery claimed the run. If so, no caller has a handle.
    pub(crate) fn is_recovered(&self, run: &RunKey) -> bool {
        self.active().get(run).is_some_and(|(_, is_recovered)| *is_recovered)
    }

    /// Returns the sender to the driver of a run, if this process drives it.
    pub(crate) fn driver(&self, run: &RunKey) -> Option<Sender<DriverCommand>> {
        self.active().get(run).map(|(driver, _)| driver.clone())
    }

    /// Returns the number of drivers, as a channel that notifies of changes.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Returns the stop signal of all drivers.
    pub(crate) fn stop(&self) -> StopSignal {
        *self.stop.borrow()
    }

    /// Returns the stop signal of all drivers, as a channel that notifies of changes. It closes when the runtime is dropped.
    pub(crate) fn watch_stop(&self) -> watch::Receiver<StopSignal> {
        self.stop.subscribe()
    }

    /// Changes the stop signal and notifies every driver, in the order of their runs.
    pub(crate) fn change_stop(&self, change: impl FnOnce(&mut StopSignal)) {
        self.stop.send_modify(change);
        for (driver, _) in self.active().values() {
            // The driver may have ended.
            let _ = driver.send(DriverCommand::Stop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::commands::RuntimePhase;

    fn run(id: &str) -> RunKey {
        RunKey::try_from(id).unwrap()
    }

    #[test]
    fn a_run_has_one_driver_at_a_time() {
        let registry = DriverRegistry::default();
        let count = registry.count();
        let first = registry.enter(&run("a"), false).unwrap();
        assert_eq!(registry.enter(&run("a"), false).map(|_| ()).unwrap_err().kind(), ErrorKind::Conflict);
        let _other = registry.enter(&run("b"), true).unwrap();
        assert_eq!(*count.borrow(), 2);
        drop(first);
        registry.unregister(&LeftRun { run: run("a"), facts: None, ended_at: None });
        assert!(registry.driver(&run("a")).is_none() && registry.driver(&run("b")).is_some());
        assert!(registry.enter(&run("a"), false).is_ok());
    }

    #[test]
    fn every_driver_is_told_of_a_stop() {
        let registry = DriverRegistry::default();
        let mut drivers = ["a", "b"].map(|id| registry.enter(&run(id), false).unwrap());
        registry.change_stop(|stop| stop.phase = RuntimePhase::Draining);
        assert_eq!(registry.stop().phase, RuntimePhase::Draining);
        assert!(drivers.iter_mut().all(|driver| matches!(driver.try_recv(), Some(DriverCommand::Stop))));
    }
}
