//! Spaces of broken stores: memory with requested damage, and faults of reopening.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ferrata_store::{
    CheckpointStore, Clock, ExecutorId, FORMAT, MemoryStore, Record, RecordHeader, RecordId, RunAppend,
    RunFacts, RunHead, RunKey, Timestamp,
};
use ferrata_store_conformance::{Damage, Space, StoreFactory, TransactionTable};
use ferrata_testing::{LedgerStore, ManualClock};

use super::liar::Liar;
use super::lie::Lie;
use super::misplaced::Guard;
use super::transactions::Numbers;

/// Creates spaces of stores with the same fault.
pub(crate) struct LiarFactory(pub(crate) Lie);

#[async_trait::async_trait]
impl StoreFactory for LiarFactory {
    async fn fresh(&self) -> Box<dyn Space> {
        let clock = ManualClock::default();
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        let ledger = LedgerStore::new().with_runs(store.clone()).with_minimum(0);
        let shared = Shared { store, ledger, clock, lie: self.0, notes: Mutex::default() };
        Box::new(LiarSpace { shared: Arc::new(shared), opened: AtomicUsize::new(0) })
    }

    fn deadline(&self) -> Duration {
        // Everything is in memory, so a property that waits in vain should fail soon.
        Duration::from_secs(30)
    }
}

/// The data that all instances on a space share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: MemoryStore,
    /// The runs, with a table next to them.
    pub(crate) ledger: LedgerStore,
    pub(crate) clock: ManualClock,
    pub(crate) lie: Lie,
    notes: Mutex<Notes>,
}

/// The data that faults remember.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The facts and all acknowledged records of each run.
    pub(crate) written: HashMap<RunKey, (RunFacts, Vec<Record>)>,
    /// The purged runs, with their headers.
    pub(crate) purged: HashMap<RunKey, Vec<RecordHeader>>,
    /// The instance that acknowledged each record.
    pub(crate) acknowledged: HashMap<RecordId, usize>,
    /// The last append of each run.
    pub(crate) last_append: HashMap<RunKey, RunAppend>,
    /// Heads that are visible before their records.
    pub(crate) shown: HashMap<RunKey, RunHead>,
    /// Heads as they were first listed.
    pub(crate) listed: HashMap<RunKey, RunHead>,
    /// The last heartbeat of each process: its validity and the instance that received it.
    pub(crate) beats: HashMap<ExecutorId, (Duration, usize)>,
    /// Runs that were read, runs that are locked, and the run that an append is about to write.
    pub(crate) read: HashSet<RunKey>,
    pub(crate) locked: HashSet<RunKey>,
    pub(crate) current: Option<RunKey>,
    /// Runs with a pending purge.
    pub(crate) late: Vec<RunKey>,
    pub(crate) setups: usize,
    /// Runs whose records are stored under the other one's id.
    pub(crate) swapped: HashMap<RunKey, RunKey>,
    /// Runs whose last record is missing.
    pub(crate) tails: HashSet<RunKey>,
}

impl Shared {
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

struct LiarSpace {
    shared: Arc<Shared>,
    opened: AtomicUsize,
}

impl LiarSpace {
    /// The effect of a fault on a closed space.
    async fn reopened(&self) {
        let store = &self.shared.store;
        if self.shared.lie == Lie::LosesOnReopening {
            let runs: Vec<_> = self.shared.notes().written.keys().cloned().collect();
            for run in runs {
                store.tamper(&run, |records| drop(records.pop()));
            }
        }
        if self.shared.lie == Lie::RestoresOnReopening {
            let runs: Vec<_> = self.shared.notes().written.clone().into_iter().collect();
            for (run, (facts, records)) in runs {
                store.append(vec![RunAppend { run, expected: None, records, facts: Some(facts) }]).await;
            }
        }
    }
}

#[async_trait::async_trait]
impl Space for LiarSpace {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        let instance = self.opened.fetch_add(1, Ordering::SeqCst);
        // The space itself holds one reference. If there is no other, the space is opened again.
        if instance > 0 && Arc::strong_count(&self.shared) == 1 {
            self.reopened().await;
        }
        Arc::new(Guard(Liar::new(Arc::clone(&self.shared), instance)))
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let store = &self.shared.store;
        match damage {
            Damage::Body(seq) => store.tamper(run, |records| {
                for record in records.iter_mut().filter(|record| record.header.seq == seq) {
                    record.body = record.body.iter().map(|byte| byte ^ 1).collect();
                }
            }),
            Damage::NewerFormat(seq) => store.tamper(run, |records| {
                for record in records.iter_mut().filter(|record| record.header.seq == seq) {
                    record.header.format = FORMAT + 1;
                }
            }),
            Damage::Gone(seq) => store.tamper(run, |records| records.retain(|r| r.header.seq != seq)),
            Damage::Torn if self.shared.lie == Lie::ReadsTornTails => store.tamper(run, |records| {
                let Some(last) = records.last_mut() else { return };
                let half = last.body.slice(..last.body.len() / 2);
                *last = Record::seal(last.header.clone(), half).unwrap();
            }),
            // A correct store removes a torn record when it finds it.
            Damage::Torn => store.tamper(run, |records| drop(records.pop())),
            Damage::Tail => {
                self.shared.notes().tails.insert(run.clone());
                store.tamper(run, |records| drop(records.pop()))
            }
            Damage::Swapped(other) => {
                let mut records = Vec::new();
                store.tamper(run, |of_run| records.clone_from(of_run));
                store.tamper(&other, |of_other| std::mem::swap(&mut records, of_other));
                let pairs = [(run.clone(), other.clone()), (other, run.clone())];
                self.shared.notes().swapped.extend(pairs);
                store.tamper(run, |of_run| *of_run = records)
            }
            _ => false,
        }
    }

    async fn transaction_table(&self) -> Option<Box<dyn TransactionTable>> {
        Some(Box::new(Numbers::new(Arc::clone(&self.shared)).await))
    }

    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        self.shared.clock.advance(by);
        Some(self.shared.clock.now())
    }
}
