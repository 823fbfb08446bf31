//! The server is killed, stopped, restarted and runs out of disk during writes: no acknowledged record is lost, none is doubled, and every writer
//! continues by itself.
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::author::{Author, append, is_kept};
use crate::common::{Schema, retried, until};
use ferrata_store::{CheckpointStore, Clock as _, ErrorKind, RunAppend, SystemClock};
use ferrata_store_postgres::PostgresStore;
use ferrata_test_servers::{PostgresServer, PostgresServerOptions};
use tokio::task::{JoinSet, spawn_blocking};

async fn start(options: PostgresServerOptions) -> Arc<PostgresServer> {
    Arc::new(spawn_blocking(|| PostgresServer::start(options)).await.unwrap().unwrap())
}

/// Appends an entry until it is acknowledged, and counts how often it was not known whether it was written.
async fn settle(store: &PostgresStore, entry: &RunAppend, doubts: &AtomicU64) {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + Duration::from_secs(300);
    while let Err(error) = append(store, entry.clone()).await {
        assert!(error.is_retryable() && clock.monotonic() < deadline, "{error:?}");
        doubts.fetch_add(u64::from(error.kind() == ErrorKind::Indeterminate), Ordering::SeqCst);
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Eight writers append to runs of their own, each record again until it is acknowledged, while the server goes down and
/// comes back three times.
async fn survives(go_down: fn(&PostgresServer)) {
    let server = start(PostgresServerOptions::default()).await;
    let schema = Schema::at(server.url());
    let options = schema.options().with_acquire_timeout(Duration::from_secs(5));
    let store = PostgresStore::from_url(&schema.url, options).unwrap();
    store.setup().await.unwrap();
    // Every append takes a while in the server, so that some are under way whenever it goes down.
    schema
        .execute(
            "CREATE FUNCTION {schema}.linger() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_sleep(0.01); RETURN NULL; END';
             CREATE TRIGGER linger AFTER INSERT ON {schema}.records FOR EACH STATEMENT EXECUTE FUNCTION {schema}.linger()",
        )
        .await;
    let is_over = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let doubts = Arc::new(AtomicU64::new(0));
    let mut writers = JoinSet::new();
    for n in 0..8 {
        let (store, is_over) = (store.clone(), Arc::clone(&is_over));
        let (acknowledged, doubts) = (Arc::clone(&acknowledged), Arc::clone(&doubts));
        writers.spawn(async move {
            let mut author = Author::new(&format!("r-{n}"));
            while !is_over.load(Ordering::SeqCst) {
                let entry = author.next(1 + n % 3);
                settle(&store, &entry, &doubts).await;
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            author
        });
    }
    // Three times, and on until one was in the middle of an append.
    let mut times = 0;
    while times < 3 || doubts.load(Ordering::SeqCst) == 0 {
        times += 1;
        assert!(times < 100, "the server never went down in the middle of an append");
        let before = acknowledged.load(Ordering::SeqCst);
        until("a hundred appends", async || acknowledged.load(Ordering::SeqCst) > before + 100).await;
        let server = Arc::clone(&server);
        spawn_blocking(move || {
            go_down(&server);
            server.restart().unwrap();
        })
        .await
        .unwrap();
    }
    let before = acknowledged.load(Ordering::SeqCst);
    until("a hundred appends", async || acknowledged.load(Ordering::SeqCst) > before + 100).await;
    is_over.store(true, Ordering::SeqCst);
    for author in writers.join_all().await {
        is_kept(&schema.store(), &author).await;
    }
    spawn_blocking(move || drop(server)).await.unwrap();
}

/// Guarantees: POSTGRES-1.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn killed_server_under_load_loses_nothing() {
    survives(|server| server.kill().unwrap()).await;
}

/// Guarantees: POSTGRES-1.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn stopped_server_under_load_loses_nothing() {
    survives(|server| server.stop().unwrap()).await;
}

/// While the server is down a call fails within the time given, is worth a retry, and wrote nothing.
///
/// Guarantees: POSTGRES-22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn a_server_that_is_down_is_unavailable() {
    let server = start(PostgresServerOptions::default().with_fsync(false)).await;
    let schema = Schema::at(server.url());
    let options = schema.options().with_acquire_timeout(Duration::from_secs(1));
    let store = PostgresStore::from_url(&schema.url, options.with_connections(NonZeroU32::MIN)).unwrap();
    schema.store().setup().await.unwrap();
    let mut author = Author::new("r");
    retried(async || store.head(&author.key).await).await;
    let down = Arc::clone(&server);
    spawn_blocking(move || down.stop().unwrap()).await.unwrap();
    let entry = author.next(1);
    // The first call may find the dead connection, of which it does not know how far the append came.
    let _ = append(&store, entry.clone()).await.unwrap_err();
    let refused = append(&store, entry.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert_eq!(store.head(&author.key).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let up = Arc::clone(&server);
    spawn_blocking(move || up.restart().unwrap()).await.unwrap();
    retried(async || append(&store, entry.clone()).await).await;
    is_kept(&schema.store(), &author).await;
    spawn_blocking(move || drop(server)).await.unwrap();
}

/// The disk is full: the error says so, what was acknowledged stays, and appends go on when there is room again.
///
/// Guarantees: POSTGRES-21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(
    not(store_test_small_disk),
    ignore = "set STORE_TEST_SMALL_DISK to a folder on a file system of about 128 MiB (mount -t tmpfs -o size=128m,mode=777 none FOLDER)"
)]
async fn a_full_disk_is_named_and_survived() {
    let disk = std::path::PathBuf::from(std::env::var_os("STORE_TEST_SMALL_DISK").unwrap());
    let (folder, ballast) = (disk.join("postgres"), disk.join("ballast"));
    // What a run before this one left, if it failed.
    let _ = (std::fs::remove_dir_all(&folder), std::fs::remove_file(&ballast));
    let options = PostgresServerOptions::default().with_dir(&folder).with_setting("max_wal_size", "32MB");
    let server = start(options.with_setting("min_wal_size", "32MB")).await;
    let schema = Schema::at(server.url());
    let store = schema.store();
    store.setup().await.unwrap();
    std::fs::write(&ballast, vec![0; 24 << 20]).unwrap();
    let body: &'static [u8] = vec![7; 1 << 20].leak();
    let mut author = Author::new("r");
    append(&store, author.next(1)).await.unwrap();
    let refused = loop {
        let before = author.clone();
        let entry = author.next_as(1, body, |header| header.base = false);
        if let Err(error) = append(&store, entry.clone()).await {
            author = before;
            break (error, entry);
        }
        assert!(author.records.len() < 500, "the disk is not small");
    };
    let (error, entry) = refused;
    assert!(error.is_retryable(), "{error:?}");
    assert!(
        error.kind() == ErrorKind::Indeterminate || error.message().contains("disk is full"),
        "{error:?}"
    );
    std::fs::remove_file(ballast).unwrap();
    author.records.extend(entry.records.clone());
    retried(async || append(&store, entry.clone()).await).await;
    is_kept(&store, &author).await;
    spawn_blocking(move || drop(server)).await.unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}
