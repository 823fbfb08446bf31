//! The store passes the conformance suite on a real server.

mod common;

use ferrata_store_conformance::suite;

use common::Servers;

suite!(Servers, needs: store_test_nats = "set STORE_TEST_NATS_URL", without: [
    clock = "the time is the server's, and the server's is the machine's",
    swap = "the subject of a message is a part of it, and no index of this store leads to it",
    tail = "the last message of its subject is what says where a log ends",
    transactions = "the store has none",
]);

/// Compares more seeds with the model than the suite does for every store.
///
/// Guarantees: NATS-1.
#[test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
fn many_seeds_are_answered_like_the_model() {
    use ferrata_store_conformance::ModelTest;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for seed in 100..105 {
        let model = ModelTest::default().with_seed(seed).with_instances(2);
        runtime.block_on(model.run(&Servers));
    }
}
