//! A run and a stream of one process, watched by another process that reconnects repeatedly. On every store, with and without notices.

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Runtime, WatchCursor, WatchEvent};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock, RunKey, SystemClock};
use ferrata_test_servers::Service;
use ferrata_tests::{Space, StoreKind};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of chunks that the node sends.
const CHUNKS: u64 = 12;

fn graph() -> Graph<Context> {
    Graph::<Context>::builder("speaker")
        .node("before", async |_cx, s| Ok(s))
        .node("speak", async |cx: NodeContext, s: Draft<Context>| {
            let mut tokens = cx.stream("tokens")?.durable();
            for number in 0..CHUNKS {
                tokens.send(number).await?;
                SystemClock::new().sleep(Duration::from_millis(15)).await;
            }
            tokens.finish().await?;
            Ok(s)
        })
        .node("after", async |_cx, s| Ok(s))
        .entry("before")
        .edge("before", "speak")
        .edge("speak", "after")
        .build()
        .unwrap()
}

fn shown(event: &WatchEvent) -> String {
    let chunks: Vec<_> = event.chunks().map(|chunk| chunk.data.get().to_owned()).collect();
    format!("{:?} {} {}", event.seq, event.kind(), chunks.join(" "))
}

async fn watched_from_another_process(space: &Space) {
    let key = RunKey::try_from("r").unwrap();
    let runtime = Runtime::builder_with(space.open()).build().await.unwrap();
    let other = Runtime::builder_with(space.open()).operator();
    let driving = async {
        let run = runtime.start(&graph(), Context::new()).id("r").await.unwrap();
        run.completed().await.unwrap();
    };
    let watching = async {
        let (mut told, mut numbers, mut cursor) = (Vec::new(), Vec::new(), WatchCursor::default());
        // The number of events before the watcher disconnects.
        for patience in (0..4).cycle() {
            let mut watch = other.watch(&key).after(cursor).before_start().await.unwrap();
            for _ in 0..=patience {
                match watch.next().await.unwrap() {
                    Some(event) => {
                        numbers.extend(event.chunks().map(|chunk| chunk.number));
                        told.push(shown(&event));
                    }
                    None => return (told, numbers),
                }
            }
            cursor = watch.cursor().to_string().parse().unwrap();
        }
        unreachable!("the watch must make progress")
    };
    let ((), (told, numbers)) = tokio::join!(driving, watching);
    assert_eq!(numbers, (0..CHUNKS).collect::<Vec<_>>());
    let (mut whole, mut watch) = (Vec::new(), runtime.watch(&key).await.unwrap());
    while let Some(event) = watch.next().await.unwrap() {
        whole.push(shown(&event));
    }
    assert_eq!(told, whole, "no event is missing or repeated");
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

/// A text that is invalid in a notice: longer than PostgreSQL accepts, with characters that end a text in JSON, SQL and C.
fn odd(number: u64) -> String {
    format!("{number} \0 ' \" \\ \u{1f6a2} {}", "\u{fc}\n".repeat(if number == 3 { 10_000 } else { 1 }))
}

/// A node that sends chunks until one is received, then a text that is invalid in a notice, and ends when that is received.
fn live(is_heard: &Arc<Semaphore>) -> Graph<Context> {
    let is_heard = Arc::clone(is_heard);
    let speak = move |cx: NodeContext, s: Draft<Context>| {
        let is_heard = Arc::clone(&is_heard);
        async move {
            let mut tokens = cx.stream("tokens")?;
            while is_heard.try_acquire().map(SemaphorePermit::forget).is_err() {
                tokens.send("is anyone there?").await?;
                SystemClock::new().sleep(Duration::from_millis(10)).await;
            }
            for number in 0..CHUNKS {
                tokens.send(odd(number)).await?;
            }
            tokens.finish().await?;
            is_heard.acquire().await.unwrap().forget();
            Ok(s)
        }
    };
    Graph::<Context>::builder("live").node("speak", speak).entry("speak").build().unwrap()
}

/// Live events reach another process if the store relays them: complete, in order, and before the end of the node.
async fn heard_in_another_process(space: &Space) {
    let key = RunKey::try_from("live").unwrap();
    let (store, is_heard) = (space.open(), Arc::new(Semaphore::new(0)));
    let passes_on = store.relay().is_some();
    let runtime = Runtime::builder_with(store).build().await.unwrap();
    let other = Runtime::builder_with(space.open()).operator();
    let mut watch = other.watch(&key).before_start().await.unwrap();
    let run = runtime.start(&live(&is_heard), Context::new()).id("live").await.unwrap();
    if !passes_on {
        is_heard.add_permits(2);
    }
    let (mut texts, mut last) = (Vec::new(), None);
    while let Some(event) = watch.next().await.unwrap() {
        for chunk in event.chunks() {
            if last.is_none() {
                is_heard.add_permits(1);
            }
            assert!(last.is_none_or(|last| chunk.number == last + 1), "{last:?} and then {}", chunk.number);
            last = Some(chunk.number);
            texts.push(chunk.read::<String>().unwrap());
            if texts.last() == Some(&odd(CHUNKS - 1)) {
                is_heard.add_permits(1);
            }
        }
    }
    run.completed().await.unwrap();
    assert_eq!(last.is_some(), passes_on);
    let said: Vec<_> = texts.into_iter().filter(|text| text != "is anyone there?").collect();
    let all: Vec<_> = (0..CHUNKS).map(odd).filter(|_| passes_on).collect();
    assert_eq!(said, all);
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

async fn from_another_process(space: &Space) {
    watched_from_another_process(space).await;
    heard_in_another_process(space).await;
}

macro_rules! on_each_store {
    ($($name:ident = $store:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            Space::within($store, from_another_process).await;
        }
    )*};
}

on_each_store! {
    a_run_is_watched_from_another_process_on_files = StoreKind::Files;
    a_run_is_watched_from_another_process_on_sqlite = StoreKind::Sqlite;
    a_run_is_watched_from_another_process_on_postgres = StoreKind::Server(Service::Postgres);
    a_run_is_watched_from_another_process_on_nats = StoreKind::Server(Service::Nats);
    a_run_is_watched_from_another_process_on_redis = StoreKind::Server(Service::Redis);
    a_run_is_watched_from_another_process_on_a_redis_cluster = StoreKind::Server(Service::RedisCluster);
    a_run_is_watched_from_another_process_on_s3 = StoreKind::Server(Service::S3);
}

#[tokio::test]
async fn sharded_run_is_watched_from_another_process() {
    Space::within_shards(from_another_process).await;
}
