//! Streams that could lose records, reached limits, and deleted streams.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use ferrata_store::{At, CheckpointStore, ErrorKind, Page, PruneCut, Result, RunAppend, RunQuery, Seq};
use ferrata_store_nats::{NatsOptions, NatsStore};
use ferrata_test_servers::{NatsServer, NatsServerOptions as Server, RefusingPort};
use ferrata_testing::every_header;
use serde_json::{Value, json};

use crate::common::{Place, api};
use crate::surely::{append_one, is_kept, kind, log_of, surely};

/// Creates the stream of logs with other settings.
async fn made_with(place: &Place, change: &Value) -> Result<()> {
    // A stream that stays, because the server removes the folder of an account without streams while it creates another stream there.
    let stays = Place { namespace: format!("stays-{}", std::process::id()), server: place.server.clone() };
    stays.store().setup().await.unwrap();
    let client = place.client().await;
    let mut config = json!({
        "name": place.logs(), "description": "Ferrata's runs, version 1", "retention": "limits", "storage": "file",
        "subjects": [format!("ferrata.{}.a1.>", place.namespace)], "num_replicas": 1, "discard": "new",
    });
    for (name, value) in change.as_object().unwrap() {
        config[name] = value.clone();
    }
    let made = api(&client, &format!("STREAM.CREATE.{}", place.logs()), &config).await;
    assert!(made["error"].is_null(), "{made}");
    let setup = place.store().setup().await;
    place.remove().await;
    setup
}

/// Guarantees: NATS-8.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn setup_refuses_streams_that_could_lose_records() {
    made_with(&Place::shared(), &json!({})).await.unwrap();
    made_with(&Place::shared(), &json!({ "max_bytes": 1_000_000 })).await.unwrap();
    for change in [
        json!({ "retention": "interest" }),
        json!({ "retention": "workqueue" }),
        json!({ "storage": "memory" }),
        json!({ "max_msgs": 10 }),
        json!({ "max_age": 3_600_000_000_000_u64 }),
        json!({ "max_msgs_per_subject": 5 }),
        json!({ "discard": "old" }),
        json!({ "discard": "old", "max_bytes": 1_000_000 }),
        json!({ "no_ack": true }),
        json!({ "deny_delete": true }),
        json!({ "sources": [{ "name": "elsewhere" }] }),
        json!({ "mirror": { "name": "elsewhere" }, "subjects": null }),
        json!({ "description": "another program's" }),
        json!({ "subjects": [format!("other.{}", std::process::id())] }),
    ] {
        let error = made_with(&Place::shared(), &change).await.expect_err(&change.to_string());
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{change}: {error:?}");
    }
    let place = Place::shared();
    let error = place.store_with(place.options().with_replicas(3)).setup().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "a single server must keep one copy: {error:?}");
    place.remove().await;
}

/// `setup` refuses a stream of a newer version, and one from before the first release. The stream is unchanged.
///
/// Guarantees: NATS-8.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn streams_of_other_versions_stay_untouched() {
    let place = Place::shared();
    let store = place.store();
    store.setup().await.unwrap();
    let mut log = log_of("r-1");
    let first = log.next(2);
    append_one(&store, &first).await.unwrap();
    log.note_append(&first);
    let client = place.client().await;
    let info = format!("STREAM.INFO.{}", place.logs());
    let made = api(&client, &info, &Value::Null).await;
    for (description, words) in [
        ("Ferrata's runs, version 2", "upgrade this process"),
        ("Ferrata's runs, layout 1", "an unreleased version"),
        ("Ferrata's runs, layout 2", "an unreleased version"),
    ] {
        let mut config = made["config"].clone();
        config["description"] = json!(description);
        let updated = api(&client, &format!("STREAM.UPDATE.{}", place.logs()), &config).await;
        assert!(updated["error"].is_null(), "{updated}");
        let other = place.store();
        let listed = other.runs(&RunQuery::default(), Page::default()).await.map(|_| ());
        let appended = append_one(&other, &log.next(1)).await.map(|_| ());
        for refused in [other.setup().await, appended, other.purge(&log.key, None).await.map(|_| ()), listed]
        {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{description}: {refused:?}");
            assert!(refused.to_string().contains(words), "{description}: {refused}");
        }
        let found = api(&client, &info, &Value::Null).await;
        assert_eq!(found["state"]["last_seq"], made["state"]["last_seq"]);
        assert_eq!(found["config"]["description"], *description);
    }
    api(&client, &format!("STREAM.UPDATE.{}", place.logs()), &made["config"]).await;
    is_kept(&log, &place.store()).await;
    place.remove().await;
}

/// While another instance creates the stream, the server reports that its subjects are taken. `setup` must still succeed.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn concurrent_setups_all_succeed() {
    let server = NatsServer::start(Server::default()).unwrap();
    for _ in 0..12 {
        let mut instances = tokio::task::JoinSet::new();
        for place in std::iter::repeat_with(|| Place::at(&server.url())).take(5) {
            for n in 0..10 {
                let store = place.store();
                instances.spawn(async move {
                    store.setup().await?;
                    append_one(&store, &log_of(&format!("r-{n}")).next(1)).await
                });
            }
        }
        for written in instances.join_all().await {
            written.unwrap();
        }
    }
}

#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn subjects_that_another_stream_takes_are_refused() {
    let place = Place::shared();
    let client = place.client().await;
    let other = format!("OTHER-{}", place.namespace);
    for subject in ["ferrata-beats", "ferrata"] {
        let config = json!({ "name": other, "subjects": [format!("{subject}.{}.>", place.namespace)] });
        let made = api(&client, &format!("STREAM.CREATE.{other}"), &config).await;
        assert!(made["error"].is_null(), "{made}");
        let error = place.store().setup().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        assert!(error.to_string().contains("another stream has the subjects"), "{error}");
        let deleted = api(&client, &format!("STREAM.DELETE.{other}"), &Value::Null).await;
        assert_eq!(deleted["success"], true, "{deleted}");
    }
    place.store().setup().await.unwrap();
    place.remove().await;
}

/// The server removes the folder of an account shortly after its last stream was deleted. A stream that is created then has no folder, and `setup`
/// must still succeed.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn concurrent_stream_deletion_does_not_fail_setup() {
    let server = NatsServer::start(Server::default()).unwrap();
    let comes_and_goes = async || {
        for _ in 0..40 {
            let place = Place::at(&server.url());
            place.store().setup().await.unwrap();
            place.remove().await;
        }
    };
    tokio::join!(comes_and_goes(), comes_and_goes(), comes_and_goes());
}

#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn streams_with_too_few_replicas_are_refused() {
    let place = Place::shared();
    place.store().setup().await.unwrap();
    let error = place.store_with(place.options().with_replicas(3)).setup().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("1 replicas, and 3 are requested"), "{error}");
    place.remove().await;
}

/// Guarantees: NATS-7.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn full_stream_refuses_until_space_returns() {
    let place = Place::shared();
    let store = place.store();
    store.setup().await.unwrap();
    let client = place.client().await;
    let limit = async |bytes: i64| {
        let info = api(&client, &format!("STREAM.INFO.{}", place.logs()), &Value::Null).await;
        let mut config = info["config"].clone();
        config["max_bytes"] = json!(bytes);
        let changed = api(&client, &format!("STREAM.UPDATE.{}", place.logs()), &config).await;
        assert!(changed["error"].is_null(), "{changed}");
    };
    limit(20_000).await;
    let mut log = log_of("r-1");
    let refused: RunAppend = loop {
        let append = log.next_body(vec![7; 1_000]);
        match append_one(&store, &append).await {
            Ok(_) => log.note_append(&append),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(error.to_string().contains("the stream is full"), "{error}");
                break append;
            }
        }
        assert!(log.records.len() < 100, "the limit must apply");
    };
    assert!(log.records.len() > 5);
    is_kept(&log, &place.store()).await;
    limit(-1).await;
    append_one(&store, &refused).await.unwrap();
    log.note_append(&refused);
    is_kept(&log, &place.store()).await;
    place.remove().await;
}

/// Guarantees: NATS-10.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn a_stream_that_was_deleted_acknowledges_nothing() {
    let place = Place::shared();
    let (store, other) = (place.store(), place.store());
    store.setup().await.unwrap();
    let mut log = log_of("r-1");
    for _ in 0..2 {
        let append = log.next(1);
        append_one(&store, &append).await.unwrap();
        log.note_append(&append);
    }
    let (late, again) = (log.next(1), log.next(1));
    place.remove().await;
    // At first no stream accepts the message, and then the stream does not exist.
    assert_eq!(kind(append_one(&store, &late).await), ErrorKind::Unavailable);
    assert_eq!(kind(append_one(&store, &late).await), ErrorKind::Invalid);
    assert_eq!(kind(store.head(&log.key).await), ErrorKind::Invalid);
    assert_eq!(kind(other.load(&log.key, At::Latest).await), ErrorKind::Invalid);
    // The new stream counts from 1 again, so a run with the same id has the position of the old one.
    other.setup().await.unwrap();
    let mut new = log_of("r-1");
    for _ in 0..2 {
        let append = new.next(1);
        append_one(&other, &append).await.unwrap();
        new.note_append(&append);
    }
    for store in [&store, &place.store()] {
        let refused = surely(async || append_one(store, &again).await).await.unwrap_err();
        assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(new.head())));
    }
    is_kept(&new, &store).await;
    place.remove().await;
}

/// A writer that knew the deleted stream has made no call since. The new stream must not accept its message.
///
/// Guarantees: NATS-10.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn writer_of_deleted_stream_is_refused_by_next() {
    let place = Place::shared();
    let (store, other) = (place.store(), place.store());
    store.setup().await.unwrap();
    let mut log = log_of("r-1");
    let append = log.next(1);
    append_one(&store, &append).await.unwrap();
    log.note_append(&append);
    place.remove().await;
    other.setup().await.unwrap();
    let mut new = log_of("r-1");
    let append = new.next(1);
    append_one(&other, &append).await.unwrap();
    new.note_append(&append);
    let late = log.next(1);
    let refused = surely(async || append_one(&store, &late).await).await.unwrap_err();
    assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(new.head())));
    is_kept(&new, &other).await;
    place.remove().await;
}

/// A reader that knew the deleted stream has written nothing since. It must not report the runs of the new stream as missing.
///
/// Guarantees: NATS-10.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn reader_of_deleted_stream_reads_next_one() {
    let place = Place::shared();
    let readers: [_; 6] = std::array::from_fn(|_| place.store());
    readers[0].setup().await.unwrap();
    let mut log = log_of("r-1");
    for reader in &readers {
        assert_eq!(reader.head(&log.key).await.unwrap(), None);
    }
    place.remove().await;
    place.store().setup().await.unwrap();
    log.write(&place.store(), 2).await;
    let [heads, loads, reads, lists, prunes, purges] = &readers;
    let head = surely(async || heads.head(&log.key).await).await.unwrap();
    assert_eq!(head.map(|head| head.head()), log.head());
    let loaded = surely(async || loads.load(&log.key, At::Latest).await).await.unwrap();
    assert_eq!(loaded, Some(log.records.clone()));
    assert_eq!(surely(async || every_header(reads, &log.key).await).await.unwrap(), log.headers());
    let listed = lists.runs(&RunQuery::default(), Page::first(10)).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(
        lists.head(&log.key).await.unwrap().as_ref(),
        listed.items.first(),
        "a listing must check, too"
    );
    let cut = PruneCut { at: Seq::new(0), base: None };
    surely(async || prunes.prune(&log.key, cut.clone()).await).await.unwrap();
    assert_eq!(surely(async || purges.purge(&log.key, None).await).await.unwrap().records, 2);
    place.remove().await;
}

/// Guarantees: NATS-11.
#[tokio::test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn append_beyond_message_size_is_too_large() {
    let server = NatsServer::start(Server::default().with_max_payload(20_000)).unwrap();
    let place = Place::at(&server.url());
    let store = place.store();
    store.setup().await.unwrap();
    let mut log = log_of("r-1");
    let error = append_one(&store, &log.next_body(vec![7; 20_001])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("20000"), "{error}");
    is_kept(&log, &store).await;
    let append = log.next_body(vec![7; 15_000]);
    append_one(&store, &append).await.unwrap();
    log.note_append(&append);
    is_kept(&log, &place.store()).await;
}

#[tokio::test]
async fn absent_server_is_unavailable_refused_user_is_invalid() {
    let nobody = RefusingPort::new().unwrap();
    let url = format!("nats://{}", nobody.address());
    let store = NatsStore::from_url(&url, NatsOptions::default()).unwrap();
    let append = log_of("r-1").next(1);
    assert_eq!(kind(append_one(&store, &append).await), ErrorKind::Unavailable);
    let closed =
        NatsServer::start(Server::default().with_config("authorization { token: \"secret\" }")).unwrap();
    for user in ["", "wrong@", "wrong:wrong@"] {
        let url = closed.url().replace("://", &format!("://{user}"));
        let error = NatsStore::from_url(&url, NatsOptions::default()).unwrap().setup().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(!format!("{error:?}").contains("wrong"), "{error:?}");
    }
    let url = closed.url().replace("://", "://secret@");
    NatsStore::from_url(&url, NatsOptions::default()).unwrap().setup().await.unwrap();
}
