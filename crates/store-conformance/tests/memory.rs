//! The memory store keeps the contract.

use ferrata_store_conformance::{MemoryFactory, ModelTest, suite};

suite!(MemoryFactory, without: [
    durable = "the memory store keeps nothing beyond the process",
    torn = "a record is never half in memory",
]);

/// More seeds than the suite tries on every store.
#[test]
fn many_seeds_are_answered_like_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 100..200 {
        runtime.block_on(ModelTest::default().with_seed(seed).with_instances(2).run(&MemoryFactory));
    }
}
