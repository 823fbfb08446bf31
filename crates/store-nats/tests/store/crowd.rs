//! Load of many processes: listeners that do not read, slow clients, simultaneous reconnects, and a server without space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ferrata_store::{At, CheckpointStore, ErrorKind, Page, RunQuery, SystemClock, within};
use ferrata_test_servers::{NatsServer, NatsServerOptions as Server};
use ferrata_testing::Log;
use serde_json::json;
use tokio::task::JoinSet;

use crate::common::{Place, api};
use crate::load::{until_written, write};
use crate::surely::{append_one, is_kept, kind, log_of, surely};

/// A subscriber that does not read delays no writer and no other subscriber, and learns that it missed notices.
///
/// Guarantees: NATS-6.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn stalled_listener_blocks_no_writer_and_learns_loss() {
    let place = Place::shared();
    let (writer, reader) = (place.store(), place.store());
    writer.setup().await.unwrap();
    let (mut slow, mut quick) = (reader.subscribe().unwrap(), reader.subscribe().unwrap());
    let (mut log, is_over) = (log_of("r-1"), AtomicBool::new(false));
    // Wait until the connection listens.
    let clock = SystemClock::new();
    loop {
        log.write(&writer, 1).await;
        if within(&clock, Duration::from_millis(50), quick.next()).await.is_some() {
            break;
        }
    }
    // A subscriber that lags on a busy machine counts its missed notices as one.
    let reads = async {
        for _ in 0..1_500 {
            quick.next().await.unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let writes = async {
        while !is_over.load(Ordering::Relaxed) {
            log.write(&writer, 1).await;
        }
    };
    tokio::join!(reads, writes);
    assert_eq!(slow.next().await.unwrap(), None, "the subscriber must learn that it missed notices");
    assert_eq!(slow.next().await.unwrap().map(|heard| heard.run), Some(log.key.clone()));
    is_kept(&log, &reader).await;
    place.remove().await;
}

/// A store announces its own writes at once, and only once, although the server also sends them.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn store_announces_own_append_once_with_head() {
    let place = Place::shared();
    let (store, other) = (place.store(), place.store());
    store.setup().await.unwrap();
    let mut notices = store.subscribe().unwrap();
    let mut theirs = log_of("theirs");
    // Wait until the connection listens.
    let clock = SystemClock::new();
    loop {
        theirs.write(&other, 1).await;
        if within(&clock, Duration::from_millis(50), notices.next()).await.is_some() {
            break;
        }
    }
    let mut ours = log_of("ours");
    for _ in 0..20 {
        ours.write(&store, 1).await;
    }
    other.purge(&theirs.key, None).await.unwrap();
    let (mut heads, mut is_purged) = (Vec::new(), false);
    while heads.len() < 20 || !is_purged {
        let heard = notices.next().await.unwrap().expect("no notice was missed");
        if heard.run == ours.key {
            heads.push(heard.head);
        } else {
            is_purged = heard.head.is_none();
        }
    }
    let written = ours.records.iter().map(|record| Some(record.header.head()));
    assert_eq!(heads, written.collect::<Vec<_>>());
    place.remove().await;
}

/// If a program subscribes to every subject, the server does not report that a subject has no listener.
///
/// Guarantees: NATS-6.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn wildcard_subscriber_does_not_disturb_notices() {
    let server = NatsServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url());
    let client = place.client().await;
    let _everything = client.subscribe(">").await.unwrap();
    let store = place.store_with(place.options().with_response_timeout(Duration::from_millis(500)));
    let other = place.store();
    surely(async || store.setup().await).await.unwrap();
    let mut texts = store.relay().unwrap().listen().await.unwrap();
    let mut notices = store.subscribe().unwrap();
    other.relay().unwrap().publish(vec!["text".to_owned()]).await.unwrap();
    assert_eq!(texts.next().await.unwrap().as_deref(), Some("text"));
    let mut log = log_of("r-1");
    log.write(&other, 1).await;
    assert_eq!(notices.next().await.unwrap().map(|heard| heard.run), Some(log.key.clone()));
    // No stream accepts a message for a deleted stream, and the server does not report this.
    log.write(&store, 1).await;
    let late = log.next(1);
    place.remove().await;
    let mut new = log_of("r-1");
    place.store().setup().await.unwrap();
    new.write(&place.store(), 1).await;
    let refused = surely(async || append_one(&store, &late).await).await.unwrap_err();
    assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(new.head())));
}

/// A read of messages that are removed concurrently gets an answer. Servers of version 2.9 never answered it.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn read_of_concurrently_removed_runs_is_answered() {
    let place = Place::shared();
    let store = Arc::new(place.store());
    store.setup().await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for _ in 0..4 {
        let (reader, is_over) = (place.store(), Arc::clone(&is_over));
        readers.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                reader.runs(&RunQuery::default(), Page::first(10)).await.unwrap();
            }
        });
    }
    for n in 0..100 {
        let mut runs = JoinSet::new();
        for m in 0..8 {
            let (store, mut log) = (Arc::clone(&store), log_of(&format!("r-{n}-{m}")));
            runs.spawn(async move {
                log.write(&*store, 1).await;
                store.purge(&log.key, None).await.unwrap();
            });
        }
        runs.join_all().await;
    }
    is_over.store(true, Ordering::Relaxed);
    readers.join_all().await;
    place.remove().await;
}

/// A server cuts the connection of a client that is `max_pending` bytes behind. A larger reply cannot arrive as a whole, but other replies can.
///
/// Guarantees: NATS-6.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn slow_client_is_disconnected_without_partial_reads() {
    let options = Server::default()
        .with_max_payload(1 << 20)
        .with_config("max_pending: 1500000\nwrite_deadline: \"1s\"");
    let server = NatsServer::start(options).unwrap();
    let place = Place::at(&server.url());
    let store = place.store();
    store.setup().await.unwrap();
    let (mut large, mut small) = (log_of("large"), log_of("small"));
    for _ in 0..24 {
        let append = large.next_body(vec![7; 900_000]);
        append_one(&store, &append).await.unwrap();
        large.note_append(&append);
    }
    small.write(&store, 3).await;
    // Whether it keeps up depends on the machine.
    match store.load(&large.key, At::Latest).await {
        Ok(loaded) => assert_eq!(loaded.as_deref(), Some(&large.records[..])),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
    }
    is_kept(&small, &store).await;
    let append = large.next(1);
    surely(async || append_one(&store, &append).await).await.unwrap();
}

/// The connections of many processes break at the same moment, repeatedly, and all reconnect at once.
///
/// Guarantees: NATS-2.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn mass_reconnect_applies_writes_once() {
    let server = NatsServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url());
    surely(async || place.store().setup().await).await.unwrap();
    let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut writers: JoinSet<Log> = JoinSet::new();
    let mut hears = Vec::new();
    for n in 0..48 {
        let store = place.store();
        hears.push(store.subscribe().unwrap());
        writers.spawn(write(store, log_of(&format!("r-{n}")), Arc::clone(&is_over), Arc::clone(&written)));
    }
    for _ in 0..4 {
        until_written(&written, 200).await;
        server.kill().unwrap();
        server.restart().unwrap();
    }
    until_written(&written, 200).await;
    is_over.store(true, Ordering::Relaxed);
    let store = place.store();
    for log in writers.join_all().await {
        assert!(!log.records.is_empty());
        is_kept(&log, &store).await;
    }
}

/// The limit of bytes belongs to the server, and all its streams share it. A prune or purge first writes a message, which has no space either.
///
/// Guarantees: NATS-7.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn server_without_space_refuses_until_space_returns() {
    let server = NatsServer::start(Server::default().with_max_file_store(400_000)).unwrap();
    let place = Place::at(&server.url());
    let store = place.store();
    store.setup().await.unwrap();
    // Data of another program on the server.
    let client = place.client().await;
    let made = api(&client, "STREAM.CREATE.OTHER", &json!({ "name": "OTHER", "subjects": ["other"] })).await;
    assert!(made["error"].is_null(), "{made}");
    for _ in 0..20 {
        client.request("other", vec![7; 10_000].into()).await.unwrap();
    }
    let (mut log, mut other) = (log_of("r-1"), log_of("r-2"));
    other.write(&store, 1).await;
    let refused = loop {
        let append = log.next_body(vec![7; 10_000]);
        match append_one(&store, &append).await {
            Ok(_) => log.note_append(&append),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(error.to_string().contains("space"), "{error}");
                break append;
            }
        }
        assert!(log.records.len() < 100, "the limit must apply");
    };
    assert!(log.records.len() > 5);
    assert_eq!(kind(store.purge(&log.key, None).await), ErrorKind::Unavailable);
    assert_eq!(store.load(&log.key, At::Latest).await.unwrap().unwrap(), log.records);
    let deleted = api(&client, "STREAM.DELETE.OTHER", &json!({})).await;
    assert!(deleted["error"].is_null(), "{deleted}");
    surely(async || append_one(&store, &refused).await).await.unwrap();
    log.note_append(&refused);
    is_kept(&log, &place.store()).await;
    store.purge(&log.key, None).await.unwrap();
    log.records.clear();
    is_kept(&log, &place.store()).await;
    is_kept(&other, &place.store()).await;
}
