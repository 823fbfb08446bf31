//! Heartbeats of executors: one row for each executor, by the server's clock.

use std::time::Duration;

use ferrata_store::{ExecutorId, Result};

use crate::db::{PostgresDb, Sql, query};

/// Stores a heartbeat, and removes some heartbeats that expired at least an hour ago.
///
/// The removal skips rows that another removal has locked, so that no two removals wait for each other.
pub(crate) const SQL: &str = "\
    WITH swept AS (DELETE FROM {heartbeats} WHERE executor IN (\
        SELECT executor FROM {heartbeats} WHERE until < {now} - 3600000 AND executor <> $1 LIMIT 100 \
        FOR UPDATE SKIP LOCKED)) \
    INSERT INTO {heartbeats} (executor, until) VALUES ($1, {now} + $2) \
    ON CONFLICT (executor) DO UPDATE SET until = EXCLUDED.until";

/// Tests whether an executor is alive.
pub(crate) const ALIVE: &str = "SELECT 1 AS alive FROM {heartbeats} WHERE executor = $1 AND until > {now}";

/// The longest time to live: a thousand years. A longer value is cut to this, so that the sum stays in range.
const LONGEST_MS: i64 = 1_000 * 365 * 86_400_000;

pub(crate) async fn is_alive(db: &PostgresDb, sql: &Sql, executor: &ExecutorId) -> Result<bool> {
    let executor = *executor.as_uuid();
    let rows = db.read(|| query(sql).bind(executor)).await;
    rows.map(|rows| !rows.is_empty()).map_err(|failed| failed.into_error("store.is_alive"))
}

pub(crate) async fn run(db: &PostgresDb, sql: &Sql, executor: &ExecutorId, ttl: Duration) -> Result<()> {
    let ms = i64::try_from(ttl.as_millis()).unwrap_or(LONGEST_MS).min(LONGEST_MS);
    let beat = query(sql).bind(*executor.as_uuid()).bind(ms);
    db.write(beat).await.map(drop).map_err(|failed| failed.into_error("store.heartbeat"))
}
