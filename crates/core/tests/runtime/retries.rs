//! An operator's retry, and the limit of automatic returns to a retry target.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask, QuestionKind};
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::{Context, Draft, Op, Patch, Reducer};
use ferrata_core::{Clock, RunKey};

use ferrata_core::store::{At, MemoryStore};
use ferrata_testing::{FaultPlan, FaultStore};
use tokio::sync::Notify;

use super::world::World;

async fn runtime() -> Runtime {
    Runtime::builder(MemoryStore::new()).build().await.unwrap()
}

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

async fn resumed(runtime: &Runtime, graph: &Graph<Context>) -> Outcome<Context> {
    runtime.resume(graph, "r").await.unwrap().wait().await.unwrap()
}

fn ids(outcome: &Outcome<Context>) -> Vec<&str> {
    let Outcome::Interrupted(questions) = outcome else { panic!("{outcome:?}") };
    questions.iter().map(|question| &*question.id).collect()
}

/// A retry asks every rejected gate again, not only the gate that failed the run.
///
/// Guarantees: CONTROL-4.
#[tokio::test]
async fn retry_repeats_only_rejected_questions() {
    let gate = |graph: ferrata_core::graph::GraphBuilder<Context>, name: &str| {
        graph.gate(name, |_s: &Context| Ask::<bool>::new("Go on?"), |_s, _yes| ())
    };
    let graph = ["a", "b", "c"]
        .into_iter()
        .fold(Graph::<Context>::builder("gates").node("begin", async |_cx, s| Ok(s)), gate)
        .node("asks", async |cx, s| {
            let _: bool = cx.ask("kept", "Go on?").await?;
            let _: bool = cx.ask("then", "Go on?").await?;
            Ok(s)
        })
        .entry("begin")
        .edge("begin", ["a", "b", "c", "asks"])
        .build()
        .unwrap();
    let runtime = runtime().await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert_eq!(ids(&run.wait().await.unwrap()), ["a@1:gate", "b@1:gate", "c@1:gate", "asks@1:kept"]);
    // The run is idle, and no process drives it.
    for (gate, answer) in [
        ("a", Answer::reject("no")),
        ("b", Answer::reject("nor that")),
        ("asks", Answer::accept(true).unwrap()),
    ] {
        runtime.respond(&key(), gate, answer).await.unwrap();
    }
    assert!(matches!(resumed(&runtime, &graph).await, Outcome::Failed { .. }));
    runtime.retry(&key()).await.unwrap();
    let outcome = resumed(&runtime, &graph).await;
    assert_eq!(ids(&outcome), ["a@1:gate", "b@1:gate", "c@1:gate", "asks@1:then"]);
    for question in ["a", "b", "c", "asks"] {
        runtime.respond(&key(), question, Answer::accept(true).unwrap()).await.unwrap();
    }
    assert!(matches!(resumed(&runtime, &graph).await, Outcome::Completed(_)));
}

/// A branch that fails the run once, next to an `External` node that works until it is released, and then ends as instructed.
struct Beside {
    graph: Graph<Context>,
    let_go: Arc<Notify>,
    /// Whether the node was asked to stop in its second execution.
    told: Arc<AtomicBool>,
    pays: Arc<AtomicU32>,
}

impl Beside {
    fn new(pay: fn(NodeError) -> Option<NodeError>) -> Self {
        let (let_go, told) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (pays, fails) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (gate, tells, counted) = (Arc::clone(&let_go), Arc::clone(&told), Arc::clone(&pays));
        let graph = Graph::<Context>::builder("beside")
            .node("begin", async |_cx, s| Ok(s))
            .node("fails", move |cx: NodeContext, s: Draft<Context>| {
                let times = fails.fetch_add(1, Ordering::SeqCst);
                tells.store(cx.is_cancelled(), Ordering::SeqCst);
                async move { if times == 0 { Err("no".into()) } else { Ok(s) } }
            })
            .node("pay", move |_cx, s: Draft<Context>| {
                let (gate, first) = (Arc::clone(&gate), counted.fetch_add(1, Ordering::SeqCst) == 0);
                async move {
                    if first {
                        gate.notified().await;
                        return pay(NodeError::new("told to stop").unfinished()).map_or(Ok(s), Err);
                    }
                    Ok(s)
                }
            })
            .effect(Effect::External)
            .entry("begin")
            .edge("begin", ["pay", "fails"])
            .build()
            .unwrap();
        Self { graph, let_go, told, pays }
    }

    /// Starts a run that fails while the payment is running in this process.
    async fn failed(&self, runtime: &Runtime) -> RunHandle<Context> {
        let run = runtime.start(&self.graph, Context::new()).id("r").await.unwrap();
        while runtime.head(&key()).await.unwrap().unwrap().status != RunStatus::Failed {
            tokio::task::yield_now().await;
        }
        run
    }

    /// Starts a run that fails, and retries it while the payment is running in this process.
    async fn retried(&self, runtime: &Runtime) -> RunHandle<Context> {
        let run = self.failed(runtime).await;
        // A failed run accepts an edit while a payment is running.
        let patch = Patch::from_ops(&[Op::Set("edited".into(), true.into())]).unwrap();
        runtime.edit(&key(), patch).check_with(&self.graph).await.unwrap();
        runtime.retry(&key()).await.unwrap();
        self.let_go.notify_one();
        run
    }
}

/// Attempts that survive a failed run must not stay cancelled after a retry. Otherwise an attempt that obeys leaves a run that cannot advance.
#[tokio::test]
async fn retry_during_running_payment_continues_locally() {
    let runtime_of = async |pay| {
        let (beside, runtime) = (Beside::new(pay), runtime().await);
        let run = beside.retried(&runtime).await;
        let outcome = run.wait().await.unwrap();
        assert!(!beside.told.load(Ordering::SeqCst), "the second attempt must not be asked to stop");
        (beside, runtime, outcome)
    };
    let (beside, _, outcome) = runtime_of(|_error| None).await;
    let state = outcome.completed().unwrap();
    assert_eq!(state.get::<bool>("edited").unwrap(), Some(true));
    assert_eq!(beside.pays.load(Ordering::SeqCst), 1);

    let (beside, _, outcome) = runtime_of(|error| Some(error.not_done())).await;
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    assert_eq!(beside.pays.load(Ordering::SeqCst), 2, "nothing was done, so the node starts again");

    let (beside, runtime, outcome) = runtime_of(Some).await;
    let Outcome::Interrupted(questions) = &outcome else { panic!("{outcome:?}") };
    assert_eq!((questions[0].kind, &*questions[0].id), (QuestionKind::Doubt, "pay@1"));
    assert_eq!(beside.pays.load(Ordering::SeqCst), 1);
    runtime.respond(&key(), "pay", ferrata_core::record::Resolution::Skip).await.unwrap();
    assert!(matches!(resumed(&runtime, &beside.graph).await, Outcome::Completed(_)));
}

/// The result of a payment is kept if another writer's record precedes its own: a retry must not ask about a known result, and must ask about an
/// unknown one.
#[tokio::test]
async fn payment_result_survives_failure_and_write_conflict() {
    let beaten = async |pay| {
        let beside = Beside::new(pay);
        let inner = MemoryStore::new();
        let other = Arc::new(Runtime::builder(inner.clone()).build().await.unwrap());
        let store = Arc::new(FaultStore::new(inner, FaultPlan::new()));
        let runtime = Runtime::builder_with(Arc::clone(&store) as _).build().await.unwrap();
        let run = beside.failed(&runtime).await;
        let (writer, graph) = (Arc::clone(&other), beside.graph.clone());
        store.before(store.operations(), async move {
            let patch = Patch::from_ops(&[Op::Set("edited".into(), true.into())]).unwrap();
            writer.edit(&key(), patch).check_with(&graph).await.unwrap();
        });
        beside.let_go.notify_one();
        assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
        let failed = other.checkpoint(&key(), At::Latest).await.unwrap();
        assert_eq!(failed.state["edited"], true, "the other writer must write first");
        other.retry(&key()).await.unwrap();
        let questions = other.checkpoint(&key(), At::Latest).await.unwrap().questions;
        (beside, runtime, questions)
    };
    let (beside, runtime, questions) = beaten(Some).await;
    assert_eq!(
        questions.len(),
        1,
        "the unknown outcome must be recorded, so that the question comes at once"
    );
    assert_eq!((questions[0].kind, &*questions[0].id), (QuestionKind::Doubt, "pay@1"));
    assert_eq!(ids(&resumed(&runtime, &beside.graph).await), ["pay@1"]);
    assert_eq!(beside.pays.load(Ordering::SeqCst), 1);

    let (beside, runtime, questions) = beaten(|error| Some(error.not_done())).await;
    assert_eq!(questions, []);
    assert!(matches!(resumed(&runtime, &beside.graph).await, Outcome::Completed(_)));
    assert_eq!(beside.pays.load(Ordering::SeqCst), 2, "nothing was done, so the node starts again");
}

/// A retryable failure in a run that another branch has failed must not set a wake-up time, because nothing wakes a failed run.
#[tokio::test]
async fn a_failed_run_is_not_to_be_woken() {
    let graph = Graph::<Context>::builder("refused")
        .node("begin", async |_cx, s| Ok(s))
        .node("fails", async |_cx, _s: Draft<Context>| Err::<(), _>(NodeError::new("no")))
        .node("pay", async |cx, _s: Draft<Context>| {
            cx.cancelled().await;
            Err::<(), _>(NodeError::new("refused").not_done())
        })
        .effect(Effect::External)
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_secs(60)))
        .entry("begin")
        .edge("begin", ["pay", "fails"])
        .build()
        .unwrap();
    let runtime = runtime().await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
    let head = runtime.head(&key()).await.unwrap().unwrap();
    assert_eq!((head.status, head.wake_at), (RunStatus::Failed, None));
}

/// Retry delays differ between runs, so that runs that failed at the same time are not retried at the same time.
#[tokio::test]
async fn retry_delays_of_failed_runs_spread_out() {
    let hour = Duration::from_secs(3_600);
    let again = RetryPolicy::none().with_attempts(2).with_delay(hour).with_cap(hour * 2).with_jitter(0.5);
    let graph = Graph::<Context>::builder("fails")
        .node("a", async |_cx, _s: Draft<Context>| Err::<(), _>(NodeError::new("down")))
        .retry(again)
        .entry("a")
        .build()
        .unwrap();
    let world = World::new();
    let (one, other) = (world.process().await, world.process().await);
    let mut times = BTreeSet::new();
    for at in 0..8 {
        let id = format!("r{at}");
        let run = one.start(&graph, Context::new()).id(&id).await.unwrap();
        assert!(matches!(run.wait().await.unwrap(), Outcome::Sleeping { .. }));
        let at = other.head(run.run()).await.unwrap().unwrap().wake_at.unwrap();
        assert!((hour / 2..=hour * 3 / 2).contains(&at.since(world.clock.now())));
        times.insert(at);
    }
    assert!(times.len() > 4, "{times:?}");
}

/// A checkpoint keeps the separate results of both ends of a visit, so that the failure stays in the history.
#[tokio::test]
async fn checkpoint_shows_failure_and_later_success() {
    let fails = Arc::new(AtomicU32::new(0));
    let graph = Graph::<Context>::builder("again")
        .node("a", move |_cx, s: Draft<Context>| {
            let times = fails.fetch_add(1, Ordering::SeqCst);
            async move { if times < 3 { Err(format!("no {times}").into()) } else { Ok(s) } }
        })
        .retry(RetryPolicy::none().with_attempts(2).with_delay(Duration::from_millis(1)))
        .node("b", async |_cx, s| Ok(s))
        .entry("a")
        .edge("a", "b")
        .build()
        .unwrap();
    let runtime = runtime().await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
    runtime.retry(&key()).await.unwrap();
    assert!(matches!(resumed(&runtime, &graph).await, Outcome::Completed(_)));
    let now = runtime.checkpoint(&key(), At::Latest).await.unwrap();
    let told: Vec<_> = now
        .history
        .iter()
        .map(|past| {
            let why = past.failure.as_ref().map(|failure| &*failure.message);
            (past.node.as_str(), past.visit.get(), past.ok, past.attempts, why)
        })
        .collect();
    let wanted = [
        ("a", 1, false, Some(2), Some("no 1")),
        ("a", 1, true, Some(2), None),
        ("b", 1, true, Some(1), None),
    ];
    assert_eq!(told, wanted);
    assert!(now.history[0].index < now.history[1].index);
}

/// Returns to a retry target are counted per target, not per failed node: two nodes with one target share the limit.
///
/// Guarantees: CONTROL-12.
#[tokio::test]
async fn retry_target_limit_counts_all_failing_nodes() {
    let begun = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&begun);
    let fails = async |_cx, _s: Draft<Context>| Err::<(), _>(NodeError::new("no"));
    let graph = Graph::<Context>::builder("two")
        .node("top", move |_cx, s: Draft<Context>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { Ok(s) }
        })
        .node("a", fails)
        .retry_target("top")
        .node("b", fails)
        .entry("top")
        .fallback("top")
        .route("top", ["a", "b"], |_s, cx| if cx.visit().get() % 2 == 0 { "a" } else { "b" })
        .build()
        .unwrap();
    let run = runtime().await.start(&graph, Context::new()).await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
    assert_eq!(begun.load(Ordering::SeqCst), 11);
}

/// The fallback applies after the retry target is used up, as the page lists them.
///
/// Guarantees: CONTROL-12.
#[tokio::test]
async fn fallback_follows_exhausted_retry_target() {
    let graph = Graph::<Context>::builder("fallback")
        .channel("path", Reducer::Append)
        .node("once", async |_cx, _s| Ok(Context::update().append("path", ["once"])))
        .max_visits(1)
        .node("fails", async |_cx, _s: Draft<Context>| Err::<(), _>(NodeError::new("no")))
        .retry_target("once")
        .node("rescue", async |_cx, _s| Ok(Context::update().append("path", ["rescue"])))
        .entry("once")
        .edge("once", "fails")
        .fallback("rescue")
        .build()
        .unwrap();
    let run = runtime().await.start(&graph, Context::new()).await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(state.get::<Vec<String>>("path").unwrap().unwrap(), ["once", "rescue"]);
}

/// If a missed goal sends the run back, the interrupt after the node asks first.
#[tokio::test]
async fn interrupt_after_node_precedes_missed_goal_return() {
    let graph = Graph::<Context>::builder("goal")
        .channel("path", Reducer::Append)
        .node("draft", async |_cx, _s| Ok(Context::update().append("path", ["draft"])))
        .node("review", async |_cx, _s| Ok(Context::update().append("path", ["review"])))
        .goal_gate(|s| s.get::<Vec<String>>("path").unwrap().unwrap_or_default().len() >= 4)
        .retry_target("draft")
        .interrupt_after()
        .entry("draft")
        .edge("draft", "review")
        .build()
        .unwrap();
    let runtime = runtime().await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert_eq!(ids(&run.wait().await.unwrap()), ["review@1:after"]);
    runtime.respond(&key(), "review", Answer::accept(()).unwrap()).await.unwrap();
    let state = resumed(&runtime, &graph).await.completed().unwrap();
    assert_eq!(
        state.get::<Vec<String>>("path").unwrap().unwrap().len(),
        4,
        "after the second review there must be no further node"
    );
}
