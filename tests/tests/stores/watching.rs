//! A run and a stream that one process drives, watched from another that drops out all the time: on every store, with its notices or without.

use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Runtime, WatchCursor, WatchEvent};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock, RunKey, SystemClock};
use ferrata_test_servers::Service;
use ferrata_tests::{Space, StoreKind};

/// How many chunks its node sends.
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
        // How much it is told before it drops out.
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
        unreachable!("it goes round for ever")
    };
    let ((), (told, numbers)) = tokio::join!(driving, watching);
    assert_eq!(numbers, (0..CHUNKS).collect::<Vec<_>>());
    let (mut whole, mut watch) = (Vec::new(), runtime.watch(&key).await.unwrap());
    while let Some(event) = watch.next().await.unwrap() {
        whole.push(shown(&event));
    }
    assert_eq!(told, whole, "no gap and no double");
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

macro_rules! on_each_store {
    ($($name:ident = $store:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            Space::within($store, watched_from_another_process).await;
        }
    )*};
}

on_each_store! {
    a_run_is_watched_from_another_process_on_files = StoreKind::Files;
    a_run_is_watched_from_another_process_on_sqlite = StoreKind::Sqlite;
    a_run_is_watched_from_another_process_on_postgres = StoreKind::Server(Service::Postgres);
    a_run_is_watched_from_another_process_on_redis = StoreKind::Server(Service::Redis);
    a_run_is_watched_from_another_process_on_a_redis_cluster = StoreKind::Server(Service::RedisCluster);
    a_run_is_watched_from_another_process_on_s3 = StoreKind::Server(Service::S3);
}

#[tokio::test]
async fn a_run_is_watched_from_another_process_over_shards() {
    Space::within_shards(watched_from_another_process).await;
}
