//! The end of an attempt: its timeout, missing outputs, and destructors.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::Clock;
use ferrata_core::ask::{Answer, Answerer, AnswererQuestion};
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::NodeContext;
use ferrata_core::record::FailureKind;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::MemoryStore;
use ferrata_testing::ManualClock;

use super::world::World;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A missing resource fails the node without retries, with an error that lists the available types.
#[tokio::test]
async fn missing_resource_fails_at_once_with_types() {
    for effect in [Effect::Pure, Effect::Read, Effect::Write, Effect::Human, Effect::External] {
        let tried = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tried);
        let line = Arc::new(AtomicU32::new(0));
        let lined = Arc::clone(&line);
        let graph = Graph::<Context>::builder("lacks")
            .node("work", move |cx: NodeContext, s: Draft<Context>| {
                counted.fetch_add(1, Ordering::SeqCst);
                lined.store(line!() + 2, Ordering::SeqCst);
                async move {
                    let _missing: &Vec<u64> = cx.resource();
                    Ok(s)
                }
            })
            .effect(effect)
            .retry(RetryPolicy::none().with_attempts(5).with_delay(ms(1)))
            .entry("work")
            .build()
            .unwrap();
        let runtime = Runtime::builder(MemoryStore::new())
            .resource(7_u8)
            .resource("s".to_owned())
            .build()
            .await
            .unwrap();
        let run = runtime.start(&graph, Context::new()).await.unwrap();
        let failure = match run.wait().await.unwrap() {
            Outcome::Failed { failure, .. } if effect != Effect::External => failure,
            Outcome::Interrupted(questions) if effect == Effect::External => {
                questions[0].failure.clone().unwrap()
            }
            other => panic!("{effect}: {other:?}"),
        };
        assert_eq!(tried.load(Ordering::SeqCst), 1, "{effect}");
        assert_eq!(failure.kind, FailureKind::Panic);
        let place = format!("endings.rs:{}:", line.load(Ordering::SeqCst));
        for said in ["Vec<u64>", &*place, "alloc::string::String, u8", "Runtime::builder(..).resource(..)"] {
            assert!(failure.message.contains(said), "{said}: {}", failure.message);
        }
    }
}

/// An answerer that accepts after 600 ms.
#[derive(Debug)]
struct Slow(Arc<ManualClock>);

#[async_trait]
impl Answerer for Slow {
    async fn answer(&self, _asking: &AnswererQuestion) -> Option<Answer> {
        self.0.sleep(ms(600)).await;
        Answer::accept(true).ok()
    }

    fn name(&self) -> String {
        "slow".into()
    }
}

/// A graph with a node that waits, works, waits again and works again.
fn waits_and_works(clock: &Arc<ManualClock>, work: Duration, ask: bool) -> Graph<Context> {
    let (clock, aside) = (Arc::clone(clock), Arc::clone(clock));
    Graph::<Context>::builder("waits")
        .node("begin", async |_cx, s| Ok(s))
        .node("a", move |cx: NodeContext, s: Draft<Context>| {
            let clock = Arc::clone(&clock);
            async move {
                for name in ["one", "two"] {
                    match ask {
                        true => assert!(cx.ask::<bool>(name, "Go on?").await?),
                        false => cx.sleep(ms(700)).await?,
                    }
                    clock.sleep(work).await;
                }
                Ok(s)
            }
        })
        .timeout(ms(300))
        // Another branch works the whole time, so that the run does not become idle.
        .node("b", move |_cx, s: Draft<Context>| {
            let clock = Arc::clone(&aside);
            async move {
                clock.sleep(ms(5_000)).await;
                Ok(s)
            }
        })
        .entry("begin")
        .edge("begin", ["a", "b"])
        .build()
        .unwrap()
}

/// The timeout counts the work of a node, and not its waits for a timer or an answer.
///
/// Guarantees: TIMER-6.
#[tokio::test]
async fn a_timeout_counts_work_and_not_waits() {
    for (work, ask, done) in
        [(50, false, true), (150, false, true), (600, false, false), (50, true, true), (600, true, false)]
    {
        let world = World::new();
        let answers = Slow(Arc::clone(&world.clock));
        let runtime = Runtime::builder(world.store.clone())
            .clock(Arc::clone(&world.clock) as _)
            .answerer(answers)
            .build()
            .await
            .unwrap();
        let run = runtime.start(&waits_and_works(&world.clock, ms(work), ask), Context::new()).await.unwrap();
        match world.pass(run.wait()).await.unwrap() {
            Outcome::Completed(_) => assert!(done, "work of {work} ms exceeds the timeout of 300 ms"),
            Outcome::Failed { failure, .. } => {
                assert!(!done, "{work} ms, asked: {ask}: {failure}");
                assert_eq!(failure.kind, FailureKind::Timeout);
            }
            other => panic!("{other:?}"),
        }
    }
}
