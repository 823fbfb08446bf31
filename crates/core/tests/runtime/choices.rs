//! Concurrent waits: after a crash or an idle period, a node sees the same results in the same order.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Reducer, Update};
use ferrata_core::store::{At, CheckpointStore, MemoryStore, RunAppend};
use ferrata_core::{RunKey, Seq, Timestamp};
use ferrata_testing::ManualClock;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tokio::select;

use super::flavors::on_each_runtime;
use super::world::World;

const HOUR: Duration = Duration::from_secs(3_600);

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

fn one_node<F, Fut>(node: F) -> Graph<Context>
where
    F: Fn(NodeContext) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<String>, NodeError>> + Send + 'static,
{
    Graph::<Context>::builder("choices")
        .channel("saw", Reducer::Append)
        .node("wait", move |cx: NodeContext, _s| {
            let saw = node(cx);
            async move { Ok(Context::update().append("saw", saw.await?)) }
        })
        .effect(Effect::Write)
        .entry("wait")
        .build()
        .unwrap()
}

fn saw(outcome: Outcome<Context>) -> Vec<String> {
    let Outcome::Completed(state) = outcome else { panic!("{outcome:?}") };
    state.get("saw").unwrap().unwrap()
}

/// A question is answered long before a concurrent timer expires, and the node uses the answer. The node then asks another question, and restarts for
/// its answer after the timer expired. `select!` must choose the first answer again, not the timer.
///
/// Guarantees: TIMER-10.
#[test]
fn used_answer_precedes_later_timer() {
    on_each_runtime(async || {
        let graph = one_node(async |cx: NodeContext| {
            let said: String = select! {
                answer = cx.ask("first", 1) => answer?,
                slept = cx.sleep(Duration::from_millis(600)) => { slept?; "nobody answered".to_owned() }
            };
            let then: String = cx.ask("second", 2).await?;
            Ok(vec![said, then])
        });
        for _ in 0..16 {
            let world = World::new();
            let runtime = world.patient_process().await;
            let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
            while runtime.questions(&key()).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            runtime.respond(&key(), "wait@1:first", Answer::accept("yes").unwrap()).await.unwrap();
            let Outcome::Interrupted(questions) = run.wait().await.unwrap() else { panic!() };
            assert_eq!(questions[0].id, "wait@1:second");
            // The abandoned timer sets no wake-up time.
            assert_eq!(runtime.head(&key()).await.unwrap().unwrap().wake_at, None);
            world.clock.advance(HOUR);
            runtime.respond(&key(), "wait@1:second", Answer::accept("and so").unwrap()).await.unwrap();
            let outcome = runtime.resume(&graph, "r").await.unwrap().wait().await.unwrap();
            assert_eq!(saw(outcome), ["yes", "and so"]);
        }
    });
}

/// The same with a message: a message that `select!` received must be received again, not lost to a timer that expired later.
///
/// Guarantees: TIMER-10.
#[test]
fn received_message_precedes_later_timer() {
    on_each_runtime(async || {
        let graph = one_node(async |cx: NodeContext| {
            let said: String = select! {
                biased;
                slept = cx.sleep(Duration::from_millis(600)) => { slept?; "nobody spoke".to_owned() }
                message = cx.receive() => message?,
            };
            let then: String = cx.ask("second", 2).await?;
            Ok(vec![said, then])
        });
        let world = World::new();
        let runtime = world.patient_process().await;
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        runtime.send(&key(), "hello").await.unwrap();
        let Outcome::Interrupted(_) = run.wait().await.unwrap() else { panic!() };
        world.clock.advance(HOUR);
        runtime.respond(&key(), "wait", Answer::accept("and so").unwrap()).await.unwrap();
        let outcome = runtime.resume(&graph, "r").await.unwrap().wait().await.unwrap();
        assert_eq!(saw(outcome), ["hello", "and so"]);
    });
}

/// `select!` polls its branches in random order, but creates them in source order. So each timer keeps its name and its time after a restart.
#[test]
fn timers_beside_each_other_keep_their_times() {
    on_each_runtime(async || {
        let graph = one_node(async |cx: NodeContext| {
            let first = select! {
                slept = cx.sleep(HOUR) => { slept?; "late" }
                slept = cx.sleep(Duration::from_secs(1)) => { slept?; "early" }
            };
            let then: String = cx.ask("then", 2).await?;
            Ok(vec![first.to_owned(), then])
        });
        for _ in 0..16 {
            let world = World::new();
            let runtime = world.patient_process().await;
            let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
            let Outcome::Interrupted(_) = world.pass(run.wait()).await.unwrap() else { panic!() };
            world.clock.advance(2 * HOUR);
            runtime.respond(&key(), "wait", Answer::accept("so").unwrap()).await.unwrap();
            let outcome = runtime.resume(&graph, "r").await.unwrap().wait().await.unwrap();
            assert_eq!(saw(outcome), ["early", "so"]);
        }
    });
}

/// `late` is declared first, and waits last. `early` must get the message, both in memory and after an idle period.
///
/// Guarantees: MESSAGE-9.
#[test]
fn longest_waiter_receives_next_message_after_idle() {
    on_each_runtime(async || {
        async fn hear(cx: NodeContext) -> Result<Update<Context>, NodeError> {
            let text: String = cx.receive().await?;
            Ok(Context::update().append("saw", [format!("{} {text}", cx.node())]).into())
        }
        let graph = Graph::<Context>::builder("late")
            .channel("saw", Reducer::Append)
            .node("fork", async |_cx, _s| Ok(()))
            .node("late", async |cx, _s| hear(cx).await)
            .node("early", async |cx, _s| hear(cx).await)
            .node("slow", async |cx, _s| Ok(cx.sleep(Duration::from_secs(1)).await?))
            .entry("fork")
            .edge("fork", ["early", "slow"])
            .edge("slow", "late")
            .build()
            .unwrap();
        let world = World::new();
        let one = world.patient_process().await;
        let run = one.start(&graph, Context::new()).id("r").await.unwrap();
        let Outcome::AwaitingInput = world.pass(run.wait()).await.unwrap() else { panic!() };
        one.send(&key(), "first").await.unwrap();
        one.send(&key(), "second").await.unwrap();
        let outcome = world.patient_process().await.resume(&graph, "r").await.unwrap().wait().await.unwrap();
        // Both nodes end at the same time, so either may be merged first.
        let mut heard = saw(outcome);
        heard.sort();
        assert_eq!(heard, ["early first", "late second"]);
    });
}

/// The operations of a node: waits of every kind, concurrent and in sequence. The numbers are their names.
#[derive(Clone, Debug)]
enum Program {
    Ask(u32),
    Receive,
    Within(u64),
    Sleep(u64),
    Step(u32, u8),
    Sequence(Vec<Program>),
    Join(Vec<Program>),
    Select(Vec<Program>),
}

impl Program {
    /// Gives every question and step a unique name.
    fn name(&mut self, next: &mut u32) {
        *next += 1;
        match self {
            Self::Ask(name) | Self::Step(name, _) => *name = *next,
            Self::Sequence(all) | Self::Join(all) | Self::Select(all) => {
                all.iter_mut().for_each(|one| one.name(next));
            }
            Self::Receive | Self::Within(_) | Self::Sleep(_) => {}
        }
    }
}

fn programs() -> impl Strategy<Value = Program> {
    let leaf = prop_oneof![
        3 => Just(Program::Ask(0)),
        2 => Just(Program::Receive),
        1 => (1..40_u64).prop_map(Program::Within),
        3 => (1..40_u64).prop_map(Program::Sleep),
        3 => (0..4_u8).prop_map(|turns| Program::Step(0, turns)),
    ];
    let tree = leaf.prop_recursive(3, 10, 3, |inner| {
        let few = prop::collection::vec(inner, 2..4);
        prop_oneof![
            2 => few.clone().prop_map(Program::Sequence),
            1 => few.clone().prop_map(Program::Join),
            2 => few.prop_map(Program::Select),
        ]
    });
    prop::collection::vec(tree, 1..4).prop_map(|all| {
        let mut program = Program::Sequence(all);
        program.name(&mut 0);
        program
    })
}

/// Results that the attempts saw, each with the sequence number of the last record at that time.
#[derive(Debug)]
struct Watch {
    store: MemoryStore,
    attempts: Mutex<Vec<Vec<(String, u64)>>>,
    dice: Mutex<u64>,
}

impl Watch {
    fn new(store: &MemoryStore, dice: u64) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), attempts: Mutex::default(), dice: Mutex::new(dice | 1) })
    }

    fn roll(&self, below: usize) -> usize {
        let mut dice = self.dice.lock().unwrap();
        *dice ^= *dice << 13;
        *dice ^= *dice >> 7;
        *dice ^= *dice << 17;
        usize::try_from(*dice % below as u64).unwrap()
    }

    async fn saw(&self, what: String) {
        let seq = self.store.head(&key()).await.unwrap().unwrap().seq.get();
        self.attempts.lock().unwrap().last_mut().unwrap().push((what, seq));
    }
}

type Boxed<'a> = Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + 'a>>;

fn interpret<'a>(cx: &'a NodeContext, watch: &'a Watch, program: &'a Program) -> Boxed<'a> {
    Box::pin(async move {
        match program {
            Program::Ask(name) => {
                let answer: u32 = cx.ask(format!("q{name}"), name).await?;
                watch.saw(format!("q{name} = {answer}")).await;
            }
            Program::Receive => {
                let message: u32 = cx.receive().await?;
                watch.saw(format!("message {message}")).await;
            }
            Program::Within(seconds) => {
                let message: Option<u32> = cx.receive_within(Duration::from_secs(*seconds)).await?;
                watch.saw(format!("within {seconds}: {message:?}")).await;
            }
            Program::Sleep(seconds) => {
                cx.sleep(Duration::from_secs(*seconds)).await?;
                watch.saw(format!("slept {seconds}")).await;
            }
            Program::Step(name, turns) => {
                let done: usize = cx
                    .step(format!("s{name}"), async || {
                        for _ in 0..*turns {
                            tokio::task::yield_now().await;
                        }
                        Ok::<_, NodeError>(watch.roll(1_000))
                    })
                    .await?;
                watch.saw(format!("s{name} = {done}")).await;
            }
            Program::Sequence(all) => {
                for one in all {
                    interpret(cx, watch, one).await?;
                }
            }
            Program::Join(all) => beside(cx, watch, all, all.len()).await?,
            Program::Select(all) => beside(cx, watch, all, 1).await?,
        }
        Ok(())
    })
}

/// Runs the programs concurrently until `wanted` of them have ended. They are first polled in order, and later in random order.
async fn beside(cx: &NodeContext, watch: &Watch, all: &[Program], wanted: usize) -> Result<(), NodeError> {
    let mut open: Vec<Boxed<'_>> = all.iter().map(|one| interpret(cx, watch, one)).collect();
    let (mut begun, mut ended) = (false, 0);
    poll_fn(|task| {
        let mut at = 0;
        while at < open.len() {
            if begun {
                let other = at + watch.roll(open.len() - at);
                open.swap(at, other);
            }
            match open[at].as_mut().poll(task) {
                Poll::Pending => at += 1,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {
                    drop(open.remove(at));
                    ended += 1;
                    if ended == wanted {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        begun = true;
        Poll::Pending
    })
    .await
}

fn graph_of(program: &Program) -> Graph<Context> {
    let program = Arc::new(program.clone());
    one_node(move |cx: NodeContext| {
        let program = Arc::clone(&program);
        async move {
            let watch = Arc::clone(cx.resource::<Arc<Watch>>());
            watch.attempts.lock().unwrap().push(Vec::new());
            interpret(&cx, &watch, &program).await?;
            Ok(Vec::new())
        }
    })
}

async fn process(store: &MemoryStore, clock: &Arc<ManualClock>, watch: &Arc<Watch>) -> Runtime {
    let builder = Runtime::builder(store.clone()).clock(Arc::clone(clock) as _).resource(Arc::clone(watch));
    builder.build().await.unwrap()
}

/// Yields until no task can make progress.
async fn quiet() {
    for _ in 0..24 {
        tokio::task::yield_now().await;
    }
}

/// Checks that each attempt saw the same results as the attempts before it, up to its own end.
fn check_attempts(attempts: &[Vec<(String, u64)>]) -> Result<(), String> {
    for pair in attempts.windows(2) {
        if let Some((before, again)) =
            pair[0].iter().zip(&pair[1]).find(|(before, again)| before.0 != again.0)
        {
            return Err(format!("an attempt saw {before:?}, the next {again:?} in its place: {attempts:#?}"));
        }
    }
    Ok(())
}

/// Runs a program, with answers, messages and time in random order. Then restarts it from several prefixes of its log, as if the process had crashed
/// there and the next one started an hour later.
async fn try_program(program: &Program, dice: u64) -> Result<(), String> {
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
    let watch = Watch::new(&store, dice);
    let (runtime, graph) = (process(&store, &clock, &watch).await, graph_of(program));
    let _run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let mut sent = 0_u32;
    for _ in 0..14 {
        quiet().await;
        let head = runtime.head(&key()).await.unwrap().unwrap();
        if head.status.is_finished() {
            break;
        }
        if head.owner.is_none() {
            runtime.resume(&graph, "r").await.unwrap();
            quiet().await;
        }
        // Several signals may arrive before the node is polled.
        for _ in 0..=watch.roll(2) {
            let open = runtime.questions(&key()).await.unwrap();
            match watch.roll(3) {
                0 if !open.is_empty() => {
                    let question = &open[watch.roll(open.len())];
                    let answer = Answer::accept(watch.roll(1_000)).unwrap();
                    let _ = runtime.respond(&key(), &question.id, answer).await;
                }
                1 => {
                    sent += 1;
                    let _ = runtime.send(&key(), sent).await;
                }
                _ => clock.advance(Duration::from_secs(5 + watch.roll(20) as u64)),
            }
        }
    }
    quiet().await;
    let attempts = watch.attempts.lock().unwrap().clone();
    let mut records = store.load(&key(), At::Latest).await.unwrap().unwrap();
    while records[0].header.seq.get() > 0 {
        let before = At::Seq(Seq::new(records[0].header.seq.get() - 1));
        records.splice(..0, store.load(&key(), before).await.unwrap().unwrap());
    }
    let log: Vec<String> = records
        .iter()
        .map(|record| String::from_utf8_lossy(&record.body).chars().take(160).collect())
        .collect();
    check_attempts(&attempts).map_err(|message| format!("{message} in {log:#?}"))?;
    let facts = store.head(&key()).await.unwrap().unwrap().facts;
    for _ in 0..3 {
        let cut = 1 + watch.roll(records.len());
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let first = records[..cut].to_vec();
        let append = RunAppend { run: key(), expected: None, records: first, facts: Some(facts.clone()) };
        store.append(vec![append]).await.pop().unwrap().unwrap();
        let head = store.head(&key()).await.unwrap().unwrap();
        if head.status.is_finished() {
            continue;
        }
        clock.advance(HOUR);
        let again = Watch::new(&store, watch.roll(usize::MAX) as u64);
        let runtime = process(&store, &clock, &again).await;
        runtime.resume(&graph, "r").take_over().await.unwrap();
        quiet().await;
        let seen = again.attempts.lock().unwrap().first().cloned().unwrap_or_default();
        for before in &attempts {
            let durable = before.iter().filter(|(_, seq)| *seq < cut as u64);
            for (at, (was, _)) in durable.enumerate() {
                let now = seen.get(at).map(|(now, _)| now);
                // An attempt that ended when the run became idle has read all recorded inputs. The next attempt may find more.
                if now != Some(was) && (head.status == RunStatus::InProgress || now.is_some()) {
                    return Err(format!(
                        "after {cut} of {} records, {was:?} was seen, and then {now:?}: {attempts:#?}, again {seen:#?} in {log:#?}",
                        records.len()
                    ));
                }
            }
        }
    }
    Ok(())
}

/// A restarted node sees the same results in the same order. Earlier answers and messages win against timers that the node has abandoned.
///
/// Guarantees: TIMER-10.
#[test]
fn node_replays_inputs_in_original_order() {
    const SEED: u64 = 11;
    let config = Config {
        rng_seed: RngSeed::Fixed(SEED),
        cases: std::env::var("FERRATA_CHOICES").map_or(40, |cases| cases.parse().unwrap()),
        failure_persistence: None,
        ..Config::default()
    };
    let tasks = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let result = TestRunner::new(config).run(&(programs(), any::<u64>()), |(program, dice)| {
        tasks.block_on(try_program(&program, dice)).map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("seed {SEED}: {error}");
    }
}
