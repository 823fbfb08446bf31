//! The store passes the conformance suite on a real server and on a real cluster.

mod common;

mod single {
    use ferrata_store_conformance::suite;
    use ferrata_test_servers::Service;

    use super::common::Servers;

    suite!(Servers(Service::Redis), needs: store_test_redis = "set STORE_TEST_REDIS_URL", without: [
        clock = "the time is the server's, and the server's is the machine's",
        tail = "the length of its list is what says where a log ends",
        transactions = "the store has none",
    ]);
}

mod cluster {
    use ferrata_store_conformance::suite;
    use ferrata_test_servers::Service;

    use super::common::Servers;

    suite!(Servers(Service::RedisCluster), needs: store_test_redis_cluster = "set STORE_TEST_REDIS_CLUSTER_URL", without: [
        clock = "the time is the servers', and theirs is the machine's",
        tail = "the length of its list is what says where a log ends",
        transactions = "the store has none",
    ]);
}

/// Compares more seeds with the model than the suite does for every store.
///
/// Guarantees: REDIS-1.
#[test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
fn many_seeds_are_answered_like_the_model() {
    use ferrata_store_conformance::ModelTest;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for seed in 100..110 {
        let model = ModelTest::default().with_seed(seed).with_instances(2);
        runtime.block_on(model.run(&common::Servers(ferrata_test_servers::Service::Redis)));
    }
}
