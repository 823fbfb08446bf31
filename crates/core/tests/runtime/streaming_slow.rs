//! Streams over a store that relays chunks slowly or rejects them: the end of a stream waits for a bounded time, and the node never waits.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Runtime, WatchEventKind};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, MemoryStore, Relay, RelayTexts, delegate};
use ferrata_core::{Clock as _, Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use super::watching::{all, key};
use super::world::World;

/// A store that publishes chunks when the test allows it, or never.
#[derive(Clone, Debug)]
struct Slow {
    inner: MemoryStore,
    permits: Arc<Semaphore>,
    refuses: Arc<AtomicBool>,
    /// Number of calls that asked to publish chunks.
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl Relay for Slow {
    async fn publish(&self, texts: Vec<String>) -> Result<()> {
        if texts.iter().any(|text| text.contains("Chunks")) {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.refuses.load(Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::Unavailable, "the connection is lost"));
            }
            self.permits.acquire().await.unwrap().forget();
        }
        self.inner.relay().unwrap().publish(texts).await
    }

    async fn listen(&self) -> Result<RelayTexts> {
        self.inner.relay().unwrap().listen().await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Slow {
    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn Relay> {
        Some(self)
    }

    delegate! {
        |this| this.inner;
        capabilities, setup, append, load, load_since, headers, head, runs, prune, purge, heartbeat,
        is_alive, transactions, part, subscribe
    }
}

/// A process that streams over such a store, and knows which runs other processes watch.
async fn slow(world: &World) -> (Slow, Runtime) {
    let slow = Slow {
        inner: world.store.clone(),
        permits: Arc::new(Semaphore::new(0)),
        refuses: Arc::default(),
        asked: Arc::default(),
    };
    let runtime = Runtime::builder(slow.clone()).clock(Arc::clone(&world.clock) as _).build().await.unwrap();
    let warm = Graph::<Context>::builder("warm").node("speak", async |cx: NodeContext, s: Draft<Context>| {
        cx.stream("tokens")?.finish().await?;
        Ok(s)
    });
    let warm = runtime.start(&warm.entry("speak").build().unwrap(), Context::new()).await.unwrap();
    world.pass(warm.completed()).await.unwrap();
    world.pass(world.clock.sleep(Duration::from_secs(1))).await;
    (slow, runtime)
}

async fn turns() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// A watcher in another process gets the last chunks before the end of the node, even if the store publishes slowly.
///
/// Guarantees: EVENT-5.
#[tokio::test]
async fn node_end_waits_briefly_for_relayed_chunks() {
    for opens in [true, false] {
        let world = World::new();
        let (store, runtime) = slow(&world).await;
        let watcher = world.process().await;
        let mut watch = watcher.watch(&key()).before_start().await.unwrap();
        let (sent, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let said = (Arc::clone(&sent), Arc::clone(&ended));
        let speak = move |cx: NodeContext, s: Draft<Context>| {
            let (sent, ended) = said.clone();
            async move {
                let mut tokens = cx.stream("tokens")?;
                for number in 0..500 {
                    tokens.send(number).await?;
                }
                sent.store(true, Ordering::SeqCst);
                tokens.finish().await?;
                ended.store(true, Ordering::SeqCst);
                Ok(s)
            }
        };
        let graph = Graph::<Context>::builder("w").node("speak", speak).entry("speak").build().unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        turns().await;
        world.clock.advance(Duration::from_millis(450));
        turns().await;
        assert!(sent.load(Ordering::SeqCst), "sending a chunk must not wait");
        assert!(!ended.load(Ordering::SeqCst), "the end of the stream must wait");
        assert_eq!(store.asked.load(Ordering::SeqCst), 1);
        if opens {
            store.permits.add_permits(1_000);
        } else {
            world.clock.advance(Duration::from_millis(50));
        }
        turns().await;
        assert!(ended.load(Ordering::SeqCst), "opens: {opens}");
        let (end, events) = world.pass(async { tokio::join!(run.completed(), all(&mut watch)) }).await;
        end.unwrap();
        let heard = events.iter().flat_map(|event| event.chunks()).count();
        assert_eq!(heard, if opens { 500 } else { 0 });
    }
}

#[tokio::test]
async fn refused_chunks_are_counted_later_ones_arrive() {
    let world = World::new();
    let (store, runtime) = slow(&world).await;
    store.permits.add_permits(1_000);
    let watcher = world.process().await;
    let mut watch = watcher.watch(&key()).before_start().await.unwrap();
    let pace = Arc::new(Semaphore::new(0));
    let paced = Arc::clone(&pace);
    let speak = move |cx: NodeContext, s: Draft<Context>| {
        let pace = Arc::clone(&paced);
        async move {
            let mut tokens = cx.stream("tokens")?;
            for number in 0..9 {
                pace.acquire().await.unwrap().forget();
                tokens.send(number).await?;
            }
            tokens.finish().await?;
            Ok(s)
        }
    };
    let graph = Graph::<Context>::builder("w").node("speak", speak).entry("speak").build().unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    for refuses in [false, true, false] {
        store.refuses.store(refuses, Ordering::SeqCst);
        pace.add_permits(3);
        world.pass(world.clock.sleep(Duration::from_secs(1))).await;
    }
    let (end, events) = world.pass(async { tokio::join!(run.completed(), all(&mut watch)) }).await;
    end.unwrap();
    let mut told = Vec::new();
    for event in &events {
        match event.what {
            WatchEventKind::Lagged { missed } => told.push(format!("{missed} missed")),
            _ => told.extend(event.chunks().map(|chunk| chunk.number.to_string())),
        }
    }
    assert_eq!(told, ["0", "1", "2", "3 missed", "6", "7", "8"]);
}
