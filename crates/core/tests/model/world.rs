//! The processes as they are, beside the oracle: each operation is done to both, and then both are compared.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::record::Resolution;
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::{Channels, Context, Op as Change, Patch};
use ferrata_core::store::{At, CheckpointStore, MemoryStore};
use ferrata_core::testing::{ManualClock, SeqIds};
use ferrata_core::{Clock, Error, ErrorKind, ExecutorId, RunKey, Timestamp};
use serde_json::{Value, json};

use crate::coverage;
use crate::graphs::{Family, Outside, set_most};
use crate::operations::{Answering, Body, Choice, Op, Refused, Resolving, SLOTS, Which, Whom, answer_to};
use crate::oracle::{Generation, Oracle, Run, Stand};
use crate::support::log::Log;

/// The most that a record may hold.
pub(crate) const MAX_BODY: usize = 64 * 1024;

/// The input of every first start.
const INPUT: i64 = 5;

/// How often a process goes on without anything happening before it counts as quiet. One turn runs all that is ready.
const TURNS: usize = 4;

type Checked = Result<(), String>;

/// A process: its tasks end with it, at once and wherever they are.
struct Process {
    tasks: tokio::runtime::Runtime,
    runtime: Runtime,
    handle: Option<RunHandle<Context>>,
}

pub(crate) struct World {
    family: Family,
    store: MemoryStore,
    clock: Arc<ManualClock>,
    outside: Outside,
    processes: Vec<Process>,
    generations: BTreeMap<ExecutorId, Generation>,
    oracle: Oracle,
    applied: usize,
}

static GRAPHS: LazyLock<Vec<(Graph<Context>, Graph<Context>)>> =
    LazyLock::new(|| Family::ALL.iter().map(|family| (family.graph("1"), family.graph("2"))).collect());

fn graph(family: Family, revision: &str) -> &'static Graph<Context> {
    let at = Family::ALL.iter().position(|other| *other == family).unwrap();
    if revision == "1" { &GRAPHS[at].0 } else { &GRAPHS[at].1 }
}

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

fn same<T: PartialEq + Debug>(what: &str, real: &T, wanted: &T) -> Checked {
    if real == wanted { Ok(()) } else { Err(format!("{what}: is {real:?}, by the oracle {wanted:?}")) }
}

impl World {
    pub(crate) fn new(family: Family) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
        let store = MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
        set_most(9);
        let mut world = Self {
            family,
            oracle: Oracle::new(clock.now().unix_ms().try_into().unwrap(), SLOTS),
            store,
            clock,
            outside: Outside::new(),
            processes: Vec::new(),
            generations: BTreeMap::new(),
            applied: 0,
        };
        for slot in 0..SLOTS {
            let process = world.process(slot as u64 + 1);
            world.processes.push(process);
        }
        world.pump();
        world
    }

    fn process(&mut self, generation: Generation) -> Process {
        let tasks = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let builder = Runtime::builder(self.store.clone())
            .clock(Arc::clone(&self.clock) as Arc<dyn Clock>)
            .ids(Arc::new(SeqIds::new(generation)))
            .resource(self.outside.clone())
            .max_body(MAX_BODY);
        let runtime = tasks.block_on(builder.build()).unwrap();
        self.generations.insert(runtime.executor(), generation);
        Process { tasks, runtime, handle: None }
    }

    /// Lets all processes go on until nothing happens any more.
    fn pump(&mut self) {
        let mut seen = None;
        let mut quiet = 0;
        while quiet < 2 {
            for process in &self.processes {
                process.tasks.block_on(async {
                    for _ in 0..TURNS {
                        tokio::task::yield_now().await;
                    }
                });
            }
            let head = now(self.store.head(&key())).unwrap().map(|head| head.head());
            let sight = (head, self.clock.sleepers());
            quiet = if seen == Some(sight) { quiet + 1 } else { 0 };
            seen = Some(sight);
        }
    }

    fn ask<T>(&self, slot: usize, what: impl AsyncFnOnce(&Runtime) -> T) -> T {
        let process = &self.processes[slot];
        process.tasks.block_on(what(&process.runtime))
    }

    /// Does an operation to both, and compares them.
    pub(crate) fn apply(&mut self, op: &Op) -> Checked {
        let (name, real, wanted) = self.both(op);
        self.pump();
        match (&real, &wanted) {
            (Ok(()), Ok(())) => coverage::done(name),
            (Err(error), Err(refused)) => {
                same("error", &error.kind(), &refused.kind)
                    .map_err(|message| format!("{message}: {error}"))?;
                if !error.to_string().contains(&refused.says) {
                    return Err(format!("the error does not say `{}`: {error}", refused.says));
                }
                coverage::met(error.kind());
            }
            _ => return Err(format!("came to {real:?}, by the oracle {wanted:?}")),
        }
        self.compare()
    }

    /// Shows the log of the run.
    pub(crate) fn log(&self) -> Vec<String> {
        now(Log::read(&self.store, &key())).show()
    }

    /// Whether nothing can be done to the run any more.
    pub(crate) fn is_over(&self) -> bool {
        self.oracle.run.as_ref().is_some_and(Run::is_over)
    }

    /// Returns the operation's name, what it came to, and what by the oracle.
    fn both(&mut self, op: &Op) -> (&'static str, Result<(), Error>, Result<(), Refused>) {
        match *op {
            Op::Start { slot, same } => {
                let input = if same { INPUT } else { INPUT + 1 };
                let again = self.oracle.run.is_some();
                let mut context = Context::new();
                context.set("n", input).unwrap();
                let graph = graph(self.family, "1");
                let real = self.ask(slot, async |runtime| runtime.start(graph, context).id("r").await);
                // A first start with the other input would only rename the input.
                let wanted = self.oracle.start(slot, self.family, input);
                let name = if again { "start again" } else { "start" };
                (name, self.hold(slot, real), wanted.map_err(Refused::from))
            }
            Op::Resume { slot, take_over, graph: which, allow } => {
                let other = Family::ALL
                    [(Family::ALL.iter().position(|f| *f == self.family).unwrap() + 1) % Family::ALL.len()];
                let family = if which == Which::Other { other } else { self.family };
                let revision = if which == Which::Second { "2" } else { "1" };
                let choice = Choice { take_over, revision, allow, family };
                let graph = graph(family, revision);
                let real = self.ask(slot, async |runtime| {
                    let mut request = runtime.resume(graph, "r");
                    if take_over {
                        request = request.take_over();
                    }
                    if allow {
                        request = request.allow_changed_graph();
                    }
                    request.await
                });
                let before =
                    self.oracle.run.as_ref().and_then(|run| run.owner.map(|owner| (owner, run.epoch)));
                let wanted = self.oracle.resume(slot, &choice);
                let epoch = self.oracle.run.as_ref().map_or(0, |run| run.epoch);
                let taken = before.is_some_and(|(owner, was)| self.oracle.is_alive(owner) && was != epoch);
                let name = if taken { "resume by taking over" } else { "resume" };
                (name, self.hold(slot, real), wanted.map_err(Refused::from))
            }
            Op::Respond { slot, ref whom, answer, fits, by } => {
                let id = self.question(whom);
                let full = self.oracle.run.as_ref().and_then(|run| {
                    run.questions().into_iter().map(|(full, ..)| full).find(|full| full.starts_with(&id))
                });
                let answer = answer_to(full.as_ref().unwrap_or(&id), answer, fits);
                let real = self.ask(slot, async |runtime| {
                    let request = runtime.respond(&key(), &id, real_answer(&answer));
                    match by {
                        Some(by) => request.by(by).await,
                        None => request.await,
                    }
                });
                let name = match answer {
                    Answering::Accept(_) => "respond: accept",
                    Answering::Reject(_) => "respond: reject",
                    Answering::Cancel(_) => "respond: cancel",
                    Answering::Resolve(Resolving::Retry) => "respond: resolve by retry",
                    Answering::Resolve(Resolving::Supply) => "respond: resolve by supply",
                    Answering::Resolve(Resolving::Skip) => "respond: resolve by skip",
                    Answering::Resolve(Resolving::Fail) => "respond: resolve by fail",
                };
                (name, real, self.oracle.respond(&id, &answer, by))
            }
            Op::Send { slot, body, by } => {
                let real = self.ask(slot, async |runtime| {
                    let request = match body {
                        Body::NotJson => runtime.send(&key(), f64::NAN),
                        body => runtime.send(&key(), body.value()),
                    };
                    match by {
                        Some(by) => request.by(by).await,
                        None => request.await,
                    }
                });
                let wanted = match body {
                    Body::NotJson => Err(ErrorKind::Invalid),
                    Body::Huge => Err(ErrorKind::TooLarge),
                    body => self.oracle.send(&body.value(), by),
                };
                ("send", real, wanted.map_err(Refused::from))
            }
            Op::Cancel { slot } => {
                let real = self.ask(slot, async |runtime| runtime.cancel(&key(), "enough").await);
                ("cancel", real, self.oracle.cancel("enough").map_err(Refused::from))
            }
            Op::Pause { slot } => {
                let real = self.ask(slot, async |runtime| runtime.pause(&key(), "lunch").await);
                ("pause", real, self.oracle.pause("lunch").map_err(Refused::from))
            }
            Op::Unpause { slot } => {
                let real = self.ask(slot, async |runtime| runtime.unpause(&key()).await);
                ("unpause", real, self.oracle.unpause().map_err(Refused::from))
            }
            Op::Retry { slot } => {
                let real = self.ask(slot, async |runtime| runtime.retry(&key()).await);
                ("retry", real, self.oracle.retry().map_err(Refused::from))
            }
            Op::Edit { slot, fits } => {
                let change = match fits {
                    true => Change::Set("n".into(), json!(21)),
                    false => Change::Append("n".into(), vec![json!(1)]),
                };
                let patch = Patch::from_ops(&[change]).unwrap();
                let graph = graph(self.family, "1");
                let real = self
                    .ask(slot, async |runtime| runtime.edit(&key(), patch).checked_by(graph).by("ann").await);
                ("edit", real, self.oracle.edit("n", &json!(21), fits).map_err(Refused::from))
            }
            Op::Advance { ms } => {
                self.clock.advance(Duration::from_millis(ms));
                // Those who are alive say so first, as they did all the time.
                self.pump();
                self.oracle.advance(ms);
                ("advance", Ok(()), Ok(()))
            }
            Op::Crash { slot } => {
                let generation = self.generations.len() as u64 + 1;
                let process = self.process(generation);
                self.processes[slot] = process;
                self.oracle.crash(slot, generation);
                ("crash", Ok(()), Ok(()))
            }
            Op::Shutdown { slot } if self.oracle.is_cancelling(slot) => {
                ("shutdown not tried", Ok(()), Ok(()))
            }
            Op::Shutdown { slot } => {
                let real = self.ask(slot, async |runtime| runtime.shutdown(Duration::ZERO).await);
                self.oracle.shutdown(slot);
                ("shutdown", real, Ok(()))
            }
            Op::Rain(rain) => {
                self.outside.rain.store(rain, std::sync::atomic::Ordering::SeqCst);
                self.oracle.set_rain(rain);
                ("rain", Ok(()), Ok(()))
            }
            Op::Bank(bank) => {
                self.outside.bank.send_replace(bank);
                self.oracle.set_bank(bank);
                ("bank", Ok(()), Ok(()))
            }
            Op::Most(most) => {
                set_most(most);
                self.oracle.most = most.into();
                ("most", Ok(()), Ok(()))
            }
        }
    }

    /// Keeps the handle of a start or resume.
    fn hold(&mut self, slot: usize, handle: Result<RunHandle<Context>, Error>) -> Result<(), Error> {
        handle.map(|handle| self.processes[slot].handle = Some(handle))
    }

    /// Names a question.
    fn question(&self, whom: &Whom) -> String {
        let Some(run) = &self.oracle.run else { return "approve@1:gate".into() };
        let open: Vec<String> = run.questions().into_iter().map(|(id, ..)| id).collect();
        let pick = |ids: &[String], index: &proptest::sample::Index| match ids {
            [] => "nobody@1:asked".to_owned(),
            ids => ids[index.index(ids.len())].clone(),
        };
        let cut = |id: String, at: char| id.split(at).next().unwrap_or_default().to_owned();
        match whom {
            Whom::Open(index) => pick(&open, index),
            Whom::Node(index) => cut(pick(&open, index), '@'),
            Whom::Visit(index) => cut(pick(&open, index), ':'),
            Whom::Old(index) => pick(&run.closed(), index),
            Whom::Unknown => "nobody@7:asked".into(),
        }
    }

    /// Compares all that can be seen of the run.
    fn compare(&mut self) -> Checked {
        same(
            "steps done",
            &self.outside.steps.load(std::sync::atomic::Ordering::SeqCst),
            &self.oracle.steps,
        )?;
        same("begun", &*self.outside.begun.lock().unwrap(), &self.oracle.begun)?;
        same("told to stop", &self.outside.told.load(std::sync::atomic::Ordering::SeqCst), &false)?;
        // Both see the same store, so one of them is asked at a time.
        self.applied += 1;
        self.compare_seen(self.applied % SLOTS)?;
        (0..SLOTS).try_for_each(|slot| self.compare_handle(slot))?;
        let Some(run) = &self.oracle.run else { return Ok(()) };
        let records = now(self.store.load(&key(), At::Latest)).unwrap().unwrap();
        let mut channels = Channels::from_json("{}").unwrap();
        for record in &records {
            let body: Value = serde_json::from_slice(&record.body).unwrap();
            if let Some(base) = body.get("base") {
                channels = Channels::from_json(base["state"].to_string()).unwrap();
            } else if let Some(patch) = body.get("patch") {
                channels.apply(&Patch::from_json(&patch.to_string()).unwrap()).unwrap();
            }
        }
        same("state", &serde_json::to_value(&channels).unwrap(), &Value::Object(run.state.clone()))
    }

    /// Compares what a process is told when it asks.
    fn compare_seen(&self, slot: usize) -> Checked {
        let (head, questions, inbox) = self.ask(slot, async |runtime| {
            let run = key();
            (runtime.head(&run).await, runtime.questions(&run).await, runtime.inbox(&run).await)
        });
        let (head, Some(run)) = (head.map_err(|error| error.to_string())?, &self.oracle.run) else {
            let missing = [questions.err(), inbox.err()].map(|error| error.map(|error| error.kind()));
            return same("asked about no run", &missing, &[Some(ErrorKind::NotFound); 2]);
        };
        let (questions, inbox) = (questions.map_err(|e| e.to_string())?, inbox.map_err(|e| e.to_string())?);
        let head = head.ok_or("there is no run")?;
        let ms = |time: Timestamp| u64::try_from(time.unix_ms()).unwrap();
        same("status", &head.status, &run.status)?;
        same("owner", &head.owner.map(|owner| self.generations[&owner]), &run.owner)?;
        same("owner alive", &head.owner_alive, &run.owner.is_some_and(|owner| self.oracle.is_alive(owner)))?;
        same("epoch", &u64::from(head.epoch.get()), &run.epoch)?;
        // While somebody has the run, it is a hint for the case that they die.
        if head.owner.is_none() {
            same("wake", &head.wake_at.map(ms), &run.wake)?;
        }
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let mut asked: Vec<_> = questions
            .iter()
            .map(|q| (q.id.clone(), q.kind, q.deadline.map(ms), q.default.as_deref().map(read)))
            .collect();
        asked.sort_by(|one, other| one.0.cmp(&other.0));
        same("questions", &asked, &run.questions())?;
        let waiting: Vec<_> =
            inbox.iter().map(|m| (m.number, read(&m.body), m.by.clone(), ms(m.at))).collect();
        same("inbox", &waiting.as_slice(), &run.inbox())?;
        for done in ["head", "questions", "inbox"] {
            coverage::done(done);
        }
        Ok(())
    }

    /// Compares what the handle of a process tells.
    fn compare_handle(&self, slot: usize) -> Checked {
        let process = &self.processes[slot];
        let told = process.handle.as_ref().map(|handle| {
            let _within = process.tasks.enter();
            process.tasks.block_on(async { once(handle.wait()).await }).map(stand)
        });
        let wanted = self.oracle.told(slot);
        if let Some(Some(Stand::Error(kind))) = told {
            coverage::met(kind);
        }
        if let Some(Some(stand)) = &wanted {
            coverage::stood(stand);
        }
        same("told by the handle", &told, &wanted)
    }
}

/// Polls a future once.
async fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Takes what a store in memory answers, which takes no time.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match pin!(future).poll(&mut cx) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("a store in memory never waits"),
    }
}

fn stand(outcome: Result<Outcome<Context>, Error>) -> Stand {
    let value = |state: &Context| serde_json::to_value(state).unwrap();
    let ids = |questions: Vec<ferrata_core::ask::Question>| {
        let mut ids: Vec<_> = questions.into_iter().map(|question| question.id).collect();
        ids.sort();
        ids
    };
    match outcome {
        Ok(Outcome::Completed(state)) => Stand::Completed(value(&state)),
        Ok(Outcome::Failed { failure, state }) => Stand::Failed(failure.kind, value(&state)),
        Ok(Outcome::Interrupted(questions)) => Stand::Interrupted(ids(questions)),
        Ok(Outcome::AwaitingInput) => Stand::AwaitingInput,
        Ok(Outcome::Paused { reason, questions }) => Stand::Paused(reason, ids(questions)),
        Ok(Outcome::Sleeping { until }) => Stand::Sleeping(until.unix_ms().try_into().unwrap()),
        Ok(Outcome::Cancelled { reason, .. }) => Stand::Cancelled(reason),
        Ok(Outcome::Released) => Stand::Released,
        Ok(other) => unreachable!("{other:?}"),
        Err(error) => Stand::Error(error.kind()),
    }
}

fn real_answer(answer: &Answering) -> Answer {
    match answer {
        Answering::Accept(value) => Answer::accept(value).unwrap(),
        Answering::Reject(comment) => Answer::reject(comment),
        Answering::Cancel(reason) => Answer::cancel(reason),
        Answering::Resolve(Resolving::Retry) => Resolution::Retry.into(),
        Answering::Resolve(Resolving::Skip) => Resolution::Skip.into(),
        Answering::Resolve(Resolving::Fail) => Resolution::Fail("bounced".into()).into(),
        Answering::Resolve(Resolving::Supply) => {
            Resolution::Supply(Patch::from_ops(&[Change::Set("paid".into(), json!(7))]).unwrap()).into()
        }
    }
}
