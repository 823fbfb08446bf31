//! The cost of calls in requests and memory, and their behavior under load.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::common::author::{append_one, fresh_id, is_kept, log_of, spawn};
use crate::common::{Place, connect};
use ferrata_store::{
    At, CheckpointStore, Clock, ExecutorId, HeaderRange, NodeName, Page, RecordKind, RunFilter, RunQuery,
    RunStatus, Seq, SystemClock, Visit,
};
use ferrata_store_redis::RedisStore;
use ferrata_test_servers::{Proxy, RedisServer, RedisServerOptions as Server};
use ferrata_testing::Log;

/// A server whose requests are counted.
struct Counted {
    server: RedisServer,
    proxy: Proxy,
    place: Place,
}

impl Counted {
    fn new() -> Self {
        let server = RedisServer::start(Server::default()).unwrap();
        let proxy = Proxy::start(server.address()).unwrap();
        let place = Place::at(&server.url(), false);
        Self { server, proxy, place }
    }

    /// A store that is connected, on a server that knows the scripts.
    async fn store(&self) -> RedisStore {
        // Repairs would change the number of requests.
        let options = self.place.options().with_repair_every(std::time::Duration::ZERO);
        let store = RedisStore::from_url(&self.proxy.url(&self.server.url()), options).unwrap();
        let mut author = log_of("warm-up");
        store.setup().await.unwrap();
        author.write(&store, 1).await;
        author.write_with(&store, 1, |header| header.status = RunStatus::Completed).await;
        is_kept(&author, &store).await;
        store.purge(&author.key, None).await.unwrap();
        store
    }

    /// A store without setup.
    fn divided(&self) -> RedisStore {
        let url = self.proxy.url(&self.server.url());
        RedisStore::from_url(&url, self.place.options()).unwrap()
    }

    async fn requests<T>(&self, call: impl Future<Output = T>) -> (u64, T) {
        let before = self.proxy.requests();
        let result = call.await;
        (self.proxy.requests() - before, result)
    }

    /// Number of executions of this command.
    async fn ran(&self, command: &str) -> u64 {
        let mut connection = connect(&self.server.url()).await;
        let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }
}

/// Guarantees: REDIS-15, SCALE-1.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn calls_cost_what_the_documentation_says() {
    let counted = Counted::new();
    let store = counted.store().await;
    let mut author = log_of("r-1");
    let start = counted.requests(author.write(&store, 1)).await.0;
    let step = counted.requests(author.write(&store, 1)).await.0;
    let end = counted.requests(author.write_with(&store, 1, |h| h.status = RunStatus::Completed)).await.0;
    let head = counted.requests(store.head(&author.key)).await.0;
    let load = counted.requests(store.load(&author.key, At::Latest)).await.0;
    assert_eq!((start, step, end, head, load), (1, 1, 1, 1, 1));
    // If the store does not know that one server has all keys, as in a cluster, it changes the index separately.
    let divided = counted.divided();
    let mut author = log_of("r-2");
    author.write(&divided, 1).await;
    let step = counted.requests(author.write(&divided, 1)).await.0;
    let end = counted.requests(author.write_with(&divided, 1, |h| h.status = RunStatus::Completed)).await.0;
    let mut author = log_of("r-3");
    let start = counted.requests(author.write(&divided, 1)).await.0;
    assert_eq!((start, step, end), (2, 1, 3));
    // Another process does not know the run's current index entry yet.
    let other = counted.store().await;
    let mut author = log_of("r-4");
    author.write(&store, 1).await;
    assert_eq!(counted.requests(author.write(&other, 1)).await.0, 2, "a read, and the append");
    assert_eq!(counted.requests(author.write(&other, 1)).await.0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_hundred_appends_go_together() {
    let counted = Counted::new();
    let store = counted.store().await;
    let mut authors: Vec<Log> = (0..100).map(|n| log_of(&format!("r-{n}"))).collect();
    for (what, most) in [("starts", 2), ("steps", 1)] {
        let batch: Vec<_> = authors.iter().map(|author| author.next(1)).collect();
        let (requests, results) = counted.requests(store.append(batch.clone())).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        // The server may answer the first commands while the last are in flight, and then the proxy counts another request.
        assert!(requests <= 4 * most, "{requests} requests for a batch of a hundred {what}");
        for (author, append) in authors.iter_mut().zip(batch) {
            author.note_append(&append);
        }
    }
    // The same with a hundred concurrent calls.
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let mut tasks = tokio::task::JoinSet::new();
    for mut author in authors {
        let store = store.clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                let append = author.next(1);
                append_one(&store, &append).await.unwrap();
                author.note_append(&append);
            }
            author
        });
    }
    let authors = tasks.join_all().await;
    let took = clock.monotonic() - began;
    println!("1,000 appends on 100 runs at once: {took:?}");
    for author in authors {
        is_kept(&author, &store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn repeated_script_flushes_do_not_stop_writes() {
    let counted = Counted::new();
    let store = counted.store().await;
    let (over, flushed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let flushing = {
        let (over, flushed) = (Arc::clone(&over), Arc::clone(&flushed));
        let mut connection = connect(&counted.server.url()).await;
        spawn(async move {
            while !over.load(Ordering::Relaxed) {
                redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.unwrap();
                flushed.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (store, flushed) = (store.clone(), Arc::clone(&flushed));
        tasks.spawn(async move {
            let mut author = log_of(&format!("r-{n}"));
            // Continue until the scripts were flushed often enough during use.
            while author.records.len() < 100 || flushed.load(Ordering::Relaxed) < 50 {
                author.write(&store, 1).await;
            }
            author
        });
    }
    let authors = tasks.join_all().await;
    over.store(true, Ordering::Relaxed);
    flushing.await.unwrap();
    for author in authors {
        is_kept(&author, &store).await;
    }
}

/// Guarantees: REDIS-15.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn ten_thousand_records_page_in_one_request_each() {
    let counted = Counted::new();
    let store = counted.store().await;
    let mut author = log_of("r-1");
    for _ in 0..10 {
        author.write(&store, 1_000).await;
    }
    for start in [HeaderRange::oldest(1_000), HeaderRange::newest(1_000)] {
        let (mut range, mut seen, mut answers) = (Some(start), 0, 0);
        while let Some(asked) = range {
            let (requests, listed) = counted.requests(store.headers(&author.key, asked)).await;
            let listed = listed.unwrap();
            assert_eq!(requests, 1, "one request per answer");
            (seen, answers) = (seen + listed.items.len(), answers + 1);
            range = asked.after(&listed);
        }
        assert_eq!((seen, answers), (10_000, 10), "{start:?}");
    }
    for at in [At::Latest, At::Seq(Seq::new(5_000)), At::Record(author.records[3].header.id)] {
        assert_eq!(counted.requests(store.load(&author.key, at)).await.0, 1, "{at}");
    }
}

/// With long bodies, a page of headers is shorter, so that it does not block the server. The listing continues on the next page.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn history_of_long_bodies_has_shorter_pages() {
    let counted = Counted::new();
    let store = counted.store().await;
    let mut author = log_of("r-1");
    for _ in 0..30 {
        let append = author.next_as(1, vec![b'x'; 1 << 20], |_| {});
        append_one(&store, &append).await.unwrap();
        author.note_append(&append);
    }
    for range in [HeaderRange::newest(1_000), HeaderRange::oldest(1_000)] {
        let answer = store.headers(&author.key, range).await.unwrap();
        let more = range.after(&answer);
        assert!(answer.items.len() < 30 && more.is_some(), "{} headers at once", answer.items.len());
    }
    is_kept(&author, &store).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn orphan_search_does_not_read_every_run() {
    let counted = Counted::new();
    let store = counted.store().await;
    let alive = ExecutorId::from_uuid(*fresh_id().as_uuid());
    let dead = ExecutorId::from_uuid(*fresh_id().as_uuid());
    store.heartbeat(&alive, std::time::Duration::from_secs(600)).await.unwrap();
    for n in 0..300 {
        let mut author = log_of(&format!("r-{n}"));
        let shape = |header: &mut ferrata_store::RecordHeader| match n % 100 {
            0 => header.owner = Some(dead),
            1..50 => header.owner = Some(alive),
            _ => header.status = RunStatus::Completed,
        };
        author.write_with(&store, 1, shape).await;
    }
    let before = counted.ran("lindex").await;
    let mut query = RunQuery::default();
    query.filter = RunFilter::Orphaned;
    let found = store.runs(&query, Page::first(100)).await.unwrap().items;
    assert_eq!(found.len(), 3);
    let looked = counted.ran("lindex").await - before;
    assert!((3..=9).contains(&looked), "{looked} parts of heads were read for three orphans of 300 runs");
}

/// The target: at most 350 bytes per step in addition to its body. A server packs a list into nodes of 8 KiB, so larger bodies leave space unused
/// unless its nodes are larger.
///
/// Guarantees: REDIS-15.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_step_takes_no_more_memory_than_promised() {
    let owner = ExecutorId::from_uuid(*fresh_id().as_uuid());
    for (node, goals) in [
        ("-2", [(0, 120), (100, 120), (300, 120), (1_000, 200), (4_000, 350)]),
        ("-4", [(0, 120), (100, 120), (300, 120), (1_000, 200), (4_000, 350)]),
    ] {
        let server =
            RedisServer::start(Server::default().with_args(["--list-max-listpack-size", node])).unwrap();
        let place = Place::at(&server.url(), false);
        let store = place.store();
        for (size, goal) in goals {
            let mut author = log_of(&format!("r-{size}"));
            let shape = |header: &mut ferrata_store::RecordHeader| {
                header.kind = RecordKind::Node;
                header.node = Some(NodeName::new("write_review").unwrap());
                header.visit = Some(Visit::new(12));
                header.owner = Some(owner);
            };
            author.write_with(&store, 1, shape).await;
            let before = memory(&place, &author).await;
            for _ in 0..1_000 {
                let append = author.next_as(1, vec![b'x'; size], shape);
                append_one(&store, &append).await.unwrap();
                author.note_append(&append);
            }
            let step = (memory(&place, &author).await - before) / 1_000 - i64::try_from(size).unwrap();
            println!("nodes of {node}: {step} bytes a step over a body of {size}; a new run takes {before}");
            assert!(step <= goal, "{step} bytes per step with a body of {size} and nodes of {node}");
        }
    }
}

async fn memory(place: &Place, author: &Log) -> i64 {
    let usage =
        redis::cmd("MEMORY").arg("USAGE").arg(place.key(&author.key)).arg("SAMPLES").arg(0).to_owned();
    redis::from_redis_value(place.ask(&usage).await).unwrap()
}
