//! The connection is cut before, during and after every request, and the server is killed or suspended during writes. No acknowledged record is lost,
//! no record is doubled or partial, and no log forks.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::time::Duration;

use ferrata_store::{
    At, CheckpointStore, ErrorKind, ExecutorId, Page, PruneCut, Record, Result, RunAppend, RunQuery,
    RunStatus, Seq, SystemClock, within,
};
use ferrata_store_nats::NatsStore;
use ferrata_test_servers::{
    ConnectionCut, FaultEffect, FaultPosition as In, FaultTrigger, NatsServer, NatsServerOptions as Server,
    Proxy, ProxyFault,
};
use ferrata_testing::Log;
use futures_util::future::join_all;

use crate::common::Place;
use crate::load::{is_kept_under_load, until_written};
use crate::surely::{PATIENCE, append_one, is_kept, kind, log_of, surely};

/// A process that continues after an error with the same instance, or with a new one without knowledge.
struct Process<'a> {
    open: &'a (dyn Fn() -> NatsStore + Sync),
    store: NatsStore,
    dies: bool,
}

impl Process<'_> {
    async fn call<T>(&mut self, call: impl AsyncFn(&NatsStore) -> Result<T>) -> T {
        match call(&self.store).await {
            Err(error) if error.is_retryable() => {
                if self.dies {
                    self.store = (self.open)();
                }
                surely(async || call(&self.store).await).await.unwrap()
            }
            result => result.unwrap(),
        }
    }

    async fn append(&mut self, log: &mut Log, append: RunAppend) {
        self.call(async |store| append_one(store, &append).await).await;
        log.note_append(&append);
    }
}

/// Reseals records, and adds to each as many bytes as its sequence number.
async fn reseal(process: &mut Process<'_>, log: &mut Log, which: std::ops::Range<usize>) {
    for record in &mut log.records[which.clone()] {
        let body = [&record.body[..], &vec![b' '; which.start]].concat();
        *record = Record::seal(record.header.clone(), body.into()).unwrap();
    }
    let given = &log.records[which];
    let replaced = process.call(async |store| store.resealing().unwrap().reseal(&log.key, given).await).await;
    assert_eq!(replaced, given.len() as u64);
}

/// Makes every kind of write in sequence. Returns the expected logs.
async fn story(process: &mut Process<'_>) -> [Log; 2] {
    let owner = ExecutorId::from_uuid(*log_of("owner").next(1).records[0].header.id.as_uuid());
    let (mut run, mut other) = (log_of("r-1"), log_of("r-2"));
    process.call(async |store| store.setup().await).await;
    process.call(async |store| store.heartbeat(&owner, Duration::from_secs(60)).await).await;
    for count in [3, 2] {
        let append = run.next(count);
        process.append(&mut run, append).await;
    }
    let claim = run.next_with(1, |header| header.owner = Some(owner));
    process.append(&mut run, claim).await;
    let append = other.next(2);
    process.append(&mut other, append).await;
    reseal(process, &mut run, 1..5).await;
    let base = run.as_base(4);
    let cut = PruneCut { at: Seq::new(4), base: Some(base.clone()) };
    process.call(async |store| store.prune(&run.key, cut.clone()).await).await;
    run.records[4] = base;
    reseal(process, &mut run, 4..6).await;
    let end = run.next_with(2, |header| header.status = RunStatus::Completed);
    process.append(&mut run, end).await;
    process.call(async |store| store.purge(&other.key, None).await).await;
    other.records.clear();
    [run, other]
}

/// Guarantees: NATS-2.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn connection_cut_at_any_request_applies_once() {
    let server = NatsServer::start(Server::default()).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let url = proxy.url(&server.url());
    let mut happened = 0;
    // Until a story ends without the fault.
    for request in 1.. {
        let before = happened;
        for (n, at) in In::ALL.into_iter().enumerate() {
            let place = Place::at(&server.url());
            // Notices are sent independently, and would change the number of requests.
            let open = || NatsStore::from_url(&url, place.options().with_notices(false)).unwrap();
            let act =
                if (request + n as u64).is_multiple_of(2) { FaultEffect::Close } else { FaultEffect::Reset };
            proxy.arm(FaultTrigger::Request(request), ProxyFault { place: at, act });
            let dies = (request / 2 + n as u64).is_multiple_of(2);
            let mut process = Process { open: &open, store: open(), dies };
            let logs = story(&mut process).await;
            happened += usize::from(proxy.disarm() == 0);
            let other = place.store();
            for log in &logs {
                is_kept(log, &other).await;
            }
            place.remove().await;
        }
        if happened == before {
            break;
        }
    }
    assert!(happened >= 4 * 15, "{happened} cuts are too few for the story");
}

/// Guarantees: NATS-2.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn killed_server_under_load_loses_and_forks_nothing() {
    let server = NatsServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url());
    is_kept_under_load(
        || place.store(),
        async |written| {
            for _ in 0..4 {
                until_written(written, 60).await;
                server.kill().unwrap();
                server.restart().unwrap();
            }
        },
    )
    .await;
}

/// The previous append may have had an unknown outcome. Its repeat also returns the head, so the next append needs no extra read.
///
/// Guarantees: NATS-3.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn append_to_silent_server_is_indeterminate_and_found() {
    let server = NatsServer::start(Server::default()).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let place = Place::at(&proxy.url(&server.url()));
    let options = place.options().with_response_timeout(Duration::from_millis(300));
    let store = place.store_with(options.with_notices(false));
    surely(async || store.setup().await).await.unwrap();
    for (name, is_lost) in [("r-1", false), ("r-2", true)] {
        let mut log = log_of(name);
        let append = log.next(1);
        if is_lost {
            let reply = ProxyFault { place: In::ReplyByte(0), act: FaultEffect::Reset };
            proxy.arm(FaultTrigger::containing("Nats-Expected-Last-Subject-Sequence"), reply);
            assert_eq!(kind(append_one(&store, &append).await), ErrorKind::Indeterminate);
            assert_eq!(proxy.wait(1, PATIENCE).len(), 1);
        }
        surely(async || append_one(&store, &append).await).await.unwrap();
        log.note_append(&append);
        server.suspend().unwrap();
        let append = log.next(2);
        assert_eq!(kind(append_one(&store, &append).await), ErrorKind::Indeterminate, "{name}");
        assert_eq!(kind(store.head(&log.key).await), ErrorKind::Unavailable, "{name}");
        server.resume().unwrap();
        surely(async || append_one(&store, &append).await).await.unwrap();
        log.note_append(&append);
        is_kept(&log, &place.store()).await;
    }
}

/// More calls than the connection and its queue hold. Calls that wait for space wait no longer than for a reply.
///
/// Guarantees: NATS-4, STORE-4.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn every_call_to_silent_server_ends() {
    let server = NatsServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url());
    let store = place.store_with(place.options().with_response_timeout(Duration::from_millis(500)));
    surely(async || store.setup().await).await.unwrap();
    let mut log = log_of("r");
    log.write(&store, 1).await;
    server.suspend().unwrap();
    let batch = (0..6_000).map(|n| log_of(&format!("r-{n}")).next_body(vec![7; 8_192])).collect();
    let (clock, bound) = (SystemClock::new(), Duration::from_secs(60));
    let answers = within(&clock, bound, store.append(batch)).await.expect("every append must be answered");
    for answer in answers {
        let kind = kind(answer);
        assert!(matches!(kind, ErrorKind::Indeterminate | ErrorKind::Unavailable), "{kind:?}");
    }
    let others = async {
        assert_eq!(kind(store.load(&log.key, At::Latest).await), ErrorKind::Unavailable);
        assert_eq!(kind(store.runs(&RunQuery::default(), Page::first(10)).await), ErrorKind::Unavailable);
        let said = store.relay().unwrap().publish(vec!["text".to_owned()]).await;
        assert_eq!(kind(said), ErrorKind::Unavailable);
    };
    within(&clock, bound, others).await.expect("every call must be answered");
    server.resume().unwrap();
    let loaded = surely(async || store.load(&log.key, At::Latest).await).await.unwrap();
    assert_eq!(loaded, Some(log.records));
}

/// Calls that wait for the first connection wait concurrently.
///
/// Guarantees: NATS-4.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn concurrent_callers_wait_once_for_first_connection() {
    let server = NatsServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url());
    surely(async || place.store().setup().await).await.unwrap();
    let store = place.store_with(place.options().with_connect_timeout(Duration::from_millis(500)));
    server.suspend().unwrap();
    let log = log_of("r-1");
    let calls = join_all((0..1_000).map(|_| store.head(&log.key)));
    let answers = within(&SystemClock::new(), Duration::from_secs(60), calls).await;
    for answer in answers.expect("every call must be answered") {
        assert_eq!(kind(answer), ErrorKind::Unavailable);
    }
    server.resume().unwrap();
    assert_eq!(surely(async || store.head(&log.key).await).await.unwrap(), None);
}

/// A process reports that it listens only while it can receive notices.
///
/// Guarantees: NATS-14.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn disconnected_process_does_not_claim_to_listen() {
    let server = NatsServer::start(Server::default()).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let place = Place::at(&server.url());
    let options = place.options().with_connect_timeout(Duration::from_millis(500));
    let (store, other) = (NatsStore::from_url(&proxy.url(&server.url()), options).unwrap(), place.store());
    drop(surely(async || store.relay().unwrap().listen().await).await.unwrap());
    proxy.refuse();
    proxy.cut(ConnectionCut::Reset);
    assert_eq!(kind(store.relay().unwrap().listen().await), ErrorKind::Unavailable);
    proxy.accept().unwrap();
    let mut texts = surely(async || store.relay().unwrap().listen().await).await.unwrap();
    other.relay().unwrap().publish(vec!["text".to_owned()]).await.unwrap();
    assert_eq!(texts.next().await.unwrap().as_deref(), Some("text"));
}

/// A store reconnects and receives notices after the runtime of its first use has ended.
///
/// Guarantees: NATS-14.
#[test]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
fn store_survives_runtime_of_first_call() {
    let server = NatsServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url());
    let store = place.store();
    let mut log = log_of("r-1");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let is_heard = async |text: &str| {
        let mut texts = store.relay().unwrap().listen().await.unwrap();
        place.store().relay().unwrap().publish(vec![text.to_owned()]).await.unwrap();
        assert_eq!(texts.next().await.unwrap().as_deref(), Some(text));
    };
    let first = runtime();
    first.block_on(async {
        store.setup().await.unwrap();
        let append = log.next(1);
        append_one(&store, &append).await.unwrap();
        log.note_append(&append);
        is_heard("first").await;
    });
    drop(first);
    runtime().block_on(async {
        // The cached state of the run was read over the lost connection.
        let append = log.next(1);
        append_one(&store, &append).await.unwrap();
        log.note_append(&append);
        store.setup().await.unwrap();
        is_heard("second").await;
        is_kept(&log, &store).await;
    });
}
