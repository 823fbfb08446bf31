//! The connection is cut before, during and after every request, the server is killed during writes, and its file is truncated. No acknowledged
//! record is lost, and no record is doubled or partial.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::author::{
    append_one, append_surely, eventually, fresh_id, is_kept, kind, log_of, mark, spawn, surely,
};
use crate::common::{Place, connect};
use ferrata_store::{
    At, CheckpointStore, ErrorKind, ExecutorId, Page, PruneCut, RecordHeader, RecordKind, Result, RunQuery,
    RunStatus, Seq,
};
use ferrata_store_redis::RedisStore;
use ferrata_test_servers::{
    AppendFsync, FaultEffect, FaultPosition as In, FaultTrigger, Proxy, ProxyFault, RedisCluster,
    RedisServer, RedisServerOptions as Server,
};
use ferrata_testing::Log;

/// A process that continues after an error with the same instance, or with a new one without knowledge.
struct Process<'a> {
    place: &'a Place,
    store: RedisStore,
    dies: bool,
}

impl Process<'_> {
    async fn call<T>(&mut self, call: impl AsyncFn(&RedisStore) -> Result<T>) -> T {
        match call(&self.store).await {
            Err(error) if error.is_retryable() => {
                if self.dies {
                    self.store = self.place.store();
                }
                surely(async || call(&self.store).await).await.unwrap()
            }
            result => result.unwrap(),
        }
    }

    async fn append(&mut self, author: &mut Log, count: usize, shape: impl Fn(&mut RecordHeader)) {
        let append = author.next_as(count, b"{\"k\":1}", shape);
        self.call(async |store| append_one(store, &append).await).await;
        author.note_append(&append);
    }
}

/// Makes every kind of write in sequence. Returns the expected logs.
async fn story(process: &mut Process<'_>) -> Vec<Log> {
    let owner = ExecutorId::from_uuid(*fresh_id().as_uuid());
    let (mut run, mut other) = (log_of("r-1"), log_of("r-2"));
    process.call(async |store| store.setup().await).await;
    process.call(async |store| store.heartbeat(&owner, Duration::from_secs(60)).await).await;
    process.append(&mut run, 3, |_| {}).await;
    process.append(&mut run, 2, |_| {}).await;
    process.append(&mut run, 1, |header| header.status = RunStatus::Interrupted).await;
    let claim = |header: &mut RecordHeader| {
        header.kind = RecordKind::Claim;
        header.owner = Some(owner);
    };
    process.append(&mut run, 1, claim).await;
    process.append(&mut other, 2, |_| {}).await;

    let mut base = run.records[4].clone();
    base.header.base = true;
    let cut = PruneCut { at: Seq::new(4), base: Some(base.clone()) };
    process.call(async |store| store.prune(&run.key, cut.clone()).await).await;
    run.records[4] = base;

    // One batch with two runs, one of which ends.
    let batch = vec![run.next_as(2, b"", |header| header.status = RunStatus::Completed), other.next(1)];
    let heads =
        process.call(async |store| store.append(batch.clone()).await.into_iter().collect::<Result<Vec<_>>>());
    heads.await;
    for (author, append) in [&mut run, &mut other].into_iter().zip(batch) {
        author.note_append(&append);
    }
    process.call(async |store| store.purge(&other.key, None).await).await;
    other.records.clear();
    vec![run, other]
}

/// Guarantees: REDIS-5.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn connection_cut_at_any_request_applies_once() {
    let server = RedisServer::start(Server::default()).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let url = proxy.url(&server.url());
    // Repairs would change the number of requests.
    let options = |place: &Place| place.options().with_repair_every(Duration::ZERO);
    let open = |place: &Place| RedisStore::from_url(&url, options(place)).unwrap();

    // The second time, the server knows the scripts, as in each later story.
    let mut requests = 0;
    for _ in 0..2 {
        let place = Place::at(&server.url(), false);
        let before = proxy.requests();
        story(&mut Process { store: open(&place), place: &place, dies: false }).await;
        requests = proxy.requests() - before;
        place.remove().await;
    }
    assert!(requests >= 15, "{requests} requests are too few for the story");

    let mut happened = 0;
    for (request, at, dies, act) in cuts(requests) {
        let place = Place::at(&server.url(), false);
        proxy.arm(FaultTrigger::Request(request), ProxyFault { place: at, act });
        let what = format!("request {request}, {at:?}, dies: {dies}");
        happened += tell(&place, open(&place), dies, &proxy, (request, &what)).await;
    }
    let all = cuts(requests).count();
    println!("{happened} of {all} cuts happened");
    assert!(happened * 10 >= all * 9, "only {happened} of {all} cuts happened");
}

/// Every position in every request, for a process that continues and for one that dies.
fn cuts(requests: u64) -> impl Iterator<Item = (u64, In, bool, FaultEffect)> {
    let places = In::ALL.into_iter().zip([FaultEffect::Close, FaultEffect::Reset].into_iter().cycle());
    let both = places.flat_map(|(at, act)| {
        let other = if act == FaultEffect::Close { FaultEffect::Reset } else { FaultEffect::Close };
        [(at, false, act), (at, true, other)]
    });
    let both: Vec<_> = both.collect();
    (1..=requests).flat_map(move |request| {
        let of_request = move |(at, dies, act): (In, bool, FaultEffect)| (request, at, dies, act);
        both.clone().into_iter().map(of_request)
    })
}

/// Runs the story with a fault at this request, and checks the result. Returns 1 if the fault happened, and otherwise 0.
async fn tell(
    place: &Place,
    store: RedisStore,
    dies: bool,
    proxy: &Proxy,
    (request, what): (u64, &str),
) -> usize {
    let before = proxy.requests();
    let expected = story(&mut Process { store, place, dies }).await;
    // Disarm first, because the next check may use the same proxy.
    let happened = 1 - proxy.disarm();
    // The proxy may count two pipelined requests as one or two, so the number of requests can vary.
    let made = proxy.requests() - before;
    assert!(happened == 1 || made < request, "none of {made} requests was cut: {what}");
    let fresh = place.store();
    for author in &expected {
        is_kept(author, &fresh).await;
    }
    let listed = fresh.runs(&RunQuery::default(), Page::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1, "{what}");
    let left: Vec<_> = place.keys().await.into_iter().filter(|key| key.contains("r-2}")).collect();
    assert!(left.is_empty(), "{left:?} remain of a purged run, {what}");
    place.remove().await;
    happened
}

/// The same in a cluster. Its nodes announce the ports of proxies, so that every request goes through one.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn cluster_connection_cut_at_any_request_applies_once() {
    let cluster = RedisCluster::start(3).unwrap();
    let mut proxies = Vec::new();
    for node in cluster.nodes() {
        let proxy = Proxy::start(node.address()).unwrap();
        let mut connection = connect(&node.url()).await;
        let ports = [("bus-port", node.port() + 10_000), ("port", proxy.address().port())];
        for (name, port) in ports {
            let mut announce = redis::cmd("CONFIG");
            announce.arg("SET").arg(format!("cluster-announce-{name}")).arg(port);
            announce.exec_async(&mut connection).await.unwrap();
        }
        proxies.push(proxy);
    }
    let announced: Vec<String> = proxies.iter().map(|proxy| proxy.address().port().to_string()).collect();
    for node in cluster.nodes() {
        let connection = connect(&node.url()).await;
        eventually("the proxies' ports in every node's mind", async || {
            let mut connection = connection.clone();
            let nodes: String =
                redis::cmd("CLUSTER").arg("NODES").query_async(&mut connection).await.unwrap();
            announced.iter().all(|port| nodes.contains(&format!(":{port}@")))
        })
        .await;
    }
    // All stories use the same prefix, so that each node always has the same keys.
    let place = || Place { prefix: "cuts".to_owned(), ..Place::at(&proxies[0].url(&cluster.url()), true) };
    let open = |place: &Place| place.store_with(place.options().with_repair_every(Duration::ZERO));
    let mut requests = vec![0; 3];
    for _ in 0..2 {
        let before: Vec<u64> = proxies.iter().map(Proxy::requests).collect();
        let place = place();
        story(&mut Process { store: open(&place), place: &place, dies: false }).await;
        requests = proxies.iter().zip(before).map(|(proxy, before)| proxy.requests() - before).collect();
        place.remove().await;
    }
    let (mut happened, mut most) = (0, 0);
    for (node, requests) in requests.into_iter().enumerate() {
        assert!(requests >= 5, "{requests} requests to node {node} are too few for the story");
        // Alternate between a process that dies and one that continues, because a story in a cluster is slow.
        let turns = cuts(requests).filter(|(request, _, dies, _)| (request % 2 == 0) == *dies);
        for (request, at, dies, act) in turns {
            let place = place();
            proxies[node].arm(FaultTrigger::Request(request), ProxyFault { place: at, act });
            let what = format!("node {node}, request {request}, {at:?}, dies: {dies}");
            most += 1;
            happened += tell(&place, open(&place), dies, &proxies[node], (request, &what)).await;
        }
    }
    println!("{happened} of {most} cuts happened");
    assert!(happened * 10 >= most * 9, "only {happened} of {most} cuts happened");
}

/// Guarantees: REDIS-5.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn lost_acknowledgment_is_settled_by_record_id() {
    let server = RedisServer::start(Server::default()).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let place = Place::at(&server.url(), false);
    let store = RedisStore::from_url(&proxy.url(&server.url()), place.options()).unwrap();
    let mut author = log_of("r-1");
    author.write(&store, 2).await;
    for (at, written) in [(In::ReplyByte(0), true), (In::RequestByte(0), false)] {
        let append = author.next(2);
        // Only the append contains the id.
        let id = mark(&append);
        proxy.arm(FaultTrigger::containing(id), ProxyFault { place: at, act: FaultEffect::Reset });
        assert_eq!(kind(append_one(&store, &append).await), ErrorKind::Indeterminate);
        let head = place.store().head(&author.key).await.unwrap().map(|head| head.head());
        let last = append.records.last().map(|record| record.header.head());
        assert_eq!(head == last, written, "cut at {at:?}");
        append_surely(&store, &append).await.unwrap();
        author.note_append(&append);
        is_kept(&author, &store).await;
    }
    // Another writer appends before the retry: then it is a conflict, and the records exist once.
    let append = author.next(1);
    let id = mark(&append);
    proxy.arm(FaultTrigger::containing(id), ProxyFault { place: In::ReplyByte(0), act: FaultEffect::Reset });
    assert_eq!(kind(append_one(&store, &append).await), ErrorKind::Indeterminate);
    author.note_append(&append);
    author.write(&place.store(), 1).await;
    let refused = append_surely(&store, &append).await.unwrap_err();
    assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(author.head())));
    is_kept(&author, &store).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn hanging_server_is_indeterminate_after_timeout() {
    let server = RedisServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url(), false);
    let store = place.store_with(place.options().with_response_timeout(Duration::from_secs(5)));
    let mut author = log_of("r-1");
    author.write(&store, 1).await;
    let append = author.next(1);
    server.suspend().unwrap();
    assert_eq!(kind(append_one(&store, &append).await), ErrorKind::Indeterminate);
    server.resume().unwrap();
    append_surely(&store, &append).await.unwrap();
    author.note_append(&append);
    is_kept(&author, &store).await;
}

/// Guarantees: REDIS-2.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn killed_server_under_load_preserves_acknowledged_records() {
    let server = RedisServer::start(Server::default().with_appendfsync(AppendFsync::Always)).unwrap();
    let place = Place::at(&server.url(), false);
    let store = place.store();
    store.setup().await.unwrap();
    assert_eq!(store.persistence(), Some(ferrata_store_redis::Persistence::Always));
    assert!(store.capabilities().durable);
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let (store, over) = (store.clone(), Arc::clone(&over));
            spawn(async move {
                let mut author = log_of(&format!("r-{n}"));
                while !over.load(Ordering::Relaxed) {
                    let append = author.next(1 + author.records.len() % 3);
                    append_surely(&store, &append).await.unwrap();
                    author.note_append(&append);
                }
                author
            })
        })
        .collect();
    let watched = place.store();
    for _ in 0..5 {
        let at = watched.head(&log_of("r-0").key).await.ok().flatten().map_or(0, |head| head.seq.get());
        eventually("twenty more records", async || {
            let head = watched.head(&log_of("r-0").key).await.ok().flatten();
            head.is_some_and(|head| head.seq.get() > at + 20)
        })
        .await;
        server.kill().unwrap();
        server.restart().unwrap();
    }
    over.store(true, Ordering::Relaxed);
    for writer in writers {
        is_kept(&writer.await.unwrap(), &store).await;
    }
}

/// A truncated append-only file contains whole appends only.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_file_cut_short_anywhere_holds_whole_appends() {
    let server = RedisServer::start(Server::default().with_appendfsync(AppendFsync::Always)).unwrap();
    let place = Place::at(&server.url(), false);
    let mut author = log_of("r-1");
    let mut ends = vec![0];
    author.write(&place.store(), 1).await;
    for count in [3, 1, 4, 2] {
        ends.push(author.records.len());
        author.write(&place.store(), count).await;
    }
    ends.push(author.records.len());
    server.stop().unwrap();
    let folder = server.folder().join("appendonlydir");
    let file = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let file = file.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for cut in (0..40).map(|n| whole.len() * n / 40).rev() {
        std::fs::write(&file, &whole[..cut]).unwrap();
        server.restart().unwrap();
        let store = place.store();
        let loaded = store.load(&author.key, At::Latest).await.unwrap().unwrap_or_default();
        assert!(ends.contains(&loaded.len()), "{} records, half an append, cut at {cut}", loaded.len());
        assert_eq!(loaded, author.records[..loaded.len()], "cut at {cut}");
        let mut left = author.clone();
        left.records.truncate(loaded.len());
        store.repair().await.unwrap();
        is_kept(&left, &store).await;
        seen.insert(loaded.len());
        server.stop().unwrap();
    }
    assert!(seen.len() >= 4, "the cuts hit too few appends: {seen:?}");
}
