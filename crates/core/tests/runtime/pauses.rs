//! A node's requests to its run: questions, messages, steps and timers, alone and combined.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask, AskError, QuestionKind, Shape};
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::record::{FailureKind, RunStatus};
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::{Context, Op, Patch, Reducer};
use ferrata_core::store::{CheckpointStore, Page, RunFilter, RunQuery};
use ferrata_core::{ErrorKind, RunKey, Timestamp};

use super::flavors::on_each_runtime;
use super::world::World;

const DAY: Duration = Duration::from_secs(86_400);

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

async fn start(runtime: &Runtime, graph: &Graph<Context>) -> RunHandle<Context> {
    runtime.start(graph, Context::new()).id("r").await.unwrap()
}

async fn resume(runtime: &Runtime, graph: &Graph<Context>) -> Outcome<Context> {
    runtime.resume(graph, "r").await.unwrap().wait().await.unwrap()
}

fn completed(outcome: Outcome<Context>) -> Context {
    match outcome {
        Outcome::Completed(state) => state,
        other => panic!("the run did not complete: {other:?}"),
    }
}

fn asking() -> Graph<Context> {
    Graph::<Context>::builder("ask")
        .node("first", async |cx, mut s| {
            let amount: u32 = cx.ask("amount", "How much?").await?;
            s.set("amount", amount)?;
            Ok(s)
        })
        .entry("first")
        .build()
        .unwrap()
}

/// Guarantees: QUESTION-1.
#[tokio::test]
async fn question_interrupts_run_and_answer_reaches_asker() {
    let world = World::new();
    let (one, graph) = (world.process().await, asking());
    let Outcome::Interrupted(questions) = start(&one, &graph).await.wait().await.unwrap() else { panic!() };
    assert_eq!(questions.len(), 1);
    assert_eq!(questions[0].id, "first@1:amount");
    assert_eq!(questions[0].kind, QuestionKind::Asked);
    assert_eq!(questions[0].read::<String>().unwrap(), "How much?");
    drop(one);

    let other = world.process().await;
    assert_eq!(other.questions(&key()).await.unwrap(), questions);
    other.respond(&key(), "first@1:amount", Answer::accept(7).unwrap()).by("ann").await.unwrap();
    assert_eq!(other.head(&key()).await.unwrap().unwrap().status, RunStatus::InProgress);
    let state = completed(resume(&other, &graph).await);
    assert_eq!(state.get::<u32>("amount").unwrap(), Some(7));
}

/// Guarantees: QUESTION-2.
#[tokio::test]
async fn wrong_answer_is_refused_and_changes_nothing() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, asking());
    start(&runtime, &graph).await.wait().await.unwrap();
    let head = runtime.head(&key()).await.unwrap().unwrap();
    let answers = [
        ("first@1:amount", Answer::accept("seven").unwrap(), ErrorKind::Invalid, "expected an integer"),
        (
            "first@1:amount",
            ferrata_core::record::Resolution::Retry.into(),
            ErrorKind::Invalid,
            "does not ask about an unknown outcome",
        ),
        ("second", Answer::accept(7).unwrap(), ErrorKind::NotFound, "open questions: first@1:amount"),
    ];
    for (id, answer, kind, says) in answers {
        let error = runtime.respond(&key(), id, answer).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(runtime.head(&key()).await.unwrap().unwrap(), head);

    runtime.respond(&key(), "first", Answer::accept(7).unwrap()).by("ann").await.unwrap();
    let again = runtime.respond(&key(), "first@1:amount", Answer::accept(8).unwrap()).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    assert!(again.to_string().contains("answered by ann"), "{again}");
    assert_eq!(completed(resume(&runtime, &graph).await).get::<u32>("amount").unwrap(), Some(7));
    let late = runtime.respond(&key(), "first@1:amount", Answer::accept(8).unwrap()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::WrongStatus, "{late}");
}

/// Guarantees: QUESTION-4.
#[tokio::test]
async fn rejection_fails_node_and_retry_asks_again() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, asking());
    start(&runtime, &graph).await.wait().await.unwrap();
    runtime.respond(&key(), "first", Answer::reject("too much")).by("bob").await.unwrap();
    let Outcome::Failed { failure, .. } = resume(&runtime, &graph).await else { panic!() };
    assert_eq!(failure.kind, FailureKind::Rejected);
    assert_eq!(failure.message, "the question `amount` was rejected by bob: too much");

    runtime.retry(&key()).await.unwrap();
    let Outcome::Interrupted(questions) = resume(&runtime, &graph).await else { panic!() };
    assert_eq!(questions[0].id, "first@1:amount");
}

/// Guarantees: QUESTION-5.
#[tokio::test]
async fn an_answer_may_cancel_the_run() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, asking());
    let run = start(&runtime, &graph).await;
    run.wait().await.unwrap();
    runtime.respond(&key(), "first", Answer::cancel("nobody cares")).await.unwrap();
    let head = runtime.head(&key()).await.unwrap().unwrap();
    assert_eq!(head.status, RunStatus::Cancelled);
}

/// Guarantees: QUESTION-8.
#[tokio::test]
async fn question_deadline_notifies_node_or_answers_default() {
    for default in [None, Some(3)] {
        let world = World::new();
        let runtime = world.process().await;
        let graph = Graph::<Context>::builder("ask")
            .node("first", move |cx: ferrata_core::node::NodeContext, mut s: ferrata_core::state::Draft<Context>| async move {
                let mut ask = Ask::<u32>::new("How much?").deadline(DAY);
                if let Some(default) = default {
                    ask = ask.or_default(default);
                }
                match cx.ask_with("amount", ask).await {
                    Ok(amount) => s.set("amount", amount)?,
                    Err(AskError::Expired { .. }) => s.set("expired", true)?,
                    Err(error) => return Err(error.into()),
                }
                Ok(s)
            })
            .entry("first")
            .build()
            .unwrap();
        start(&runtime, &graph).await.wait().await.unwrap();
        let head = runtime.head(&key()).await.unwrap().unwrap();
        assert_eq!((head.status, head.wake_at), (RunStatus::Interrupted, Some(world.clock_now().plus(DAY))));
        world.clock.advance(DAY);
        let late = runtime.respond(&key(), "first", Answer::accept(1).unwrap()).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::WrongStatus, "{late}");
        assert!(world.is_due().await);
        let state = completed(resume(&runtime, &graph).await);
        assert_eq!(state.get::<u32>("amount").unwrap(), default);
        assert_eq!(state.get::<bool>("expired").unwrap(), default.is_none().then_some(true));
    }
}

impl World {
    async fn is_due(&self) -> bool {
        let mut due = RunQuery::default();
        due.filter = RunFilter::Due;
        self.store.runs(&due, Page::default()).await.unwrap().items.len() == 1
    }

    fn clock_now(&self) -> Timestamp {
        ferrata_core::Clock::now(&*self.clock)
    }
}

/// Guarantees: QUESTION-11.
#[tokio::test]
async fn other_branches_go_on_while_questions_are_open() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("two")
        .channel("path", Reducer::Append)
        .node("fork", async |_cx, _s| Ok(()))
        .node("a", async |cx, _s| {
            let (one, two) = tokio::join!(cx.ask::<bool>("one", 1), cx.ask::<bool>("two", 2));
            one?;
            two?;
            Ok(Context::update().reduce("path", vec!["a"]))
        })
        .node("b", async |_cx, _s| Ok(Context::update().reduce("path", vec!["b"])))
        .node("c", async |_cx, _s| Ok(Context::update().reduce("path", vec!["c"])))
        .entry("fork")
        .edge("fork", ["a", "b"])
        .edge("b", "c")
        .build()
        .unwrap();
    let Outcome::Interrupted(questions) = start(&runtime, &graph).await.wait().await.unwrap() else {
        panic!()
    };
    assert_eq!(questions.iter().map(|q| q.id.as_str()).collect::<Vec<_>>(), ["a@1:one", "a@1:two"]);
    let error = runtime.respond(&key(), "a", Answer::accept(true).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    runtime.respond(&key(), "a@1:two", Answer::accept(true).unwrap()).await.unwrap();
    let Outcome::Interrupted(questions) = resume(&runtime, &graph).await else { panic!() };
    assert_eq!(questions.len(), 1);
    runtime.respond(&key(), "a", Answer::accept(true).unwrap()).await.unwrap();
    let state = completed(resume(&runtime, &graph).await);
    assert_eq!(state.get::<Vec<String>>("path").unwrap().unwrap(), ["b", "c", "a"]);
}

/// Guarantees: STEP-1, STEP-2.
#[tokio::test]
async fn step_runs_once_failed_step_runs_again() {
    let world = World::new();
    let runtime = world.process().await;
    let counts = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    struct Work(Arc<[AtomicU32; 2]>);
    #[async_trait::async_trait]
    impl ferrata_core::node::Node<Context> for Work {
        async fn run(
            &self,
            cx: ferrata_core::node::NodeContext,
            mut s: ferrata_core::state::Draft<Context>,
        ) -> ferrata_core::node::NodeResult<Context> {
            let charged: u32 = cx
                .step("charge", async || Ok::<_, std::fmt::Error>(self.0[0].fetch_add(1, Ordering::SeqCst)))
                .await?;
            let mailed: u32 = cx
                .step("mail", async || match self.0[1].fetch_add(1, Ordering::SeqCst) {
                    0 => Err("no network"),
                    n => Ok(n),
                })
                .await?;
            s.set("charged", charged)?;
            s.set("mailed", mailed)?;
            Ok(s.into())
        }
    }
    let graph = Graph::<Context>::builder("pay")
        .add("pay", Work(Arc::clone(&counts)))
        .retry(RetryPolicy::none().with_attempts(3))
        .entry("pay")
        .build()
        .unwrap();
    let state = completed(start(&runtime, &graph).await.wait().await.unwrap());
    assert_eq!(state.get::<u32>("charged").unwrap(), Some(0));
    assert_eq!(state.get::<u32>("mailed").unwrap(), Some(1));
    assert_eq!(counts[0].load(Ordering::SeqCst), 1);
}

/// Guarantees: STEP-5.
#[tokio::test]
async fn a_name_stands_for_one_step_or_question() {
    let world = World::new();
    let runtime = world.process().await;
    for bad in ["same", "", "before", "a b", "#1"] {
        let graph = Graph::<Context>::builder("pay")
            .node("pay", move |cx: ferrata_core::node::NodeContext, _s| async move {
                cx.step("same", async || Ok::<_, std::fmt::Error>(1)).await?;
                cx.step(bad, async || Ok::<_, std::fmt::Error>(2)).await?;
                Ok(())
            })
            .entry("pay")
            .build()
            .unwrap();
        let run = runtime.start(&graph, Context::new()).await.unwrap();
        let Outcome::Failed { failure, .. } = run.wait().await.unwrap() else { panic!("{bad}") };
        assert!(failure.message.contains(&format!("`{bad}`")), "{failure}");
    }
}

/// Guarantees: TIMER-1.
#[tokio::test]
async fn long_sleep_releases_run_short_sleep_does_not() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("sleep")
        .node("nap", async |cx, _s| {
            cx.sleep(Duration::from_secs(30)).await?;
            cx.sleep(3 * DAY).await?;
            Ok(())
        })
        .entry("nap")
        .build()
        .unwrap();
    let run = start(&runtime, &graph).await;
    let nap = async {
        // Only the heartbeat and the driver's poll advance the clock, and the timer fires when its time has come.
        for _ in 0..80 {
            world.clock.advance(Duration::from_millis(500));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
    };
    let (outcome, ()) = tokio::join!(run.wait(), nap);
    let Outcome::Sleeping { until } = outcome.unwrap() else { panic!() };
    let head = runtime.head(&key()).await.unwrap().unwrap();
    assert_eq!((head.status, head.wake_at, head.owner), (RunStatus::InProgress, Some(until), None));
    assert!(matches!(resume(&runtime, &graph).await, Outcome::Sleeping { .. }));
    assert_eq!(
        runtime.head(&key()).await.unwrap().unwrap(),
        head,
        "a resume before the timer expires must change nothing"
    );
    world.clock.advance(4 * DAY);
    assert!(world.is_due().await);
    completed(resume(&runtime, &graph).await);
}

fn listening() -> Graph<Context> {
    Graph::<Context>::builder("listen")
        .channel("said", Reducer::Append)
        .node("hear", async |cx, _s| {
            let one: String = cx.receive().await?;
            let two: String = cx.receive().await?;
            Ok(Context::update().reduce("said", vec![one, two]))
        })
        .node("wait", async |cx, _s| {
            let last: Option<String> = cx.receive_within(DAY).await?;
            Ok(Context::update().reduce("said", vec![last.unwrap_or("nobody".into())]))
        })
        .entry("hear")
        .edge("hear", "wait")
        .build()
        .unwrap()
}

/// Guarantees: MESSAGE-1, MESSAGE-2.
#[test]
fn messages_arrive_once_in_order_unreadable_set_aside() {
    on_each_runtime(async || {
        let world = World::new();
        let (runtime, graph) = (world.patient_process().await, listening());
        assert!(matches!(start(&runtime, &graph).await.wait().await.unwrap(), Outcome::AwaitingInput));
        runtime.send(&key(), "a").by("ann").await.unwrap();
        runtime.send(&key(), 17).await.unwrap();
        assert!(matches!(resume(&runtime, &graph).await, Outcome::AwaitingInput));
        runtime.send(&key(), "b").await.unwrap();
        runtime.send(&key(), "c").await.unwrap();
        let state = completed(resume(&runtime, &graph).await);
        assert_eq!(state.get::<Vec<String>>("said").unwrap().unwrap(), ["a", "b", "c"]);
        let late = runtime.send(&key(), "d").await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::WrongStatus);
    });
}

/// Guarantees: TIMER-4.
#[tokio::test]
async fn patience_ends_after_days_without_any_process() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, listening());
    start(&runtime, &graph).await.wait().await.unwrap();
    runtime.send(&key(), "a").await.unwrap();
    runtime.send(&key(), "b").await.unwrap();
    assert!(matches!(resume(&runtime, &graph).await, Outcome::AwaitingInput));
    world.clock.advance(2 * DAY);
    let state = completed(resume(&runtime, &graph).await);
    assert_eq!(state.get::<Vec<String>>("said").unwrap().unwrap(), ["a", "b", "nobody"]);
}

/// Guarantees: CONTROL-2.
#[tokio::test]
async fn paused_run_stays_paused_until_unpause() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, asking());
    start(&runtime, &graph).await.wait().await.unwrap();
    runtime.pause(&key(), "lunch").by("ann").await.unwrap();
    assert_eq!(runtime.pause(&key(), "lunch").await.unwrap_err().kind(), ErrorKind::WrongStatus);
    runtime.respond(&key(), "first", Answer::accept(7).unwrap()).await.unwrap();
    let Outcome::Paused { reason, questions } = resume(&runtime, &graph).await else { panic!() };
    assert_eq!((reason.as_str(), questions.len()), ("lunch", 0));
    runtime.unpause(&key()).await.unwrap();
    assert_eq!(runtime.unpause(&key()).await.unwrap_err().kind(), ErrorKind::WrongStatus);
    assert_eq!(completed(resume(&runtime, &graph).await).get::<u32>("amount").unwrap(), Some(7));
}

/// Guarantees: CONTROL-3.
#[tokio::test]
async fn edit_changes_state_of_later_nodes() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("edit")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |_s, _yes| ())
        .node("double", async |_cx, mut s| {
            let n: i64 = s.get("n")?.unwrap_or_default();
            s.set("n", 2 * n)?;
            Ok(s)
        })
        .entry("ok")
        .edge("ok", "double")
        .build()
        .unwrap();
    start(&runtime, &graph).await.wait().await.unwrap();
    let patch = Patch::from_ops(&[Op::Set("n".into(), 21.into())]).unwrap();
    runtime.edit(&key(), patch.clone()).check_with(&graph).by("ann").await.unwrap();
    runtime.respond(&key(), "ok", Answer::accept(true).unwrap()).await.unwrap();
    assert_eq!(completed(resume(&runtime, &graph).await).get::<i64>("n").unwrap(), Some(42));
    assert_eq!(
        runtime.edit(&key(), patch).check_with(&graph).await.unwrap_err().kind(),
        ErrorKind::WrongStatus
    );
}

#[tokio::test]
async fn declared_interrupts_ask_before_and_behind_a_node() {
    let world = World::new();
    let runtime = world.process().await;
    let ran = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&ran);
    struct Count(Arc<AtomicU32>);
    #[async_trait::async_trait]
    impl ferrata_core::node::Node<Context> for Count {
        async fn run(
            &self,
            _cx: ferrata_core::node::NodeContext,
            _s: ferrata_core::state::Draft<Context>,
        ) -> ferrata_core::node::NodeResult<Context> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(().into())
        }
    }
    let graph = Graph::<Context>::builder("gates")
        .add("a", Count(counter))
        .interrupt_before()
        .interrupt_after()
        .node("b", async |_cx, _s| Ok(()))
        .entry("a")
        .edge("a", "b")
        .build()
        .unwrap();
    let Outcome::Interrupted(questions) = start(&runtime, &graph).await.wait().await.unwrap() else {
        panic!()
    };
    assert_eq!((questions[0].id.as_str(), questions[0].kind), ("a@1:before", QuestionKind::Before));
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    runtime.respond(&key(), "a", Answer::accept(()).unwrap()).await.unwrap();
    let Outcome::Interrupted(questions) = resume(&runtime, &graph).await else { panic!() };
    assert_eq!((questions[0].id.as_str(), questions[0].kind), ("a@1:after", QuestionKind::After));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    runtime.respond(&key(), "a", Answer::reject("bad")).by("bob").await.unwrap();
    assert_eq!(runtime.head(&key()).await.unwrap().unwrap().status, RunStatus::Failed);
    runtime.retry(&key()).await.unwrap();
    completed(resume(&runtime, &graph).await);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// One branch of a node asks, and another has two steps. The run must not become idle between the steps, so that the answer does not wait.
///
/// Guarantees: TIMER-9.
#[tokio::test]
async fn asking_node_goes_idle_after_its_work() {
    for effect in [ferrata_core::graph::Effect::Pure, ferrata_core::graph::Effect::Write] {
        let world = World::new();
        let runtime = world.process().await;
        let done = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&done);
        let graph = Graph::<Context>::builder("both")
            .node(
                "both",
                move |cx: ferrata_core::node::NodeContext, mut s: ferrata_core::state::Draft<Context>| {
                    let counter = Arc::clone(&counter);
                    async move {
                        let work = async {
                            for name in ["one", "two", "three"] {
                                cx.step(name, async || Ok::<_, std::fmt::Error>(())).await?;
                                counter.fetch_add(1, Ordering::SeqCst);
                            }
                            Ok::<_, ferrata_core::node::NodeError>(())
                        };
                        let (answer, worked) = tokio::join!(cx.ask::<bool>("ok", "Go on?"), work);
                        worked?;
                        s.set("ok", answer?)?;
                        Ok(s)
                    }
                },
            )
            .effect(effect)
            .entry("both")
            .build()
            .unwrap();
        assert!(matches!(start(&runtime, &graph).await.wait().await.unwrap(), Outcome::Interrupted(_)));
        assert_eq!(done.load(Ordering::SeqCst), 3, "{effect:?}");
        runtime.respond(&key(), "both", Answer::accept(true).unwrap()).await.unwrap();
        assert_eq!(completed(resume(&runtime, &graph).await).get::<bool>("ok").unwrap(), Some(true));
    }
}

/// The maximum of a `Small`, when it is asked for and when the answer is read. Newer code may accept less.
static AT_FIRST: AtomicU32 = AtomicU32::new(9);
static LATER: AtomicU32 = AtomicU32::new(9);
static MOST: AtomicU32 = AtomicU32::new(9);

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u32", into = "u32")]
#[derive(Clone)]
struct Small(u32);

impl From<Small> for u32 {
    fn from(Small(number): Small) -> Self {
        number
    }
}

impl TryFrom<u32> for Small {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number <= MOST.load(Ordering::SeqCst) { Ok(Self(number)) } else { Err("too large") }
    }
}

/// A default that the answer type rejects must not be used as the answer again and again.
///
/// Guarantees: QUESTION-9.
#[tokio::test]
async fn invalid_default_fails_node_without_asking_again() {
    let graph = Graph::<Context>::builder("small")
        .node("a", async |cx, _s| {
            MOST.store(AT_FIRST.load(Ordering::SeqCst), Ordering::SeqCst);
            let ask =
                Ask::shaped("?", Shape::of::<u32>()).deadline(Duration::from_secs(1)).or_default(Small(9));
            MOST.store(LATER.load(Ordering::SeqCst), Ordering::SeqCst);
            let small: Small = cx.ask_with("small", ask).await?;
            Ok(Context::update().set("small", small.0))
        })
        .entry("a")
        .build()
        .unwrap();
    let world = World::new();
    let runtime = world.process().await;
    let run = start(&runtime, &graph).await;
    let Outcome::Interrupted(_) = run.wait().await.unwrap() else { panic!() };
    LATER.store(7, Ordering::SeqCst);
    world.clock.advance(DAY);
    let before = world.store.head(&key()).await.unwrap().unwrap().seq.get();
    let again = runtime.resume(&graph, "r").await.unwrap();
    let Outcome::Failed { failure, .. } = world.pass(again.wait()).await.unwrap() else { panic!() };
    assert!(
        failure.message.contains("the question `small`: its deadline has passed, and its default"),
        "{failure}"
    );
    assert!(failure.message.contains("too large"), "{failure}");
    let records = world.store.head(&key()).await.unwrap().unwrap().seq.get() - before;
    assert!(records <= 6, "{records} records");

    // A default that is invalid when the node asks fails the node without a question. A retry asks again.
    AT_FIRST.store(7, Ordering::SeqCst);
    runtime.retry(&key()).await.unwrap();
    let Outcome::Failed { failure, .. } = resume(&runtime, &graph).await else { panic!() };
    assert!(failure.message.contains("cannot read the default back as"), "{failure}");
    assert!(runtime.questions(&key()).await.unwrap().is_empty());
    AT_FIRST.store(9, Ordering::SeqCst);
    runtime.retry(&key()).await.unwrap();
    let Outcome::Interrupted(questions) = resume(&runtime, &graph).await else { panic!() };
    assert_eq!(questions[0].id, "a@1:small");
}
