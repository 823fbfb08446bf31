//! The memory store meets the contract.

use std::sync::Arc;

use async_trait::async_trait;
use ferrata_store::{CheckpointStore, MemoryStore};
use ferrata_store_conformance::{
    MemoryFactory, ModelTest, PROPERTIES, Property, Space, StoreFactory, check, suite,
};
use ferrata_testing::{FaultPlan, FaultStore};

suite!(MemoryFactory, without: [
    durable = "the memory store keeps nothing beyond the process",
    torn = "a record is never half in memory",
    swap = "no index leads to the logs",
    tail = "nothing beside the logs says where they end",
    transactions = "there is no database to write to",
]);

/// Compares more seeds with the model than the suite does for every store.
#[test]
fn many_seeds_are_answered_like_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 100..200 {
        runtime.block_on(ModelTest::default().with_seed(seed).with_instances(2).run(&MemoryFactory));
    }
}

/// A store that counts its calls, and delays them on request.
struct Counted {
    store: Arc<FaultStore<MemoryStore>>,
    is_slow: bool,
}

impl Counted {
    /// The number of calls that a property makes.
    fn calls(property: &Property, is_slow: bool) -> u64 {
        let store = Arc::new(FaultStore::new(MemoryStore::new(), FaultPlan::new()));
        check(&Self { store: Arc::clone(&store), is_slow }, property);
        store.operations()
    }
}

#[async_trait]
impl StoreFactory for Counted {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Self { store: Arc::clone(&self.store), is_slow: self.is_slow })
    }
}

#[async_trait]
impl Space for Counted {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::clone(&self.store) as _
    }

    fn is_brief(&self) -> bool {
        self.is_slow
    }
}

#[test]
fn longest_properties_have_short_form() {
    let longest = [
        "a_batch_of_two_hundred_runs_is_kept",
        "a_hundred_runs_grow_at_once",
        "many_instances_prepare_a_space_at_once",
        "random_calls_are_answered_like_the_model",
        "random_calls_to_instances_in_turn_are_answered_like_the_model",
        "sixteen_writers_make_one_line",
    ];
    let longest: Vec<_> = PROPERTIES.iter().filter(|property| longest.contains(&property.name())).collect();
    assert_eq!(longest.len(), 6);
    for property in longest {
        let (long, brief) = (Counted::calls(property, false), Counted::calls(property, true));
        assert!(brief < long * 2 / 3, "{property:?}: {brief} calls instead of {long}");
    }
}
