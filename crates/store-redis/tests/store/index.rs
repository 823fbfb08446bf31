//! The index can lag, lose entries and have extra ones: no run is missing from listings forever, and none is listed wrongly.
use std::time::Duration;

use crate::common::Place;
use crate::common::author::{
    append_one, append_surely, eventually, fresh_id, is_kept, kind, log_of, mark, spawn,
};
use ferrata_store::{
    At, CheckpointStore, ErrorKind, ExecutorId, Labels, Page, Parent, RecordHeader, RunFilter, RunKey,
    RunQuery, RunStatus, Timestamp,
};
use ferrata_store_redis::RedisStore;
use ferrata_test_servers::{
    FaultEffect, FaultPosition as In, FaultTrigger, Proxy, ProxyFault, RedisServer,
    RedisServerOptions as Server, Service,
};
use ferrata_testing::Log;

fn query(shape: impl FnOnce(&mut RunQuery)) -> RunQuery {
    let mut query = RunQuery::default();
    shape(&mut query);
    query
}

fn status(status: RunStatus) -> RunQuery {
    query(|query| query.statuses = vec![status])
}

async fn listed(store: &RedisStore, query: &RunQuery) -> Vec<RunKey> {
    let mut runs: Vec<_> = store.runs(query, Page::first(1_000)).await.unwrap().items;
    runs.sort_by(|one, other| one.run.cmp(&other.run));
    runs.into_iter().map(|head| head.run).collect()
}

/// The queries of every set of the index.
fn queries(owner: ExecutorId) -> Vec<RunQuery> {
    let mut queries: Vec<_> = RunStatus::ALL.into_iter().map(status).collect();
    queries.extend([
        RunQuery::default(),
        query(|query| query.filter = RunFilter::Orphaned),
        query(|query| query.filter = RunFilter::Due),
        query(|query| query.owner = Some(owner)),
        query(|query| query.labels = vec![("k {*}".to_owned(), "v' é".to_owned())]),
        query(|query| query.workflow = Some(log_of("r").facts.workflow)),
        query(|query| query.tenant = Some(log_of("r").key.tenant)),
        query(|query| query.parent = Some(log_of("r-0").key)),
    ]);
    queries
}

/// Creates runs in every state.
async fn runs_everywhere(store: &RedisStore, owner: ExecutorId) -> Vec<Log> {
    let mut authors = Vec::new();
    for n in 0..12 {
        let mut author = log_of(&format!("r-{n}"));
        let mut labels = Labels::default();
        labels.insert("k {*}", if n % 2 == 0 { "v' é" } else { "other" }).unwrap();
        author.facts = author.facts.with_labels(labels);
        if let Some(first) = authors.first().filter(|_| n % 3 == 0) {
            let first: &Log = first;
            let parent = Parent { run: first.key.clone(), at: first.head().unwrap() };
            author.facts = author.facts.with_parent(parent);
        }
        author.write(store, 1).await;
        let shape = |header: &mut RecordHeader| {
            header.status = RunStatus::ALL[n % 6];
            header.owner = (n % 6 == 0 && n > 0).then_some(owner);
            header.wake_at = (n % 4 == 3).then_some(Timestamp::from_unix_ms(1));
        };
        author.write_with(store, 1, shape).await;
        authors.push(author);
    }
    authors
}

/// Removes the index completely and in parts, and rebuilds it.
async fn a_lost_index_is_made_anew(service: Service) {
    let place = Place::on(service);
    let owner = ExecutorId::from_uuid(*fresh_id().as_uuid());
    let store = place.store();
    store.setup().await.unwrap();
    let authors = runs_everywhere(&store, owner).await;
    let mut expected = Vec::new();
    for query in queries(owner) {
        let runs = listed(&store, &query).await;
        assert!(!runs.is_empty(), "{query:?}");
        expected.push((query, runs));
    }
    let index: Vec<String> = place.keys().await.into_iter().filter(|key| key.contains("{index-")).collect();
    // Remove all keys, and then each key alone.
    let mut losses = vec![index.clone()];
    losses.extend(index.into_iter().map(|key| vec![key]));
    for (n, lost) in losses.into_iter().enumerate() {
        place.delete(&lost).await;
        if n == 0 {
            assert!(
                listed(&store, &RunQuery::default()).await.is_empty(),
                "listings must come from the index"
            );
        }
        if n % 2 == 0 {
            assert_eq!(store.repair().await.unwrap(), 12);
        } else {
            // The next process does this if it starts when a repair is due.
            place.store_with(place.options().with_repair_every(Duration::ZERO)).setup().await.unwrap();
        }
        for (query, runs) in &expected {
            assert_eq!(listed(&store, query).await, *runs, "{query:?} without {lost:?}");
        }
    }
    for author in &authors {
        is_kept(author, &store).await;
    }
    place.remove().await;
}

/// Guarantees: REDIS-13.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn lost_server_index_is_rebuilt() {
    a_lost_index_is_made_anew(Service::Redis).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn lost_cluster_index_is_rebuilt() {
    a_lost_index_is_made_anew(Service::RedisCluster).await;
}

/// If another program has overwritten a key, the other runs still enter the index.
///
/// Guarantees: REDIS-13.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn foreign_key_type_does_not_stop_repair() {
    let place = Place::on(Service::Redis);
    let store = place.store_with(place.options().with_repair_every(Duration::ZERO));
    let [mut lost, mut kept] = ["r-1", "r-2"].map(log_of);
    for author in [&mut lost, &mut kept] {
        author.write(&store, 1).await;
    }
    place.ask(redis::cmd("SET").arg(place.key(&lost.key)).arg("of another program")).await;
    // First with the entries of both, and then without any.
    for _ in 0..2 {
        store.repair().await.unwrap();
        store.setup().await.unwrap();
        assert_eq!(listed(&store, &RunQuery::default()).await, [kept.key.clone()]);
        let index: Vec<String> =
            place.keys().await.into_iter().filter(|key| key.contains("{index-")).collect();
        place.delete(&index).await;
    }
    store.repair().await.unwrap();
    is_kept(&kept, &store).await;
    place.remove().await;
}

/// A run that is missing in every set is entered again by its next change, without a repair.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn next_change_restores_lost_index_entry() {
    let place = Place::on(Service::Redis);
    let store = place.store();
    let mut author = log_of("r-1");
    author.write(&store, 1).await;
    let index: Vec<String> = place.keys().await.into_iter().filter(|key| key.contains("{index-")).collect();
    place.delete(&index).await;
    author.write_with(&place.store(), 1, |header| header.status = RunStatus::Failed).await;
    is_kept(&author, &store).await;
    place.remove().await;
}

/// One process repairs the index while the others continue.
///
/// Guarantees: REDIS-13.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn setup_repairs_index_only_when_due() {
    let place = Place::on(Service::Redis);
    let repaired = || async {
        let mark = place.ask(redis::cmd("GET").arg(format!("{}:repaired", place.prefix))).await;
        redis::from_redis_value::<Option<String>>(mark).unwrap()
    };
    place.store().setup().await.unwrap();
    eventually("the end of the first repair", async || repaired().await.as_deref() == Some("done")).await;
    let mut author = log_of("r-1");
    author.write(&place.store(), 1).await;
    let index: Vec<String> = place.keys().await.into_iter().filter(|key| key.contains("{index-")).collect();
    place.delete(&index).await;
    place.store().setup().await.unwrap();
    assert!(listed(&place.store(), &RunQuery::default()).await.is_empty(), "a repair was done a moment ago");
    place.ask(redis::cmd("DEL").arg(format!("{}:repaired", place.prefix))).await;
    let store = place.store();
    store.setup().await.unwrap();
    eventually("a repair", async || listed(&store, &RunQuery::default()).await.len() == 1).await;
    is_kept(&author, &store).await;
    place.remove().await;
}

struct Cut {
    server: RedisServer,
    proxy: Proxy,
}

impl Cut {
    fn new() -> Self {
        let server = RedisServer::start(Server::default()).unwrap();
        let proxy = Proxy::start(server.address()).unwrap();
        Self { server, proxy }
    }

    fn place(&self) -> Place {
        Place::at(&self.server.url(), false)
    }

    /// A store without setup does not know whether one server has all keys. So it announces a run before the append and settles its entry afterwards,
    /// as in a cluster.
    fn through(&self, place: &Place) -> RedisStore {
        let options = place.options().with_repair_every(Duration::ZERO);
        RedisStore::from_url(&self.proxy.url(&self.server.url()), options).unwrap()
    }
}

async fn size(place: &Place, set: &str) -> i64 {
    let size = place.ask(redis::cmd("ZCARD").arg(format!("{}:{{index-0}}:{set}", place.prefix))).await;
    redis::from_redis_value(size).unwrap()
}

/// Guarantees: REDIS-12.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn announced_unwritten_start_is_unlisted_and_expires() {
    let cut = Cut::new();
    let place = cut.place();
    let store = cut.through(&place);
    let mut author = log_of("r-1");
    let append = author.next(1);
    let id = mark(&append);
    cut.proxy
        .arm(FaultTrigger::containing(id), ProxyFault { place: In::RequestByte(0), act: FaultEffect::Reset });
    assert_eq!(kind(append_one(&store, &append).await), ErrorKind::Indeterminate);
    assert_eq!(
        (size(&place, "all").await, size(&place, "s:in_progress").await),
        (1, 1),
        "the run must be announced"
    );
    let patient = place.store();
    assert!(listed(&patient, &RunQuery::default()).await.is_empty(), "the run must not exist");
    assert_eq!(size(&place, "all").await, 1, "a writer may be about to write it");
    // The run is listed at once when the writer continues.
    append_surely(&store, &append).await.unwrap();
    author.note_append(&append);
    is_kept(&author, &patient).await;

    let other = log_of("r-2");
    let append = other.next(1);
    let id = mark(&append);
    cut.proxy
        .arm(FaultTrigger::containing(id), ProxyFault { place: In::RequestByte(0), act: FaultEffect::Reset });
    assert_eq!(kind(append_one(&store, &append).await), ErrorKind::Indeterminate);
    assert_eq!(size(&place, "all").await, 2);
    let hasty = place.store_with(place.options().with_stale_after(Duration::ZERO));
    assert_eq!(listed(&hasty, &RunQuery::default()).await, [author.key.clone()]);
    assert_eq!(
        (size(&place, "all").await, size(&place, "s:in_progress").await),
        (1, 1),
        "the entry must expire"
    );
    is_kept(&author, &hasty).await;
}

/// A reader finds no run for a young index entry, and its reply takes longer than the grace period. The reader must not remove the entry, because the
/// record may have been written in between, and a run without an entry is in no listing.
///
/// Guarantees: REDIS-12.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn slow_reader_preserves_young_index_entry() {
    // Longer than a busy machine needs until the reader checks.
    const GRACE: Duration = Duration::from_secs(6);
    let cut = Cut::new();
    let place = cut.place();
    let options = place.options().with_stale_after(GRACE).with_response_timeout(GRACE * 10);
    let reader = RedisStore::from_url(&cut.proxy.url(&cut.server.url()), options).unwrap();
    assert!(listed(&reader, &RunQuery::default()).await.is_empty());
    let store = cut.through(&place);
    let append = log_of("r-1").next(1);
    let id = mark(&append);
    cut.proxy
        .arm(FaultTrigger::containing(id), ProxyFault { place: In::RequestByte(0), act: FaultEffect::Reset });
    assert_eq!(kind(append_one(&store, &append).await), ErrorKind::Indeterminate);
    assert_eq!(size(&place, "all").await, 1, "the run must be announced");

    let name = format!("{},{}", append.run.tenant, append.run.run);
    cut.proxy.arm(
        FaultTrigger::containing(name),
        ProxyFault { place: In::ReplyByte(0), act: FaultEffect::Delay(GRACE + GRACE / 8) },
    );
    assert!(listed(&reader, &RunQuery::default()).await.is_empty(), "the run must not exist");
    assert_eq!(cut.proxy.done().len(), 2, "the reply must be late");
    assert_eq!(size(&place, "all").await, 1, "the record may have been written in between");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn losing_start_leaves_no_index_entry() {
    let place = Place::on(Service::Redis);
    let store = place.store();
    let (mut winner, mut loser) = (log_of("r-1"), log_of("r-1"));
    loser.facts.created = Timestamp::from_unix_ms(5);
    winner.write(&store, 1).await;
    assert_eq!(kind(append_one(&place.store(), &loser.next(1)).await), ErrorKind::Conflict);
    is_kept(&winner, &store).await;
    assert_eq!((size(&place, "all").await, size(&place, "s:in_progress").await), (1, 1));
    place.remove().await;
}

/// Guarantees: REDIS-12.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn stale_index_position_is_ignored_and_removed() {
    let cut = Cut::new();
    let place = cut.place();
    let store = cut.through(&place);
    let mut author = log_of("r-1");
    author.write(&store, 1).await;
    cut.proxy.arm(
        FaultTrigger::containing("settle"),
        ProxyFault { place: In::RequestByte(0), act: FaultEffect::Reset },
    );
    // The record is still written and acknowledged.
    author.write_with(&store, 1, |header| header.status = RunStatus::Completed).await;
    assert_eq!(cut.proxy.done().len(), 1);
    assert_eq!((size(&place, "s:in_progress").await, size(&place, "s:completed").await), (1, 1));
    let reader = place.store();
    assert!(listed(&reader, &status(RunStatus::InProgress)).await.is_empty(), "the run must be completed");
    assert_eq!(size(&place, "s:in_progress").await, 0, "its entry must be removed");
    is_kept(&author, &reader).await;
}

/// Four processes compete to change a run's status. Afterwards the index contains the run only under the status of its head.
///
/// Guarantees: REDIS-11.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_run_that_changes_fast_is_never_lost() {
    let place = Place::on(Service::Redis);
    let mut author = log_of("r-1");
    author.write(&place.store(), 1).await;
    let run = author.key.clone();
    let tasks: Vec<_> = (0..4)
        .map(|n: usize| {
            let (store, mut author) = (place.store(), author.clone());
            spawn(async move {
                // Some change the index together with the run, and others before and after it.
                if n.is_multiple_of(2) {
                    store.setup().await.unwrap();
                }
                for round in 0..100 {
                    let loaded = store.load(&author.key, At::Latest).await.unwrap().unwrap();
                    author.records = loaded;
                    let status = RunStatus::ALL[(n * 7 + round) % 6];
                    let append = author.next_as(1, b"", |header| header.status = status);
                    match append_one(&store, &append).await {
                        Ok(_) => {}
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
                    }
                    // After a write or a read of the head, a listing for this status contains the run, unless the head has changed since.
                    let head = store.head(&author.key).await.unwrap().unwrap();
                    let query = self::status(head.status);
                    let found = store.runs(&query, Page::default()).await.unwrap().items;
                    let now = store.head(&author.key).await.unwrap().unwrap();
                    assert!(now.seq != head.seq || !found.is_empty(), "missing in {query:?} at {}", head.seq);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let store = place.store();
    let head = store.head(&run).await.unwrap().unwrap();
    for of in RunStatus::ALL {
        let found = listed(&store, &status(of)).await;
        assert_eq!(found.is_empty(), of != head.status, "{of}");
        assert_eq!(size(&place, &format!("s:{of}")).await, i64::from(of == head.status), "{of}");
    }
    place.remove().await;
}

/// If one server has all keys, the index changes atomically with the run, and a reader needs no repair.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn single_server_index_matches_run_head() {
    let place = Place::on(Service::Redis);
    let store = place.store();
    store.setup().await.unwrap();
    let owner = ExecutorId::from_uuid(*fresh_id().as_uuid());
    let (mut author, mut loser) = (log_of("r-1"), log_of("r-1"));
    author.write(&store, 1).await;
    loser.facts.created = Timestamp::from_unix_ms(5);
    assert_eq!(kind(append_one(&store, &loser.next(1)).await), ErrorKind::Conflict);
    let stale = author.next_as(1, b"", |header| header.status = RunStatus::Cancelled);
    for round in 0..12 {
        let (status, wake_at) = (RunStatus::ALL[round % 6], (round % 4 == 1).then_some(1));
        let shape = |header: &mut RecordHeader| {
            header.status = status;
            header.owner = round.is_multiple_of(3).then_some(owner);
            header.wake_at = wake_at.map(Timestamp::from_unix_ms);
        };
        author.write_with(&store, 1, shape).await;
        assert_eq!(kind(append_one(&store, &stale).await), ErrorKind::Conflict);
        for of in RunStatus::ALL {
            assert_eq!(
                size(&place, &format!("s:{of}")).await,
                i64::from(of == status),
                "{of} in round {round}"
            );
        }
        let owned = round.is_multiple_of(3);
        assert_eq!(size(&place, &format!("o:{owner}")).await, i64::from(owned), "round {round}");
        let nobodys = !owned && status == RunStatus::InProgress;
        assert_eq!(size(&place, "o:-").await, i64::from(nobodys), "round {round}");
        // A finished run with a wake-up time has outbox messages to deliver.
        let is_due = wake_at.is_some();
        assert_eq!(size(&place, "due").await, i64::from(is_due), "round {round}");
        assert_eq!(size(&place, "all").await, 1);
    }
    is_kept(&author, &store).await;
    place.remove().await;
}

async fn nothing_is_left(service: Service) {
    let place = Place::on(service);
    let store = place.store();
    store.setup().await.unwrap();
    let owner = ExecutorId::from_uuid(*fresh_id().as_uuid());
    for author in runs_everywhere(&store, owner).await {
        store.purge(&author.key, None).await.unwrap();
    }
    let left = place.keys().await;
    let expected = ["layout", "repaired"].map(|key| format!("{}:{key}", place.prefix));
    assert_eq!(left, expected, "entries after every run was purged");
    place.remove().await;
}

/// Guarantees: REDIS-9.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn purging_all_runs_empties_server() {
    nothing_is_left(Service::Redis).await;
}

/// Guarantees: REDIS-9.
#[tokio::test]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn purging_all_runs_empties_cluster() {
    nothing_is_left(Service::RedisCluster).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn finished_runs_expire_and_others_stay() {
    let place = Place::on(Service::Redis);
    const HOUR: Duration = Duration::from_secs(3_600);
    let store = place.store_with(place.options().with_keep_finished(HOUR));
    let options = place.options().with_keep_finished(Duration::from_millis(400));
    let brief = place.store_with(options.clone());
    let left = async |author: &Log| -> i64 {
        let key = place.key(&author.key);
        redis::from_redis_value(place.ask(redis::cmd("PTTL").arg(&key)).await).unwrap()
    };
    let [mut done, mut again, mut open] = ["done", "again", "open"].map(log_of);
    for author in [&mut done, &mut again, &mut open] {
        author.write(&store, 2).await;
    }
    // A finished run expires after its time, and a retry makes it active again.
    again.write_with(&store, 1, |header| header.status = RunStatus::Failed).await;
    is_kept(&again, &store).await;
    let most = i64::try_from(HOUR.as_millis()).unwrap();
    assert!((most / 2..=most).contains(&left(&again).await), "{} ms remain", left(&again).await);
    again.write(&store, 1).await;
    done.write_with(&brief, 1, |header| header.status = RunStatus::Completed).await;
    eventually("the end of a finished run", async || store.head(&done.key).await.unwrap().is_none()).await;
    done.records.clear();
    is_kept(&done, &store).await;
    assert_eq!(size(&place, "all").await, 3, "the entry of the purged run must expire, too");
    let hasty = place.store_with(options.with_stale_after(Duration::ZERO));
    is_kept(&done, &hasty).await;
    for author in [&again, &open] {
        is_kept(author, &store).await;
        assert_eq!(left(author).await, -1, "{} never expires", author.key);
    }
    assert_eq!(listed(&hasty, &RunQuery::default()).await, [again.key.clone(), open.key.clone()]);
    assert_eq!(size(&place, "all").await, 2, "the entry of the purged run must be gone");
    place.remove().await;
}

/// An incomplete purge, and then a new run with the same id: it is listed once, with the status of the new generation.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn entry_of_older_generation_is_not_current() {
    let cut = Cut::new();
    let place = cut.place();
    let store = cut.through(&place);
    store.setup().await.unwrap();
    let mut author = log_of("r-1");
    author.write(&store, 1).await;
    cut.proxy.arm(
        FaultTrigger::containing("forget"),
        ProxyFault { place: In::RequestByte(0), act: FaultEffect::Reset },
    );
    assert_eq!(kind(store.purge(&author.key, None).await), ErrorKind::Unavailable);
    assert_eq!(size(&place, "all").await, 1, "the entry must still exist");
    assert!(listed(&place.store(), &RunQuery::default()).await.is_empty(), "the run must not exist");
    let mut again = log_of("r-1");
    again.facts.created = Timestamp::from_unix_ms(5);
    again.write(&store, 1).await;
    assert_eq!(size(&place, "all").await, 2);
    is_kept(&again, &place.store()).await;
    // After its time, the old entry is removed, and the new one stays.
    let hasty = place.store_with(place.options().with_stale_after(Duration::ZERO));
    is_kept(&again, &hasty).await;
    assert_eq!(size(&place, "all").await, 1);
    is_kept(&again, &hasty).await;
}
