//! The end of an attempt and its consequences: the table of `docs/how-to/durability.md`, row by row, with a ledger of started effects.
//!
//! An `External` node starts at most once, unless it reports that nothing was done, or a person permits another start.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::QuestionKind;
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::record::Resolution;
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::At;
use ferrata_core::{Clock, RunKey};
use ferrata_testing::ManualClock;

use super::world::World;

const PAGE: &str = include_str!("../../../../docs/how-to/durability.md");

/// The fates of the first attempt, in the order of the page's first column.
const WAYS: &[(&str, Way)] = &[
    ("a result", Way { then: Then::Done, ..Way::NEW }),
    ("an error", Way { then: Then::Error, ..Way::NEW }),
    ("an error, `not_done()`", Way { then: Then::NotDone, ..Way::NEW }),
    ("an error, `fatal()`", Way { then: Then::Fatal, ..Way::NEW }),
    ("an error, `not_done()` and `fatal()`", Way { then: Then::FatalNotDone, ..Way::NEW }),
    ("an error, at the last attempt", Way { then: Then::Error, attempts: 1, ..Way::NEW }),
    ("an error, `not_done()`, at the last attempt", Way { then: Then::NotDone, attempts: 1, ..Way::NEW }),
    ("a result that its route cannot take in", Way { then: Then::Astray, ..Way::NEW }),
    ("its `timeout`", Way { timeout: true, ..Way::NEW }),
    (
        "its `timeout`, and a panic as it was dropped",
        Way { timeout: true, then: Then::PanicInDrop, ..Way::NEW },
    ),
    ("a panic", Way { then: Then::Panic, ..Way::NEW }),
    ("a result, and a panic as it was dropped", Way { then: Then::DonePanicInDrop, ..Way::NEW }),
    ("a cancellation, and it returned within the grace", Way { by: By::Cancel, short: true, ..Way::NEW }),
    ("a cancellation, and the grace was over", Way { by: By::Cancel, ..Way::NEW }),
    ("a shutdown, and it returned within the grace", Way { by: By::Shutdown, short: true, ..Way::NEW }),
    ("a shutdown, and the grace was over", Way { by: By::Shutdown, ..Way::NEW }),
    (
        "a shutdown, and an error, `unfinished()`",
        Way { by: By::Shutdown, then: Then::Unfinished, ..Way::NEW },
    ),
    (
        "a shutdown, and an error, `unfinished()` and `not_done()`",
        Way { by: By::Shutdown, then: Then::UnfinishedNotDone, ..Way::NEW },
    ),
    ("the failure of another branch", Way { by: By::Sibling, ..Way::NEW }),
    (
        "the failure of another branch, and an error, `unfinished()`",
        Way { by: By::Sibling, then: Then::Unfinished, ..Way::NEW },
    ),
    ("the deadline of the run", Way { by: By::Deadline, ..Way::NEW }),
    ("the end of its process", Way { by: By::Crash, ..Way::NEW }),
    ("a result that the store did not take", Way { by: By::Crash, short: true, ..Way::NEW }),
    ("another process that took the run", Way { by: By::TakeOver, ..Way::NEW }),
];

#[derive(Clone, Copy, Debug)]
struct Way {
    then: Then,
    by: By,
    attempts: u32,
    timeout: bool,
    /// Whether it works for less than the grace period.
    short: bool,
}

/// The action of the first attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Work,
    Done,
    DonePanicInDrop,
    PanicInDrop,
    Error,
    NotDone,
    Fatal,
    FatalNotDone,
    Unfinished,
    UnfinishedNotDone,
    Astray,
    Panic,
}

/// The event that happens to the run during the attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Nothing,
    Cancel,
    Shutdown,
    Sibling,
    Deadline,
    Crash,
    TakeOver,
}

impl Way {
    const NEW: Self = Self { then: Then::Work, by: By::Nothing, attempts: 2, timeout: false, short: false };

    fn graph(self, effect: Effect, begun: &Arc<AtomicU32>, clock: &Arc<ManualClock>) -> Graph<Context> {
        let (counted, seen, clock) = (Arc::clone(begun), Arc::clone(begun), Arc::clone(clock));
        let mut graph = Graph::<Context>::builder("ways")
            .node("begin", async |_cx, s| Ok(s))
            .effect(Effect::Pure)
            .node("work", move |cx: NodeContext, s: Draft<Context>| {
                let (times, clock) = (counted.fetch_add(1, Ordering::SeqCst) + 1, Arc::clone(&clock));
                async move { if times > 1 { Ok(s.into()) } else { self.first(&cx, &clock, s).await } }
            })
            .effect(effect)
            .retry(RetryPolicy::none().with_attempts(self.attempts).with_delay(Duration::from_millis(1)));
        if self.timeout {
            graph = graph.timeout(Duration::from_secs(3));
        }
        if self.by == By::Deadline {
            graph = graph.deadline(Duration::from_secs(5));
        }
        let failed = AtomicBool::new(false);
        let nodes = graph
            .node("other", move |_cx, s: Draft<Context>| {
                let (seen, fails) =
                    (Arc::clone(&seen), self.by == By::Sibling && !failed.swap(true, Ordering::SeqCst));
                async move {
                    while fails && seen.load(Ordering::SeqCst) == 0 {
                        tokio::task::yield_now().await;
                    }
                    if fails { Err(NodeError::new("the other branch").fatal()) } else { Ok(s) }
                }
            })
            .node("end", async |_cx, s| Ok(s))
            .entry("begin")
            .edge("begin", ["work", "other"]);
        // The wrong route happens once, so a retry by an operator succeeds.
        let again = Arc::clone(begun);
        nodes
            .route("work", ["end"], move |_s, _cx| match self.then {
                Then::Astray if again.load(Ordering::SeqCst) == 1 => "nowhere",
                _ => "end",
            })
            .build()
            .unwrap()
    }

    async fn first(self, cx: &NodeContext, clock: &ManualClock, s: Draft<Context>) -> NodeResult<Context> {
        let _bomb = matches!(self.then, Then::PanicInDrop | Then::DonePanicInDrop).then(|| Bomb);
        let error = NodeError::new("refused");
        match self.then {
            Then::Work | Then::PanicInDrop => {
                clock.sleep(Duration::from_secs(if self.short { 1 } else { 20 })).await;
                Ok(s.into())
            }
            Then::Done | Then::DonePanicInDrop | Then::Astray => Ok(s.into()),
            Then::Error => Err(error),
            Then::NotDone => Err(error.not_done()),
            Then::Fatal => Err(error.fatal()),
            Then::FatalNotDone => Err(error.fatal().not_done()),
            Then::Unfinished | Then::UnfinishedNotDone => {
                cx.cancelled().await;
                let error = error.unfinished();
                Err(if self.then == Then::Unfinished { error } else { error.not_done() })
            }
            // Skip the panic hook, which would print a backtrace each time.
            Then::Panic => std::panic::resume_unwind(Box::new("out of cheese")),
        }
    }
}

/// A value of the node whose destructor panics, unless another panic is in progress.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("boom"));
        }
    }
}

/// Returns the rows of the page's table: how an attempt ended, and the consequence for `External` and for other effects.
fn rows() -> Vec<[String; 3]> {
    let (_, from) = PAGE.split_once("| an attempt ended with | `External` | any other effect |\n").unwrap();
    from.lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<String> =
                line.trim_matches('|').split('|').map(|cell| cell.trim().into()).collect();
            cells.try_into().unwrap()
        })
        .collect()
}

/// Guarantees: DURABLE-3.
#[test]
fn the_page_has_the_rows_that_are_tried() {
    let told: Vec<String> = rows().into_iter().map(|[way, ..]| way).collect();
    let tried: Vec<&str> = WAYS.iter().map(|(name, _)| *name).collect();
    assert_eq!(told, tried);
}

/// A payment of 2 s with a timeout of 200 ms and three attempts starts once. The timeout, an error or a panic must lead to a question, not to another
/// attempt.
///
/// Guarantees: DURABLE-2, DURABLE-3, ONCE-10.
#[tokio::test]
async fn outcome_after_attempt_matches_documented_table() {
    for [name, external, other] in rows() {
        let way = WAYS.iter().find(|(known, _)| *known == name).unwrap().1;
        for effect in [Effect::External, Effect::Pure, Effect::Read, Effect::Write, Effect::Human] {
            let told = if effect == Effect::External { &external } else { &other };
            let (found, begun) = Case::new(way, effect).await.follow().await;
            assert!(
                told.starts_with(found),
                "{name}, {effect}: {found}, started {begun} times; the page says: {told}"
            );
        }
    }
}

/// One run, and the processes that drive it.
struct Case {
    way: Way,
    effect: Effect,
    world: World,
    graph: Graph<Context>,
    begun: Arc<AtomicU32>,
}

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

impl Case {
    async fn new(way: Way, effect: Effect) -> Self {
        let (world, begun) = (World::new(), Arc::new(AtomicU32::new(0)));
        let graph = way.graph(effect, &begun, &world.clock);
        Self { way, effect, world, graph, begun }
    }

    /// Runs the case. Returns the consequence as a word of the page, and the number of starts.
    async fn follow(&self) -> (&'static str, u32) {
        let (store, first) = self.world.mortal().await;
        let run = first.start(&self.graph, Context::new()).id("r").await.unwrap();
        if self.way.by != By::Nothing {
            while self.begun.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
        }
        let second = self.world.process().await;
        let mut taken = None;
        match self.way.by {
            By::Cancel => first.cancel(&key(), "enough").await.unwrap(),
            By::Shutdown => self.world.pass(first.shutdown(Duration::from_secs(2))).await.unwrap(),
            By::Crash => store.crash(),
            By::TakeOver => taken = Some(second.resume(&self.graph, "r").take_over().await.unwrap()),
            By::Nothing | By::Sibling | By::Deadline => {}
        }
        let outcome = match (self.world.pass(run.wait()).await, taken) {
            (_, Some(taken)) => self.world.pass(taken.wait()).await.unwrap(),
            (Ok(Outcome::Released) | Err(_), None) => self.resumed(&second).await,
            (Ok(outcome), None) => outcome,
        };
        let begun = self.begun.load(Ordering::SeqCst);
        let word = self.word(&second, &outcome, begun).await;
        self.go_on(&second, &outcome, word).await;
        (word, begun)
    }

    async fn resumed(&self, runtime: &Runtime) -> Outcome<Context> {
        let run: RunHandle<Context> = runtime.resume(&self.graph, "r").take_over().await.unwrap();
        self.world.pass(run.wait()).await.unwrap()
    }

    async fn word(&self, runtime: &Runtime, outcome: &Outcome<Context>, begun: u32) -> &'static str {
        let now = runtime.checkpoint(&key(), At::Latest).await.unwrap();
        let past = now.history.iter().find(|past| past.node.as_str() == "work");
        match outcome {
            Outcome::Completed(_) if begun == 2 => "begun again",
            Outcome::Interrupted(questions) => {
                let [question] = &questions[..] else { panic!("{questions:?}") };
                assert_eq!((question.kind, question.node.as_str()), (QuestionKind::Doubt, "work"));
                let text: String = question.read().unwrap();
                let said = question.failure.as_ref().map_or("its process ended", |failure| &failure.message);
                assert!(text.contains(said) || text.contains("its timeout expired"), "{text}: {said}");
                "asked about"
            }
            _ => match past {
                Some(past) if past.ok => "recorded",
                Some(_) => "failed",
                None => "dropped",
            },
        }
    }

    /// An operator retries the run. Work that possibly completed restarts only with explicit permission.
    async fn go_on(&self, runtime: &Runtime, outcome: &Outcome<Context>, word: &str) {
        let before = self.begun.load(Ordering::SeqCst);
        if let Outcome::Failed { .. } = outcome {
            if self.way.by == By::Deadline {
                return;
            }
            runtime.retry(&key()).await.unwrap();
        } else if word != "asked about" {
            return;
        }
        let mut outcome = self.resumed(runtime).await;
        let done =
            self.effect == Effect::External && !matches!(self.way.then, Then::NotDone | Then::FatalNotDone);
        if done && word != "recorded" {
            let Outcome::Interrupted(questions) = &outcome else { panic!("{:?}: {outcome:?}", self.way) };
            assert_eq!(
                self.begun.load(Ordering::SeqCst),
                before,
                "{:?} was started without permission",
                self.way
            );
            let ids: BTreeSet<&str> = questions.iter().map(|question| &*question.id).collect();
            assert_eq!(ids, BTreeSet::from(["work@1"]));
            runtime.respond(&key(), "work@1", Resolution::Retry).await.unwrap();
            outcome = self.resumed(runtime).await;
        }
        assert!(matches!(outcome, Outcome::Completed(_)), "{:?}: {outcome:?}", self.way);
        let again = u32::from(word != "recorded");
        assert_eq!(self.begun.load(Ordering::SeqCst), before + again, "{:?}", self.way);
    }
}
