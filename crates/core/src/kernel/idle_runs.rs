//! Caches facts about runs that became idle in this process. A claim of the run needs these facts, and the log does not contain them.

use crate::claim::StartId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::RunKey;
use crate::record::RunFacts;

/// The capacity of each half of the cache. Together the halves use at most about 300 KiB. If a run is not in the cache, its next claim needs one more
/// call of the store.
const HALF: usize = 448;

/// A cache of the facts about the last runs that became idle in this process, each for one start of the run.
#[derive(Default)]
pub(crate) struct IdleRunCache {
    halves: Mutex<FactsHalves>,
}

/// The two halves of the cache. When the younger half is full, it replaces the older half.
#[derive(Default)]
struct FactsHalves {
    young: HashMap<RunKey, (StartId, Arc<RunFacts>)>,
    old: HashMap<RunKey, (StartId, Arc<RunFacts>)>,
}

impl IdleRunCache {
    pub(crate) fn remember(&self, run: RunKey, start_id: StartId, facts: Arc<RunFacts>) {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        if halves.young.len() >= HALF {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(run, (start_id, facts));
    }

    /// Removes the facts of a purged run.
    pub(crate) fn remove(&self, run: &RunKey) {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.young.remove(run);
        halves.old.remove(run);
    }

    /// Returns the facts about a run, if they belong to this start.
    pub(crate) fn get(&self, run: &RunKey, start_id: StartId) -> Option<Arc<RunFacts>> {
        let halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let known = halves.young.get(run).or_else(|| halves.old.get(run));
        known.filter(|(known, _)| *known == start_id).map(|(_, facts)| Arc::clone(facts))
    }

    /// Removes and returns the facts about a run, if they belong to this start.
    pub(crate) fn take(&self, run: &RunKey, start_id: StartId) -> Option<Arc<RunFacts>> {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let (young, old) = (halves.young.remove(run), halves.old.remove(run));
        young.or(old).filter(|(known, _)| *known == start_id).map(|(_, facts)| facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::{Fingerprint, WorkflowName};

    fn facts(created: i64) -> Arc<RunFacts> {
        let print = Fingerprint::of(b"");
        let workflow = WorkflowName::new("w").unwrap();
        RunFacts::new(workflow, "1", print, print, Timestamp::from_unix_ms(created)).unwrap().into()
    }

    fn start(id: u128) -> StartId {
        StartId::from_uuid(uuid::Uuid::from_u128(id))
    }

    #[test]
    fn idle_cache_returns_facts_of_start_once() {
        let (resting, run) = (IdleRunCache::default(), RunKey::try_from("r").unwrap());
        let (first, second) = (start(1), start(2));
        resting.remember(run.clone(), first, facts(1));
        assert_eq!(resting.take(&run, second), None, "another start with other facts");
        resting.remember(run.clone(), first, facts(1));
        resting.remember(run.clone(), second, facts(2));
        assert_eq!((resting.get(&run, first), resting.get(&run, second)), (None, Some(facts(2))));
        assert_eq!(resting.take(&run, second), Some(facts(2)));
        assert_eq!(resting.take(&run, second), None);
    }

    #[test]
    fn idle_cache_keeps_bounded_number_of_runs() {
        let resting = IdleRunCache::default();
        let run = |number: usize| RunKey::try_from(&*format!("r{number}")).unwrap();
        for number in 0..3 * HALF {
            resting.remember(run(number), StartId::NONE, facts(0));
        }
        let halves = resting.halves.lock().unwrap();
        let places = [&halves.young, &halves.old].map(HashMap::capacity);
        assert_eq!(places, [HALF; 2], "a table with spare capacity is twice as large");
        drop(halves);
        let known = (0..3 * HALF).filter(|&number| resting.take(&run(number), StartId::NONE).is_some());
        assert_eq!(known.collect::<Vec<_>>(), (HALF..3 * HALF).collect::<Vec<_>>());
    }
}
