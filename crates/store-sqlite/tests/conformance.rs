//! The store passes the conformance suite.
#![expect(clippy::unwrap_used, reason = "a space that cannot do its work fails the test")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{CheckpointStore, Clock, FORMAT, RunKey, Timestamp};
use ferrata_store_conformance::{Damage, ModelTest, Space, StoreFactory, TransactionTable, suite};
use ferrata_store_sqlite::{SqliteOptions, SqliteStore};
use ferrata_testing::ManualClock;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tempfile::TempDir;

struct Files;

/// A separate folder for each test, and the clock of its instances.
struct Place {
    directory: TempDir,
    clock: ManualClock,
}

impl Place {
    fn path(&self) -> PathBuf {
        self.directory.path().join("runs.db")
    }
}

#[async_trait]
impl StoreFactory for Files {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Place { directory: tempfile::tempdir().unwrap(), clock: ManualClock::default() })
    }
}

#[async_trait]
impl Space for Place {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        // The suite tests concurrent writers, and `power` tests the loss of unsynced data.
        let options = SqliteOptions::default().with_synchronous(ferrata_store_sqlite::Synchronous::Normal);
        Arc::new(SqliteStore::open(self.path(), options).unwrap().with_clock(Arc::new(self.clock.clone())))
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let options = SqliteConnectOptions::new().filename(self.path());
        let mut connection = options.connect().await.unwrap();
        if let Damage::Swapped(other) = damage {
            // Swap by way of a key that no run has.
            let swap = "CREATE TEMP TABLE swap AS SELECT key, key AS other FROM ferrata_runs LIMIT 0;
                INSERT INTO swap SELECT a.key, b.key FROM ferrata_runs a, ferrata_runs b
                    WHERE (a.tenant, a.run, b.tenant, b.run) = (?1, ?2, ?3, ?4);
                UPDATE ferrata_records SET run = -1 WHERE run = (SELECT key FROM swap);
                UPDATE ferrata_records SET run = (SELECT key FROM swap) WHERE run = (SELECT other FROM swap);
                UPDATE ferrata_records SET run = (SELECT other FROM swap) WHERE run = -1;";
            let names = [run, &other].into_iter().flat_map(|run| [run.tenant.as_str(), run.run.as_str()]);
            let swap = names.fold(sqlx::query(swap), |query, name| query.bind(name.to_owned()));
            let swapped = swap.execute(&mut connection).await.unwrap().rows_affected();
            connection.close().await.unwrap();
            return swapped > 0;
        }
        let its = "run = (SELECT key FROM ferrata_runs WHERE tenant = ?1 AND run = ?2)";
        let find = match damage {
            Damage::Body(seq) | Damage::Gone(seq) | Damage::NewerFormat(seq) => seq.to_string(),
            Damage::Torn | Damage::Tail => format!("(SELECT max(seq) FROM ferrata_records WHERE {its})"),
            _ => return false,
        };
        let find =
            format!("SELECT run, seq, base, header, body FROM ferrata_records WHERE {its} AND seq = {find}");
        let find = sqlx::query(sqlx::AssertSqlSafe(find)).bind(run.tenant.as_str()).bind(run.run.as_str());
        let row = find.fetch_one(&mut connection).await.unwrap();
        let (key, seq, base): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let (header, mut body): (String, Vec<u8>) = (row.get(3), row.get(4));
        let change = match damage {
            Damage::Gone(_) | Damage::Tail => {
                sqlx::query("DELETE FROM ferrata_records WHERE run = ? AND seq = ?")
            }
            Damage::NewerFormat(_) => {
                let newer = header.replacen(&format!("\"v\":{FORMAT}"), &format!("\"v\":{}", FORMAT + 1), 1);
                let sum = crc32c::crc32c(format!("{run} {seq} {base} {newer}").as_bytes());
                sqlx::query("UPDATE ferrata_records SET header = ?, sum = ? WHERE run = ? AND seq = ?")
                    .bind(newer)
                    .bind(i64::from(sum))
            }
            damage => {
                match damage {
                    // A file system may leave this if it lost a page at a power failure.
                    Damage::Torn => body.truncate(body.len() / 2),
                    _ => body[0] ^= 1,
                }
                sqlx::query("UPDATE ferrata_records SET body = ? WHERE run = ? AND seq = ?").bind(body)
            }
        };
        let done = change.bind(key).bind(seq).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        done.rows_affected() == 1
    }

    async fn transaction_table(&self) -> Option<Box<dyn TransactionTable>> {
        Some(Box::new(common::Numbers::new(&self.path()).await))
    }

    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        self.clock.advance(by);
        Some(self.clock.now())
    }
}

suite!(Files, without: [
    notices = "no other process is told when the file changes",
]);

/// Compares more seeds with the model than the suite does for every store.
///
/// Guarantees: SQLITE-14.
#[test]
fn more_seeds_are_answered_like_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 100..110 {
        runtime.block_on(ModelTest::default().with_seed(seed).with_instances(2).run(&Files));
    }
}
