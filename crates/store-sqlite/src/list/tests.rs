//! Checks which index answers a listing, according to SQLite's `EXPLAIN QUERY PLAN`.

use ferrata_store::{ExecutorId, RunId, RunKey, TenantId, WorkflowName};
use sqlx::Row as _;

use super::*;
use crate::config::SqliteOptions;
use crate::db::ConnectionPurpose;

/// Returns the steps of the plan for a page of a query.
async fn explained(db: &SqliteDb, asked: &RunQuery, order: Order, after: Option<&RunPlace>) -> Vec<String> {
    let statement = statement(ListColumns::Heads, asked, order, after, 51, 1);
    let mut opened = db.open(ConnectionPurpose::Write).await.unwrap();
    let rows = statement.explained().query().fetch_all(&mut opened.connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect()
}

#[tokio::test]
async fn every_listing_is_answered_by_its_index() {
    let directory = tempfile::tempdir().unwrap();
    let db = SqliteDb::new(directory.path().join("runs.db"), SqliteOptions::default());
    let mut made = db.open(ConnectionPurpose::SetUp).await.unwrap();
    let fill = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 500) \
        INSERT INTO ferrata_runs SELECT n, 't' || n % 5, 'r' || n, 0, \
            CASE n % 10 WHEN 0 THEN 'in_progress' WHEN 1 THEN 'failed' ELSE 'completed' END, '', NULL, n, 'w' || n % 7, NULL, NULL, '{}', 0 \
        FROM n;";
    let script = SqlStatement::new(crate::setup::LAYOUT).and(fill);
    script.query().execute(&mut made.connection).await.unwrap();

    let run = RunKey::new(TenantId::new("t1").unwrap(), RunId::new("r").unwrap());
    let query = |set: &dyn Fn(&mut RunQuery)| {
        let mut query = RunQuery::default();
        set(&mut query);
        query
    };
    let family = |label: &str| {
        query(&|q| {
            q.labels.push((label.to_owned(), "r".to_owned()));
            q.tenant = Some(run.tenant.clone());
            q.created_from = Some(Timestamp::from_unix_ms(0));
        })
    };
    let executor = ExecutorId::from_uuid("00000000-0000-7000-8000-000000000001".parse().unwrap());
    let cases = [
        (query(&|_| {}), "by_created"),
        (query(&|q| q.tenant = Some(run.tenant.clone())), "by_tenant"),
        (query(&|q| q.workflow = Some(WorkflowName::new("w1").unwrap())), "by_workflow"),
        (query(&|q| q.statuses = vec![RunStatus::Failed]), "by_status"),
        (query(&|q| q.statuses = vec![RunStatus::Failed, RunStatus::Cancelled]), "by_status"),
        (query(&|q| q.parent = Some(run.clone())), "by_parent"),
        (query(&|q| q.owner = Some(executor)), "by_owner"),
        (family("ferrata.parent"), "by_parent_run"),
        (family("ferrata.root"), "by_root_run"),
        (query(&|q| q.filter = RunFilter::Orphaned), "to_adopt"),
        (query(&|q| q.filter = RunFilter::Due), "by_wake"),
    ];
    let place = RunPlace { created: Timestamp::from_unix_ms(250), run };
    for (asked, index) in cases {
        for order in [Order::NewestFirst, Order::OldestFirst] {
            for after in [None, Some(&place)] {
                let plan = explained(&db, &asked, order, after).await;
                let named = format!("INDEX ferrata_runs_{index} ");
                assert!(plan.iter().any(|step| format!("{step} ").contains(&named)), "{index}: {plan:#?}");
                // The rows that the conditions select are read once more, to join the last records. The table itself is not scanned.
                let scans =
                    plan.iter().filter(|step| *step == "SCAN r" || step.starts_with("SCAN ferrata_runs"));
                assert!(scans.count() <= 1, "{index}: {plan:#?}");
                // There are few orphaned and due runs, and SQLite sorts them. Everything else must come in order from an index, so that only one
                // page is read. If a query has several statuses, the join of their pages may be sorted.
                let sorts = plan.windows(2).any(|steps| {
                    steps[0].contains("INDEX ferrata_runs_") && steps[1].starts_with("USE TEMP B-TREE")
                });
                assert!(asked.filter != RunFilter::Any || !sorts, "{index}: {plan:#?}");
            }
        }
    }
}
