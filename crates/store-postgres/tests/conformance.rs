//! The store passes the conformance suite on a real server.
#![expect(clippy::unwrap_used, reason = "a space that cannot do its work fails the test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use common::Schema;
use common::numbers::Numbers;
use ferrata_store::{CheckpointStore, RunKey, Timestamp};
use ferrata_store_conformance::{
    Damage, Group, ModelTest, PROPERTIES, Property, Space, StoreFactory, TransactionTable, check, suite,
};
use ferrata_store_postgres::PostgresStore;
use sqlx::{Connection as _, Row as _};

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
        if let Damage::Swapped(other) = damage {
            let key = |run: &RunKey| {
                format!(
                    "(SELECT key FROM {{schema}}.runs WHERE tenant = '{}' AND run = '{}')",
                    run.tenant, run.run
                )
            };
            // By way of a key that nothing has.
            let moves =
                [(key(run), "-2".to_owned()), (key(&other), key(run)), ("-2".to_owned(), key(&other))];
            let moves = moves
                .map(|(from, to)| format!("UPDATE {{schema}}.records SET run = {to} WHERE run = {from}"));
            return self.0.execute(&moves.join("; ")).await > 0;
        }
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
            Damage::Tail => format!(
                "DELETE FROM {{schema}}.records WHERE {its} AND seq = (SELECT max(seq) FROM {{schema}}.records WHERE {its})"
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

    async fn transaction_table(&self) -> Option<Box<dyn TransactionTable>> {
        Some(Box::new(Numbers::new(&self.0).await))
    }

    async fn remove(&self) {
        self.0.remove().await;
    }
}

suite!(Server, needs: store_test_postgres = "set STORE_TEST_POSTGRES_URL", without: [
    clock = "the time is the server's; see heartbeats_and_timers_follow_the_servers_clock",
    tail = "the last record is the head; see what_came_since_ends_with_the_head",
]);

struct Frozen;

/// A schema in which the server's clock stands still until it is moved.
///
/// The store asks for `statement_timestamp()`, which a session finds in this schema before the server's own.
struct FrozenPlace(Place);

#[async_trait]
impl StoreFactory for Frozen {
    async fn fresh(&self) -> Box<dyn Space> {
        let schema = Schema::new();
        schema
            .execute(
                "CREATE SCHEMA {schema}; CREATE TABLE {schema}.clock AS SELECT clock_timestamp() AS now;
                 CREATE FUNCTION {schema}.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
                     AS 'SELECT now FROM {schema}.clock'",
            )
            .await;
        Box::new(FrozenPlace(Place(schema)))
    }
}

#[async_trait]
impl Space for FrozenPlace {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        let schema = &self.0.0;
        let joint = if schema.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{joint}options=-c%20search_path%3D{},pg_catalog", schema.url, schema.name);
        Arc::new(PostgresStore::from_url(&url, schema.options()).unwrap())
    }

    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        let sql = format!(
            "UPDATE {}.clock SET now = now + $1 * interval '1 millisecond' \
             RETURNING floor(extract(epoch FROM now) * 1000)::bigint",
            self.0.0.name
        );
        let mut connection = self.0.0.connection().await;
        let moved = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(i64::try_from(by.as_millis()).unwrap());
        let now = moved.fetch_one(&mut connection).await.unwrap().get(0);
        connection.close().await.unwrap();
        Some(Timestamp::from_unix_ms(now))
    }

    async fn remove(&self) {
        self.0.remove().await;
    }
}

/// What the suite says of heartbeats and timers, to the millisecond, with a clock that the test moves.
///
/// Guarantees: POSTGRES-2.
#[test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
fn heartbeats_and_timers_follow_the_servers_clock() {
    let of_the_clock = |property: &&Property| {
        property.group() == Group::Clock || ["heartbeat", "due"].contains(&property.topic())
    };
    let properties: Vec<_> = PROPERTIES.iter().filter(of_the_clock).collect();
    assert!(properties.iter().filter(|property| property.group() == Group::Clock).count() >= 2);
    for property in properties {
        check(&Frozen, property);
    }
}

/// More seeds than the suite tries on every store.
///
/// Guarantees: POSTGRES-3.
#[test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
fn more_seeds_are_answered_like_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 100..105 {
        runtime.block_on(ModelTest::default().with_seed(seed).with_instances(2).run(&Server));
    }
}
