//! Tables of the version before: `setup` brings them up to date with all that is in them, and what does not know the new version is refused.
use std::num::NonZeroU32;

use crate::common::Schema;
use crate::common::author::{Author, append, is_kept};
use ferrata_store::{CheckpointStore, Page, Result, RunQuery, RunStatus, Timestamp};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::JoinSet;

/// The tables as version 1 made them.
const VERSION_1: &str = include_str!("../golden/tables_1.sql");

/// Puts what is in the tables of version 2 into those of version 1.
const FILL: &str = "\
    INSERT INTO {old}.runs (key, seq, first_seq, updated, wake_at, created, parent_seq, id, owner, epoch, format, kind, status, \
        graph, input, parent_id, tenant, run, workflow, version, parent_tenant, parent_run, user_name, labels) \
    OVERRIDING SYSTEM VALUE SELECT r.key, h.seq, h.first_seq, h.at, h.wake_at, r.created, r.parent_seq, h.id, h.owner, h.epoch, h.format, \
        h.kind, h.status, r.graph, r.input, r.parent_id, r.tenant, r.run, r.workflow, r.version, r.parent_tenant, r.parent_run, \
        r.user_name, r.labels FROM {new}.runs r JOIN {new}.heads h ON h.key = r.key; \
    INSERT INTO {old}.records SELECT * FROM {new}.records; \
    SELECT setval(pg_get_serial_sequence('{old}.runs', 'key'), (SELECT max(key) FROM {old}.runs))";

/// What a process of version 1 asks for and writes, in short.
const OF_VERSION_1: [&str; 4] = [
    "UPDATE {old}.runs SET seq = seq + 1, id = id, updated = 0 WHERE run = 'r-1' AND seq = 2",
    "SELECT key, seq, id FROM {old}.runs WHERE run = 'r-1'",
    "DELETE FROM {old}.runs WHERE key = 1 AND (NULL::bigint IS NULL OR (seq = 1 AND id = NULL))",
    "INSERT INTO {old}.runs (tenant, run, seq, id, format, kind, status, epoch, updated, workflow, version, graph, input, created) \
     VALUES ('default', 'n', 0, gen_random_uuid(), 1, 's', 'p', 0, 0, 'w', '', gen_random_uuid(), gen_random_uuid(), 0)",
];

/// Guarantees: POSTGRES-11.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn migration_preserves_runs_and_refuses_old_processes() {
    let (new, old) = (Schema::new(), Schema::new());
    let source = new.store();
    source.setup().await.unwrap();
    let mut authors: Vec<Author> = (0..5).map(|n| Author::new(&format!("r-{n}"))).collect();
    for (n, author) in authors.iter_mut().enumerate() {
        append(&source, author.next(7 + n)).await.unwrap();
    }
    let ended = authors[3].next_as(1, b"{}", |header| header.status = RunStatus::Completed);
    append(&source, ended).await.unwrap();
    let waits = authors[4].next_as(1, b"{}", |header| header.wake_at = Some(Timestamp::from_unix_ms(7)));
    append(&source, waits).await.unwrap();

    let mut script = VERSION_1.replace("{prefix}", "");
    for name in ["runs", "records", "heartbeats", "migrations", "run_list", "record_list", "failed_today"] {
        script = script.replace(&format!("{{{name}}}"), &format!("{}.{name}", old.name));
    }
    old.execute(&format!("CREATE SCHEMA {}; {script}", old.name)).await;
    old.execute(&FILL.replace("{old}", &old.name).replace("{new}", &new.name)).await;

    // Ten processes of the new version come at once.
    let mut setups = JoinSet::new();
    for _ in 0..10 {
        let store = old.store();
        setups.spawn(async move { store.setup().await });
    }
    assert!(setups.join_all().await.iter().all(Result::is_ok));

    let options = old.options().with_connections(NonZeroU32::MIN);
    let store = ferrata_store_postgres::PostgresStore::from_url(&old.url, options).unwrap();
    let listed = async |store: &dyn CheckpointStore| {
        store.runs(&RunQuery::default(), Page::default()).await.unwrap().items
    };
    assert_eq!(listed(&store).await, listed(&source).await);
    for author in &mut authors {
        is_kept(&store, author).await;
        append(&store, author.next(1)).await.unwrap();
        is_kept(&store, author).await;
    }
    append(&store, Author::new("later").next(1)).await.unwrap();
    assert_eq!(listed(&store).await.len(), 6);
    store.purge(&authors[0].key, authors[0].head()).await.unwrap();
    assert_eq!(listed(&store).await.len(), 5);

    for sql in OF_VERSION_1 {
        let sql = AssertSqlSafe(sql.replace("{old}", &old.name));
        let refused = old.connection().await.execute(sqlx::raw_sql(sql)).await.unwrap_err();
        let code = refused.as_database_error().and_then(|error| error.code()).map(String::from);
        // Which every version says to be `Unsupported`: another version's tables.
        assert_eq!(code.as_deref(), Some("42703"), "{refused}");
    }
    // Setting up once more finds nothing to do, also by the printed scripts.
    old.store().setup().await.unwrap();
    old.execute(&format!("SET client_min_messages = error; {}", store.print_migrations())).await;
    is_kept(&store, &authors[1]).await;
    new.remove().await;
    old.remove().await;
}
