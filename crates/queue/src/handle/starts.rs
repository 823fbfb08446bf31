//! The starts in this process that are in progress.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ferrata_core::runtime::Runtime;
use ferrata_core::{ExecutorId, RunKey, Timestamp};

use super::{QueueCommand, QueueHandle, release_slot_of_head};
use crate::state::{EnqueueUndo, FoundRun, OverStart, QueueOp, StartId};

/// Maximum number of runs whose starts with unknown outcome are remembered.
const MANY: usize = 4_096;

/// The undo data of the latest start of each run, until that start finishes. An earlier start of the same run then undoes nothing, because the entry
/// may belong to the latest start.
#[derive(Default)]
pub(super) struct LatestStarts(HashMap<String, Weak<EnqueueUndo>>);

impl LatestStarts {
    /// Records that a new start of a run begins, and forgets the undo data of the previous start.
    pub(super) fn note_start(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Stores the changes that the latest start of a run made in the queue.
    pub(super) fn note_undo(&mut self, id: String, entered: EnqueueUndo) -> Arc<EnqueueUndo> {
        let entered = Arc::new(entered);
        self.0.insert(id, Arc::downgrade(&entered));
        entered
    }

    /// Returns whether this is the latest start of its run. Only the latest start undoes its changes when it is rejected.
    pub(super) fn is_last(&self, id: &str, entered: &Arc<EnqueueUndo>) -> bool {
        self.0.get(id).is_some_and(|last| last.as_ptr() == Arc::as_ptr(entered))
    }

    /// Removes the data of starts that have finished.
    pub(super) fn remove_ended(&mut self) {
        self.0.retain(|_, entered| entered.strong_count() > 0);
    }
}

/// Generates start ids: no two starts of a run in this process get the same id.
#[derive(Debug, Default)]
pub(super) struct StartIds(Mutex<StartIdState>);

#[derive(Debug, Default)]
struct StartIdState {
    /// The latest time at which a start was requested, and the runs that were started at that time.
    latest: Timestamp,
    since: HashSet<String>,
    others: u64,
    /// Starts with unknown outcome, by run.
    doubts: HashMap<String, Vec<StartId>>,
}

impl StartIds {
    fn lock_state(&self) -> MutexGuard<'_, StartIdState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a new unique start of a run, and the starts whose entries it takes over.
    pub(super) fn next_start(&self, id: &str, by: ExecutorId, since: Timestamp) -> (StartId, Vec<StartId>) {
        let mut known = self.lock_state();
        if since > known.latest {
            known.latest = since;
            known.since.clear();
        }
        // If the clock was set back, it is unknown which runs were started at that time.
        let is_first = since == known.latest && known.since.insert(id.to_owned());
        known.others += u64::from(!is_first);
        let nth = if is_first { 0 } else { known.others };
        (StartId { by, since, nth }, known.doubts.remove(id).unwrap_or_default())
    }

    /// Records starts with unknown outcome. The next start of the run takes over their entries. If there are too many, the queue itself resolves the
    /// others.
    pub(super) fn add_unknown(&self, id: String, start_ids: Vec<StartId>) {
        let mut known = self.lock_state();
        if known.doubts.len() >= MANY {
            known.doubts.clear();
        }
        known.doubts.entry(id).or_default().extend(start_ids);
    }
}

/// A start in progress. If it is dropped before its outcome is confirmed, its outcome counts as unknown.
pub(crate) struct PendingStart {
    desk: Arc<QueueHandle>,
    id: String,
    start_id: StartId,
    doubts: Vec<StartId>,
    is_settled: bool,
}

impl PendingStart {
    pub(crate) fn new(desk: &Arc<QueueHandle>, id: &str, by: ExecutorId, since: Timestamp) -> Self {
        let (start_id, doubts) = desk.start_ids.next_start(id, by, since);
        Self { desk: Arc::clone(desk), id: id.to_owned(), start_id, doubts, is_settled: false }
    }

    pub(crate) fn start_id(&self) -> StartId {
        self.start_id
    }

    /// Returns the starts with unknown outcome whose entries this start takes over.
    pub(crate) fn replaced_starts(&self) -> Vec<StartId> {
        self.doubts.clone()
    }

    /// Assigns the entry to the run in the store, which another start may have recorded. Releases the slot of a run that has ended. If the start
    /// found the run of another start, the queue forgets its `once` key.
    pub(crate) async fn assign_found(
        mut self,
        runtime: &Runtime,
        run: &RunKey,
        entered: Option<Arc<EnqueueUndo>>,
    ) {
        // On an error, the queue resolves the start later.
        let Ok(head) = runtime.head(run).await else { return };
        self.is_settled = true;
        let start_id = head.as_ref().map(|head| StartId::of(&head.facts));
        let is_others = start_id != Some(Some(self.start_id));
        // A run recorded by an older program names no start, so it matches every start.
        if is_others && start_id != Some(None) {
            if let Some(entered) = entered.filter(|entered| entered.has_once()) {
                self.desk.send(QueueCommand::Do { op: QueueOp::UndoOnce(entered), reply: None });
            }
            let found = head.as_ref().filter(|head| !head.status.is_finished()).and_then(FoundRun::of_holder);
            self.leave_entry(found);
        }
        if let Some(head) = head {
            if let Some(start) = StartId::of(&head.facts) {
                self.desk.note_recorded(&self.id, start);
            }
            release_slot_of_head(runtime, &head).await;
        }
    }

    /// Removes this start from its entry, because it records no run.
    pub(crate) fn withdraw(mut self) {
        self.is_settled = true;
        self.leave_entry(None);
    }

    /// Records that the run of this start is in the store, and marks the outcome as known.
    pub(crate) fn confirm_recorded(self) {
        self.desk.note_recorded(&self.id, self.start_id);
        self.confirm_outcome();
    }

    /// Marks the outcome as known, so that dropping the value does nothing.
    pub(crate) fn confirm_outcome(mut self) {
        self.is_settled = true;
    }

    fn leave_entry(&self, found: Option<FoundRun>) {
        let op =
            QueueOp::Settle { id: self.id.clone(), gone: vec![OverStart::without_run(self.start_id)], found };
        self.desk.send(QueueCommand::Do { op, reply: None });
    }
}

impl Drop for PendingStart {
    fn drop(&mut self) {
        if !self.is_settled {
            let mut start_ids = std::mem::take(&mut self.doubts);
            start_ids.push(self.start_id);
            self.desk.start_ids.add_unknown(std::mem::take(&mut self.id), start_ids);
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrata_core::{IdSource as _, RandomIds};

    use super::*;

    #[test]
    fn start_ids_differ_regardless_of_clock() {
        let (start_ids, me) =
            (StartIds::default(), ExecutorId::from_uuid(RandomIds::new().next(Timestamp::default())));
        let mut all = HashSet::new();
        for ms in [5, 5, 6, 5, 6, 6, 4, 5, 6, 7, 7] {
            for id in ["run:one", "run:two"] {
                let (start_id, _) = start_ids.next_start(id, me, Timestamp::from_unix_ms(ms));
                assert!(all.insert((id, start_id.to_string())), "{start_id} appears twice");
                assert_eq!(start_id.to_string().parse(), Ok(start_id));
            }
        }
        let of = |id| all.iter().filter(|(of, start_id)| *of == id && start_id.ends_with(".0")).count();
        assert_eq!(
            (of("run:one"), of("run:two")),
            (3, 3),
            "the first start of each moment needs no space in the queue"
        );
    }

    #[test]
    fn start_takes_slots_of_unknown_starts_once() {
        let (start_ids, me) =
            (StartIds::default(), ExecutorId::from_uuid(RandomIds::new().next(Timestamp::default())));
        let next = || start_ids.next_start("run:one", me, Timestamp::from_unix_ms(1));
        let (one, _) = next();
        start_ids.add_unknown("run:one".to_owned(), vec![one]);
        assert_eq!(next().1, [one]);
        assert_eq!(next().1, []);
    }
}
