//! The SQL views for people and tools.

use ferrata_store::{CheckpointStore as _, Epoch, ExecutorId, Labels, RunStatus, Timestamp};
use ferrata_store_sqlite::SqliteOptions;
use ferrata_testing::facts;
use sqlx::Row as _;

use crate::support::{log, place};

#[tokio::test]
async fn views_show_current_runs_and_records() {
    let place = place(SqliteOptions::default()).await;
    let mut labels = Labels::default();
    labels.insert("team", "a").unwrap();
    let mut log =
        log("r").with_facts(facts("review", 1_600_000_000_123).with_user("ann").unwrap().with_labels(labels));
    let id = *log.next(1).records[0].header.id.as_uuid();
    let owner = ExecutorId::from_uuid(id);
    place.store.heartbeat(&owner, std::time::Duration::from_secs(600)).await.unwrap();
    log.write(&place.store, 2).await;
    log.write_with(&place.store, 1, |header| {
        (header.owner, header.epoch) = (Some(owner), Epoch::new(7));
        (header.status, header.wake_at) = (RunStatus::AwaitingInput, Some(Timestamp::from_unix_ms(0)));
    })
    .await;
    let mut connection = place.connection().await;
    let row = sqlx::query(
        "SELECT tenant || '/' || run || ' ' || status || ' ' || workflow || ' ' || version || ' ' || user_name || ' ' || labels \
         || ' ' || created || ' ' || updated || ' ' || wake_at || ' ' || owner_alive || ' ' || epoch || ' ' || seq, owner \
         FROM ferrata_run_list",
    );
    let row = row.fetch_one(&mut connection).await.unwrap();
    assert_eq!(
        row.get::<&str, _>(0),
        "default/r awaiting_input review 1 ann {\"team\":\"a\"} 2020-09-13T12:26:40.123Z 2020-09-13T12:26:40.002Z \
         1970-01-01T00:00:00.000Z 1 7 2"
    );
    assert_eq!(row.get::<String, _>(1), owner.to_string());
    let rows = sqlx::query(
        "SELECT seq || ' ' || kind || ' ' || status || ' ' || base || ' ' || at, id FROM ferrata_record_list ORDER BY seq",
    );
    let rows = rows.fetch_all(&mut connection).await.unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0].get::<&str, _>(0), "0 start in_progress 1 2020-09-13T12:26:40.000Z");
    for (row, record) in rows.iter().zip(&log.records) {
        assert_eq!(row.get::<String, _>(1), record.header.id.to_string());
    }
    let failed = sqlx::query("SELECT * FROM ferrata_failed_today").fetch_all(&mut connection).await.unwrap();
    assert!(failed.is_empty());
}
