//! The store keeps the contract on a real server, as the suite for every store states it.
#![expect(clippy::unwrap_used, reason = "a space that cannot do its work fails the test")]

mod common;

use std::sync::Arc;

use async_trait::async_trait;
use common::Schema;
use ferrata_core::RunKey;
use ferrata_core::store::CheckpointStore;
use ferrata_store_conformance::{Damage, ModelTest, Space, StoreFactory, suite};
use sqlx::Connection as _;

struct Server;

struct Place(Schema);

#[async_trait]
impl StoreFactory for Server {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Place(Schema::new()))
    }
}

#[async_trait]
impl Space for Place {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(self.0.store())
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let its = "run = (SELECT key FROM {schema}.runs WHERE tenant = $1 AND run = $2)";
        let sql = match damage {
            Damage::Body(seq) => format!(
                "UPDATE {{schema}}.records SET body = set_byte(body, 0, get_byte(body, 0) # 1) WHERE {its} AND seq = {seq}"
            ),
            Damage::Gone(seq) => format!("DELETE FROM {{schema}}.records WHERE {its} AND seq = {seq}"),
            // As a file system may leave it that lost a page after the power failed.
            Damage::Torn => format!(
                "UPDATE {{schema}}.records SET body = substr(body, 1, octet_length(body) / 2) \
                 WHERE {its} AND seq = (SELECT max(seq) FROM {{schema}}.records WHERE {its})"
            ),
            Damage::NewerFormat(seq) => {
                format!("UPDATE {{schema}}.records SET format = format + 1 WHERE {its} AND seq = {seq}")
            }
            _ => return false,
        };
        let mut connection = self.0.connection().await;
        let sql = sqlx::AssertSqlSafe(sql.replace("{schema}", &self.0.name));
        let query = sqlx::query(sql).bind(run.tenant.as_str()).bind(run.run.as_str());
        let done = query.execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        done.rows_affected() == 1
    }

    async fn remove(&self) {
        self.0.remove().await;
    }
}

suite!(Server, needs: store_test_postgres = "set STORE_TEST_POSTGRES_URL", without: [
    clock = "the time is the server's",
]);

/// More seeds than the suite tries on every store.
#[test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
fn more_seeds_are_answered_like_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 100..105 {
        runtime.block_on(ModelTest::default().with_seed(seed).with_instances(2).run(&Server));
    }
}
