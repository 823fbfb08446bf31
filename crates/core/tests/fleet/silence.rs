//! One store call after another is never answered: the run still continues in its own process.
//!
//! A proxy can swallow traffic without closing the connection. Only a time limit around each call ends such a wait, because heartbeats over other
//! connections still succeed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{NodeContext, NodeResult};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{CheckpointStore, HeaderRange, Notices, delegate};
use ferrata_core::{Clock, ErrorKind};

use tokio::task::JoinSet;

use crate::world::{World, key};

/// Whether an unanswered call is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Undone,
    Done,
}

/// A store that never answers one call, or all calls from one on.
#[derive(Debug)]
struct Silent<S> {
    inner: S,
    at: AtomicU64,
    for_good: bool,
    deed: Deed,
    calls: AtomicU64,
}

impl<S: CheckpointStore> Silent<S> {
    fn at(inner: S, at: u64, deed: Deed) -> Self {
        Self { inner, at: AtomicU64::new(at), for_good: false, deed, calls: AtomicU64::new(0) }
    }

    /// Answers until [`cut_off`](Self::cut_off).
    fn until_cut_off(inner: S) -> Self {
        Self { for_good: true, ..Self::at(inner, u64::MAX, Deed::Undone) }
    }

    fn cut_off(&self) {
        self.at.store(self.calls.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let (number, at) = (self.calls.fetch_add(1, Ordering::SeqCst), self.at.load(Ordering::SeqCst));
        let is_silent = number == at || (self.for_good && number > at);
        if is_silent && self.deed == Deed::Undone {
            std::future::pending::<()>().await;
        }
        let answer = call.await;
        if is_silent {
            std::future::pending::<()>().await;
        }
        answer
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: CheckpointStore> CheckpointStore for Silent<S> {
    fn transactions(&self) -> Option<&dyn ferrata_core::store::Transactions> {
        None
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn ferrata_core::store::Relay> {
        None
    }

    fn subscribe(&self) -> Option<Notices> {
        None
    }

    delegate! { |this| this.inner; capabilities, part }
    delegate! {
        |this| this.inner, |call| this.call(call);
        setup, append, load, load_since, headers, head, runs, prune, purge, heartbeat, is_alive
    }
}

#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

async fn work(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    cx.resource::<Count>().0.fetch_add(1, Ordering::SeqCst);
    cx.resource::<Arc<dyn Clock>>().sleep(Duration::from_secs(1)).await;
    Ok(s.into())
}

fn graph() -> Graph<Context> {
    let builder =
        Graph::<Context>::builder("three").node("one", work).node("two", work).effect(Effect::External);
    let builder = builder.node("three", work).effect(Effect::Write).entry("one");
    builder.edge("one", "two").edge("two", "three").build().expect("a graph")
}

/// Guarantees: STORE-1.
#[tokio::test]
async fn run_completes_despite_any_unanswered_call() {
    for deed in [Deed::Undone, Deed::Done] {
        for at in 0.. {
            let world = World::new();
            let silent = Silent::at(world.store.clone(), at, deed);
            let (store, count) = (Arc::new(silent), Count::default());
            let clock: Arc<dyn Clock> = Arc::clone(&world.clock) as _;
            let builder = || {
                let builder = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::clone(&clock));
                builder
                    .store_timeout(Duration::from_secs(5))
                    .resource(Arc::clone(&clock))
                    .resource(count.clone())
            };
            let work = async {
                let runtime = loop {
                    match builder().build().await {
                        Ok(runtime) => break runtime,
                        Err(error) => assert!(error.is_retryable(), "{error:?}"),
                    }
                };
                loop {
                    match runtime.start(&graph(), Context::new()).id("run").await {
                        Ok(handle) => break handle.wait().await,
                        Err(error) => assert!(error.is_retryable(), "{error:?}"),
                    }
                }
            };
            let outcome = world.pass(work).await;
            assert!(matches!(outcome, Ok(Outcome::Completed(_))), "call {at}, {deed:?}: {outcome:?}");
            assert_eq!(count.0.load(Ordering::SeqCst), 3, "call {at}, {deed:?}");
            let records = world.store.headers(&key("run"), HeaderRange::newest(100)).await.unwrap().items;
            let claims = records.iter().filter(|header| header.epoch.get() > 1).count();
            assert_eq!(claims, 0, "call {at}, {deed:?}: {records:?}");
            if store.calls.load(Ordering::SeqCst) <= at {
                assert!(at > 8, "only {at} calls were tried");
                break;
            }
        }
    }
}

/// The error of an unanswered call states the possible consequence. Every timeout is permitted.
///
/// Guarantees: STORE-2.
#[tokio::test]
async fn unanswered_call_returns_error_with_consequence() {
    let world = World::new();
    let silent = |at| Silent::at(world.store.clone(), at, Deed::Done);
    let clock: Arc<dyn Clock> = Arc::clone(&world.clock) as _;
    for (timeout, wait) in [(Duration::from_secs(5), 6), (Duration::ZERO, 1), (Duration::from_secs(60), 61)] {
        let builder = Runtime::builder(silent(0)).clock(Arc::clone(&clock)).store_timeout(timeout);
        let tool = builder.operator();
        let begun = world.clock.monotonic();
        let error = world.pass(tool.head(&key("run"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.to_string().contains("did not answer within"), "{error}");
        assert!(world.clock.monotonic() - begun <= Duration::from_secs(wait));
    }
    let tool = Runtime::builder(silent(9)).clock(clock).store_timeout(Duration::MAX).operator();
    assert!(world.pass(tool.head(&key("run"))).await.unwrap().is_none());
}

/// Records when it was dropped.
struct Leaving(Arc<dyn Clock>, Arc<Mutex<Option<Duration>>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        *self.1.lock().expect("nothing panics") = Some(self.0.monotonic());
    }
}

/// A driver that waits for a store call, such as its read of the head, still stops its node when another process has claimed the run.
///
/// Guarantees: FLEET-3.
#[tokio::test]
async fn disconnected_process_stops_nodes_before_takeover() {
    // Cut the store off at every tenth of a second around the polls of the head, which come every five seconds.
    for moment in 0..60 {
        let world = World::new();
        let store = Arc::new(Silent::until_cut_off(world.store.clone()));
        let (clock, left) = (Arc::clone(&world.clock) as Arc<dyn Clock>, Arc::new(Mutex::new(None)));
        let runtime = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::clone(&clock));
        let runtime = runtime.build().await.expect("a runtime");
        let (here, leaves) = (Arc::clone(&clock), Arc::clone(&left));
        let graph = Graph::<Context>::builder("stays")
            .node("stay", move |_cx: NodeContext, s: Draft<Context>| {
                let leaving = Leaving(Arc::clone(&here), Arc::clone(&leaves));
                async move {
                    std::future::pending::<()>().await;
                    drop(leaving);
                    Ok::<_, ferrata_core::node::NodeError>(s)
                }
            })
            .entry("stay")
            .build()
            .expect("a graph");
        let _run = runtime.start(&graph, Context::new()).id("run").await.expect("a start");
        world.pass(world.clock.sleep(Duration::from_millis(7_000 + 100 * moment))).await;
        store.cut_off();
        let cut = world.clock.monotonic();
        let mut beside = JoinSet::new();
        if moment % 2 == 0 {
            // The driver also waits for the record of this message.
            let sender = runtime.clone();
            beside.spawn(async move { sender.send(&key("run"), "a message").await });
        }
        let gone = async {
            while left.lock().expect("nothing panics").is_none() {
                tokio::task::yield_now().await;
            }
        };
        world.pass(gone).await;
        let stayed = left.lock().expect("nothing panics").expect("the node must be dropped") - cut;
        let alive = Duration::from_secs(15);
        // The last heartbeat was sent before the cut.
        assert!(stayed < alive, "cut off after {moment} tenths: the node ran for {stayed:?}");
    }
}
