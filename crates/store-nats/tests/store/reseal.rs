//! Resealed records: new messages hold them, and the old messages are removed.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use ferrata_store::{CheckpointStore as _, ErrorKind, PruneCut, Record, Resealing as _, Seq};
use ferrata_store_nats::NatsStore;
use ferrata_test_servers::{NatsServer, NatsServerOptions as Server};
use ferrata_testing::Log;
use serde_json::json;

use crate::common::{Place, api};
use crate::surely::{append_one, is_kept, log_of};

async fn write(store: &NatsStore, log: &mut Log, count: usize) {
    let append = log.next(count);
    append_one(store, &append).await.unwrap();
    log.note_append(&append);
}

/// Reseals records with `more` additional bytes.
async fn reseal(store: &NatsStore, log: &mut Log, which: std::ops::RangeInclusive<usize>, more: usize) {
    for record in &mut log.records[which.clone()] {
        let body = [&record.body[..], &vec![b' '; more]].concat();
        *record = Record::seal(record.header.clone(), body.into()).unwrap();
    }
    let given = &log.records[which];
    assert_eq!(store.reseal(&log.key, given).await.unwrap(), given.len() as u64);
}

/// The number of records in each message of the run.
async fn messages(place: &Place, log: &Log) -> Vec<usize> {
    let client = place.client().await;
    let subject = place.subject(&client, &log.key).await;
    let messages = place.messages(&client, &subject).await;
    let said = messages.iter().map(|message| &message.said);
    said.map(|said| said["records"].as_array().unwrap().len()).collect()
}

/// A message with a needed record stays, and any other is removed.
///
/// Guarantees: NATS-15.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn rekey_removes_messages_after_replacing_all_records() {
    let place = Place::shared();
    let store = place.store();
    store.setup().await.unwrap();
    let mut log = log_of("r-1");
    for count in [3, 2, 1] {
        write(&store, &mut log, count).await;
    }
    assert_eq!(messages(&place, &log).await, [3, 2, 1]);
    // Reseal one of three records. Its old message is still needed for the other two.
    reseal(&store, &mut log, 1..=1, 1).await;
    assert_eq!(messages(&place, &log).await, [3, 2, 1, 1]);
    is_kept(&log, &place.store()).await;
    reseal(&store, &mut log, 0..=4, 2).await;
    assert_eq!(messages(&place, &log).await, [1, 5]);
    is_kept(&log, &place.store()).await;
    write(&store, &mut log, 2).await;
    reseal(&store, &mut log, 0..=7, 3).await;
    assert_eq!(messages(&place, &log).await, [8]);
    write(&store, &mut log, 2).await;
    is_kept(&log, &place.store()).await;
    // The retained records are in the message of the reseal, and the prune's base is in its own message.
    let base = log.as_base(6);
    let cut = PruneCut { at: Seq::new(6), base: Some(base.clone()) };
    assert_eq!(store.prune(&log.key, cut).await.unwrap().records, 6);
    log.records[6] = base;
    assert_eq!(messages(&place, &log).await, [8, 2, 1]);
    is_kept(&log, &place.store()).await;
    reseal(&store, &mut log, 6..=7, 4).await;
    assert_eq!(messages(&place, &log).await, [2, 2]);
    is_kept(&log, &place.store()).await;
    place.remove().await;
}

/// A reseal with more bytes than a message may contain.
///
/// Guarantees: NATS-15.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn rekey_splits_records_over_several_messages() {
    let server = NatsServer::start(Server::default().with_max_payload(20_000)).unwrap();
    let place = Place::at(&server.url());
    let store = place.store();
    store.setup().await.unwrap();
    let mut log = log_of("r-1");
    for bytes in [15_000, 6_000, 3_000, 3_000, 15_000] {
        let append = log.next_body(vec![b'7'; bytes]);
        append_one(&store, &append).await.unwrap();
        log.note_append(&append);
    }
    reseal(&store, &mut log, 0..=4, 100).await;
    assert_eq!(messages(&place, &log).await, [1, 2, 1, 1]);
    is_kept(&log, &place.store()).await;
}

/// The headers of small records need more space than their bodies.
///
/// Guarantees: NATS-15.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn rekey_replaces_records_with_long_headers() {
    let server = NatsServer::start(Server::default().with_max_payload(20_000)).unwrap();
    let place = Place::at(&server.url());
    let store = place.store();
    store.setup().await.unwrap();
    let mut log = log_of("r-1");
    for _ in 0..4 {
        write(&store, &mut log, 100).await;
    }
    reseal(&store, &mut log, 0..=399, 1).await;
    is_kept(&log, &place.store()).await;
}

/// A log that lacks records must not become a shorter log that looks complete.
///
/// Guarantees: NATS-16.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn rekey_names_log_with_missing_records() {
    let place = Place::shared();
    let store = place.store();
    store.setup().await.unwrap();
    let mut log = log_of("r-1");
    for count in [1, 2, 1] {
        write(&store, &mut log, count).await;
    }
    let client = place.client().await;
    let subject = place.subject(&client, &log.key).await;
    let first = place.messages(&client, &subject).await[0].at;
    api(&client, &format!("STREAM.MSG.DELETE.{}", place.logs()), &json!({ "seq": first })).await;
    let before = messages(&place, &log).await;
    let refused = store.reseal(&log.key, &log.records[1..]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert_eq!(messages(&place, &log).await, before);
    place.remove().await;
}
