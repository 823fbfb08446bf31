//! The store behind PgBouncer with transaction pooling and the settings of the guide, with and without prepared statements.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_store::CheckpointStore;
use ferrata_store_conformance::{ModelTest, Space, StoreFactory};
use ferrata_store_postgres::PostgresStore;
use ferrata_test_servers::{PgBouncer, Service, service_url};
use tokio::task::{JoinSet, spawn_blocking};

use crate::common::Schema;
use crate::transactional_nodes::{Plan, graph, is_booked_once_by, stage};

/// One with two connections to the server that the tests share.
async fn pooler() -> PgBouncer {
    spawn_blocking(|| PgBouncer::before(&service_url(Service::Postgres), 2).unwrap()).await.unwrap()
}

/// How stores go through it: with prepared statements, or without.
fn ways(pooler: &PgBouncer) -> Vec<Way> {
    let ways = [false, true].into_iter().filter(|prepared| !prepared || pooler.keeps_statements());
    ways.map(|prepared| Way { pooler: pooler.url(), prepared }).collect()
}

#[derive(Clone)]
struct Way {
    pooler: String,
    prepared: bool,
}

impl Way {
    /// A store with the settings of the guide.
    fn store(&self, schema: &Schema) -> PostgresStore {
        let options = schema.options().with_prepared(self.prepared).with_listen_url(&schema.url);
        PostgresStore::from_url(&self.pooler, options).unwrap()
    }
}

struct Place {
    way: Way,
    schema: Schema,
}

#[async_trait]
impl StoreFactory for Way {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Place { way: self.clone(), schema: Schema::new() })
    }
}

#[async_trait]
impl Space for Place {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(self.way.store(&self.schema))
    }

    async fn remove(&self) {
        self.schema.remove().await;
    }
}

/// Random calls of two stores at once, over fewer connections than the stores have, are answered like the model.
///
/// Guarantees: POSTGRES-3.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn random_calls_through_pooler_match_model() {
    let pooler = pooler().await;
    let calls = ModelTest::default().with_seed(7).with_instances(2).with_calls(100);
    for way in ways(&pooler) {
        calls.run(&way).await;
    }
    spawn_blocking(move || drop(pooler)).await.unwrap();
}

/// Runs of transactional nodes, more than the pooler has connections, some of whose statements give way.
///
/// Guarantees: POSTGRES-4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn transactional_nodes_behind_a_pooler_are_done_once() {
    let pooler = pooler().await;
    for way in ways(&pooler) {
        let (schema, plan) = stage().await;
        for (run, raises) in
            [("calm", None), ("deadlock", Some((1, "40P01", 2))), ("serial", Some((2, "40001", 2)))]
        {
            let plan = Plan { raises, attempts: Arc::default(), ..plan.clone() };
            is_booked_once_by(&schema, way.store(&schema), plan, run).await;
        }
        // More at once than the pooler, or the store, has connections.
        schema.execute("TRUNCATE {schema}.booked").await;
        let runtime = Runtime::builder(way.store(&schema)).resource(plan).build().await.unwrap();
        let mut bookings = JoinSet::new();
        for _ in 0..6 {
            let runtime = runtime.clone();
            bookings.spawn(async move { runtime.start(&graph(), Context::new()).await?.wait().await });
        }
        for outcome in bookings.join_all().await {
            assert!(matches!(outcome, Ok(Outcome::Completed(_))), "{outcome:?}");
        }
        assert_eq!(schema.execute("DELETE FROM {schema}.booked").await, 6 * 9);
        runtime.shutdown(Duration::ZERO).await.unwrap();
        schema.remove().await;
    }
    spawn_blocking(move || drop(pooler)).await.unwrap();
}
