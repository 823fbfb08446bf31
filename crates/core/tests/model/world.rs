//! The real processes next to the oracle: each operation runs on both, and then both are compared.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::record::Resolution;
use ferrata_core::runtime::{Position, RunHandle, Runtime};
use ferrata_core::state::{Context, Op as Change, Patch};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, Error, ErrorKind, ExecutorId, HeadRef, RunKey, Timestamp};
use ferrata_testing::ManualClock;
use serde_json::json;

use crate::coverage;
use crate::graphs::{Family, Outside, set_most};
use crate::judge::Seen;
use crate::operations::{Answering, Body, Choice, Op, Refused, Resolving, SLOTS, Which, Whom, answer_to};
use crate::oracle::{Generation, Oracle, Run};
use crate::process::{Process, SILENCE, Setting, Stores, graph, key};
use crate::support::log::Log;
use crate::weather::Fault;

/// Maximum size of a record body.
pub(crate) const MAX_BODY: usize = 64 * 1024;

/// The input of every first start.
const INPUT: i64 = 5;

/// Number of turns after which a call counts as unanswered.
const PATIENCE: usize = 2_000;

/// Maximum number of turns of all processes after an operation, which takes about ten.
const ROUNDS: u32 = 2_000;

/// Number of turns without an event after which a process counts as quiet. One turn runs all ready tasks.
const TURNS: usize = 4;

/// The name of an operation, its result, and the oracle's result.
type Did = (&'static str, Result<(), Error>, Result<(), Refused>);

pub(crate) type Checked = Result<(), String>;

pub(crate) struct World {
    pub(crate) family: Family,
    pub(crate) setting: Setting,
    pub(crate) stores: Stores,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) outside: Outside,
    pub(crate) processes: Vec<Process>,
    pub(crate) generations: BTreeMap<ExecutorId, Generation>,
    pub(crate) oracle: Oracle,
    /// The index of the current run. Each fork replaces the run before.
    pub(crate) number: usize,
    /// The last record of a run when a handle was first seen to have ended with a claim.
    pub(crate) end_heads: BTreeMap<(usize, u64), Option<HeadRef>>,
    /// The records read so far.
    pub(crate) seen: Seen,
    /// Number of conflicting writes, and how many of them the oracle knows.
    pub(crate) met: Arc<AtomicU32>,
    told: u32,
    /// Number of sent messages.
    sent: u32,
    /// Whether finished work may be lost, so that only guarantees are checked from now on.
    pub(crate) is_judged: bool,
    pub(crate) applied: usize,
}

pub(crate) fn same<T: PartialEq + Debug>(what: &str, real: &T, wanted: &T) -> Checked {
    if real == wanted { Ok(()) } else { Err(format!("{what}: is {real:?}, by the oracle {wanted:?}")) }
}

impl World {
    pub(crate) fn new(family: Family, setting: Setting) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
        let stores = Stores::new(&(Arc::clone(&clock) as Arc<dyn Clock>));
        set_most(9);
        let mut world = Self {
            family,
            setting,
            oracle: Oracle::new(clock.now().unix_ms().try_into().unwrap(), SLOTS),
            stores,
            clock,
            outside: Outside::new(),
            processes: Vec::new(),
            generations: BTreeMap::new(),
            number: 0,
            end_heads: BTreeMap::new(),
            seen: Seen::default(),
            met: Arc::default(),
            told: 0,
            sent: 0,
            is_judged: false,
            applied: 0,
        };
        for slot in 0..SLOTS {
            let process = world.process(slot as u64 + 1);
            world.processes.push(process);
        }
        world.pump();
        world
    }

    pub(crate) fn key(&self) -> RunKey {
        key(self.number)
    }

    /// Runs all processes until nothing happens any more.
    ///
    /// Panics if the activity does not end. The clock stands still, so all activity comes from the last operation.
    pub(crate) fn pump(&mut self) {
        let mut seen = None;
        let mut quiet = 0;
        let mut rounds = 0;
        while quiet < 2 {
            rounds += 1;
            assert!(rounds < ROUNDS, "the run is written endlessly: {seen:?}");
            for process in &self.processes {
                process.tasks.block_on(async {
                    for _ in 0..TURNS {
                        tokio::task::yield_now().await;
                    }
                });
            }
            let head = now(self.stores.near.head(&self.key())).unwrap().map(|head| head.head());
            let sight = (head, self.clock.sleepers());
            quiet = if seen == Some(sight) { quiet + 1 } else { 0 };
            seen = Some(sight);
        }
    }

    /// Runs a call in a process that needs no time.
    pub(crate) fn ask<T>(&self, slot: usize, what: impl AsyncFnOnce(&Runtime) -> T) -> T {
        let process = &self.processes[slot];
        process.tasks.block_on(async {
            let mut done = pin!(what(&process.runtime));
            for _ in 0..PATIENCE {
                if let Some(value) = once(done.as_mut()).await {
                    return value;
                }
                tokio::task::yield_now().await;
            }
            panic!("a call of a process got no answer");
        })
    }

    /// Applies an operation to both, and compares them.
    pub(crate) fn apply(&mut self, op: &Op) -> Checked {
        let (before, ended) = (self.oracle.run.as_ref().and_then(|run| run.driver), self.oracle.ended());
        let (name, real, wanted) = self.both(op);
        self.pump();
        self.meet(ended);
        self.is_judged |= self.may_be_lost(op, before, &real);
        self.look()?;
        if self.is_judged {
            coverage::done("judged");
            return self.judge(op, &real);
        }
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

    /// Reports conflicting writes to the oracle.
    fn meet(&mut self, ended: Option<u64>) {
        let met = self.met.load(Ordering::SeqCst);
        if met > self.told {
            self.told = met;
            self.oracle.meet(met, ended);
            coverage::done("met");
        }
    }

    /// The log of the run as text.
    pub(crate) fn log(&self) -> Vec<String> {
        now(Log::read(&self.stores.near, &self.key())).show()
    }

    /// Whether the run cannot change any more.
    pub(crate) fn is_over(&self) -> bool {
        self.oracle.run.as_ref().is_some_and(Run::is_over)
    }

    /// Returns the operation's name, its result, and the oracle's result.
    fn both(&mut self, op: &Op) -> Did {
        let (key, revision) = (self.key(), self.oracle.revision());
        match *op {
            Op::Start { slot, same } => {
                let input = if same { INPUT } else { INPUT + 1 };
                let again = self.oracle.run.is_some();
                let mut context = Context::new();
                context.set("n", input).unwrap();
                let (graph, id) = (graph(self.family, self.oracle.revision()), self.key());
                let policy = self.setting.often.policy();
                let real = self.ask(slot, async |runtime| {
                    runtime.start(graph, context).id(id.run.as_str()).checkpoints(policy).await
                });
                // For a first start, another input would only be another constant.
                let wanted = self.oracle.start(slot, self.family, input);
                let name = if again { "start again" } else { "start" };
                (name, self.hold(slot, real), wanted.map_err(Refused::from))
            }
            Op::Resume { slot, take_over, graph: which, allow } => {
                let other = Family::ALL
                    [(Family::ALL.iter().position(|f| *f == self.family).unwrap() + 1) % Family::ALL.len()];
                let family = if which == Which::Other { other } else { self.family };
                // Older code cannot read a run whose state has the newer form.
                let revision = if revision == "3" { "3" } else { which.revision() };
                let was = self.oracle.revision();
                let choice = Choice { take_over, revision, allow, family };
                let graph = graph(family, revision);
                let (id, policy) = (self.key(), self.setting.often.policy());
                let real = self.ask(slot, async |runtime| {
                    let mut request = runtime.resume(graph, id).checkpoints(policy);
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
                let held = self.hold(slot, real);
                // A process with code of another form reads the state in its form, or cannot read it.
                let others = (0..SLOTS).filter(|other| *other != slot && self.oracle.revision() != was);
                let itself = (revision == "3" && self.oracle.revision() != "3").then_some(slot);
                for slot in others.chain(itself).collect::<Vec<_>>() {
                    if self.oracle.forget_watch(slot) {
                        self.processes[slot].handle = None;
                    }
                }
                (name, held, wanted.map_err(Refused::from))
            }
            Op::Respond { slot, ref whom, answer, fits, by } => {
                let id = self.question(whom);
                let full = self.oracle.run.as_ref().and_then(|run| {
                    run.questions().into_iter().map(|(full, ..)| full).find(|full| full.starts_with(&id))
                });
                let answer = answer_to(full.as_ref().unwrap_or(&id), answer, fits);
                let real = self.ask(slot, async |runtime| {
                    let request = runtime.respond(&key, &id, real_answer(&answer, revision));
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
            Op::Send { slot, body, key: told_by, by } => {
                self.sent += 1;
                // Each key has another text, so that messages are distinguishable.
                let value = body.value(told_by.map_or(self.sent, |told_by| 1_000_000 + u32::from(told_by)));
                let real = self.ask(slot, async |runtime| {
                    let request = match body {
                        Body::NotJson => runtime.send(&key, f64::NAN),
                        _ => runtime.send(&key, &value),
                    };
                    let request = match told_by {
                        Some(told_by) => request.key(format!("k{told_by}")),
                        None => request,
                    };
                    match by {
                        Some(by) => request.by(by).await,
                        None => request.await,
                    }
                });
                let wanted = match body {
                    Body::NotJson => Err(ErrorKind::Invalid),
                    Body::Huge => Err(ErrorKind::TooLarge),
                    _ => self.oracle.send(&value, told_by, by),
                };
                ("send", real, wanted.map_err(Refused::from))
            }
            Op::Cancel { slot } => {
                let real = self.ask(slot, async |runtime| runtime.cancel(&key, "enough").await);
                ("cancel", real, self.oracle.cancel("enough").map_err(Refused::from))
            }
            Op::Pause { slot } => {
                let real = self.ask(slot, async |runtime| runtime.pause(&key, "lunch").await);
                ("pause", real, self.oracle.pause("lunch").map_err(Refused::from))
            }
            Op::Unpause { slot } => {
                let real = self.ask(slot, async |runtime| runtime.unpause(&key).await);
                ("unpause", real, self.oracle.unpause().map_err(Refused::from))
            }
            Op::Retry { slot } => {
                let real = self.ask(slot, async |runtime| runtime.retry(&key).await);
                ("retry", real, self.oracle.retry().map_err(Refused::from))
            }
            Op::Edit { slot, fits } => {
                let change = match fits {
                    true => Change::Set("n".into(), json!(21)),
                    false => Change::Append("n".into(), vec![json!(1)]),
                };
                let patch = Patch::from_ops(&[change]).unwrap();
                let graph = graph(self.family, revision);
                let real = self
                    .ask(slot, async |runtime| runtime.edit(&key, patch).check_with(graph).by("ann").await);
                ("edit", real, self.oracle.edit("n", &json!(21), fits).map_err(Refused::from))
            }
            Op::Advance { ms } => {
                self.pass(ms);
                ("advance", Ok(()), Ok(()))
            }
            Op::Crash { slot } => {
                let generation = self.generations.len() as u64 + 1;
                let process = self.process(generation);
                self.processes[slot] = process;
                self.oracle.crash(slot, generation);
                ("crash", Ok(()), Ok(()))
            }
            // The shutdown would have to wait for the clock.
            Op::Shutdown { slot } if self.oracle.is_cancelling(slot) => {
                ("shutdown not tried", Ok(()), Ok(()))
            }

            Op::Shutdown { slot } => {
                // A conflicting writer would make the shutdown release the run without its wake-up time.
                self.processes[slot].weather.set(None);
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
            Op::Weather { slot, fault } => {
                self.processes[slot].weather.set(Some(fault));
                ("weather", Ok(()), Ok(()))
            }
            Op::Hang { slot, done, ms } => self.hang(slot, done, ms),
            Op::Fork { slot } => self.fork(slot),
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

    /// Lets the next append that time causes get no answer until its timeout.
    fn hang(&mut self, slot: usize, done: bool, ms: u64) -> Did {
        if !self.family.may_hang() {
            return ("hang not tried", Ok(()), Ok(()));
        }
        self.processes[slot].weather.set(Some(Fault::Hangs { done }));
        self.pass(ms);
        self.processes[slot].weather.set(None);
        for _ in 0..=SILENCE.as_secs() {
            self.pass(1_000);
        }
        ("hang", Ok(()), Ok(()))
    }

    /// Advances the clock of both.
    fn pass(&mut self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
        // Processes that are alive send their heartbeats first.
        self.pump();
        self.oracle.advance(ms);
    }

    /// Forks the run at its entry, and replaces the run by the fork.
    fn fork(&mut self, slot: usize) -> Did {
        // The documentation does not define whether a fork keeps the received messages of a conversation.
        if self.family == Family::Talk || self.number > 4 || !self.oracle.may_fork(slot) || self.is_judged {
            return ("fork not tried", Ok(()), Ok(()));
        }
        self.outside.forget();
        let (source, graph) = (self.key(), graph(self.family, self.oracle.revision()));
        let (id, policy) = (key(self.number + 1), self.setting.often.policy());
        let real = self.ask(slot, async |runtime| {
            let request = runtime.fork(&source, Position::Latest).id(id.run.as_str());
            request.start_at(self.family.entry()).drive(graph).checkpoints(policy).await
        });
        let wanted = self.oracle.fork(slot);
        if wanted.is_ok() {
            self.number += 1;
            self.seen = Seen::default();
            self.processes.iter_mut().for_each(|process| process.handle = None);
        }
        ("fork", self.hold(slot, real), wanted.map_err(Refused::from))
    }

    /// The id of a question.
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
}

/// Polls a future once.
pub(crate) async fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Returns the result of a call of the memory store, which is always ready.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match pin!(future).poll(&mut cx) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the memory store was not ready at once"),
    }
}

fn real_answer(answer: &Answering, revision: &str) -> Answer {
    match answer {
        Answering::Accept(value) => Answer::accept(value).unwrap(),
        Answering::Reject(comment) => Answer::reject(comment),
        Answering::Cancel(reason) => Answer::cancel(reason),
        Answering::Resolve(Resolving::Retry) => Resolution::Retry.into(),
        Answering::Resolve(Resolving::Skip) => Resolution::Skip.into(),
        Answering::Resolve(Resolving::Fail) => Resolution::Fail("bounced".into()).into(),
        Answering::Resolve(Resolving::Supply) => {
            let paid = if revision == "3" { "settled" } else { "paid" };
            Resolution::Supply(Patch::from_ops(&[Change::Set(paid.into(), json!(7))]).unwrap()).into()
        }
    }
}
