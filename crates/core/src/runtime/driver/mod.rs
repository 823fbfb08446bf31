//! The driver of one run: turns what happens into records, absorbs them, appends them, and does what the machine asks for.

mod barrier;
mod end;
mod facts;
mod launch;
mod lost;
mod offers;
mod outbox;
mod rebase;
mod record;
mod settle;
mod signal;
mod waiting;
mod wishes;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use self::end::Spoilt;
pub(crate) use self::end::check_input;
use self::facts::Facts;
pub(crate) use self::outbox::Outbox;
use self::waiting::Waiting;
use super::attempt::AttemptEnd;
use super::event::Event as RunEventKind;
use super::life::Tenure;
use super::log::LogWriter;
use super::retention;
use super::shared::{Control, Driven, Phase, Shared};
use super::tasks::spawn;
use crate::ask::Answer;
use crate::clock::Timestamp;
use crate::engine::frontier::ActivationKey;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::few_map::FewMap;
use crate::graph::plan::Plan;
use crate::graph::{CheckpointFrequency, CheckpointPolicy, Graph};
use crate::id::Seq;
use crate::latch::Teller;
use crate::node::{Command, Given, NodeScope, Replier, RunScope};
use crate::queue::Receiver;
use crate::record::RunStatus;
use crate::record::body::{Event, NodeDone};
use crate::state::{Patch, State};

/// How many nodes run on without giving other tasks a turn.
const TURN: u32 = 64;

/// What was absorbed and is not written yet: coarser checkpoint frequencies hold it back.
#[derive(Default)]
struct Held {
    /// Whether anything was absorbed since the last record.
    any: bool,
    done: Vec<NodeDone>,
    patch: Patch,
    /// When something was last written, by the monotonic clock.
    written: Duration,
}

/// What the first record of a run says, where it is not written at the start.
pub(crate) struct First {
    pub(crate) event: Event,
    pub(crate) input: Box<RawValue>,
}

/// Why the driver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The run has ended, or waits for an answer.
    Settled,
    /// The runtime ended; the run was let go.
    Released,
}

pub(crate) struct Driver<S: State> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) graph: Graph<S>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) policy: CheckpointPolicy,
    pub(crate) scope: Arc<RunScope>,
    pub(crate) machine: Machine,
    pub(crate) state: Arc<S>,
    pub(crate) log: LogWriter,
    pub(crate) outbox: Outbox,
    pub(crate) commands: Receiver<Command>,
    pub(crate) cancelled: Teller<()>,
    /// When the run must have ended, by the monotonic clock.
    pub(crate) deadline: Option<Duration>,
    /// The same, as others understand it.
    deadline_at: Option<Timestamp>,
    /// The first record, until it is written: with checkpoints disabled it may never be.
    pub(crate) first: Option<Box<First>>,
    driven: Driven,
    held: Held,
    facts: Facts<S>,
    /// Activations to start, in order.
    ready: VecDeque<ActivationKey>,
    /// The state that each of them starts from.
    given: FewMap<ActivationKey, Arc<S>>,
    /// Activations that start once a record is durable.
    waiting: VecDeque<(Seq, ActivationKey)>,
    /// Activations whose barrier was passed.
    passed: VecDeque<ActivationKey>,
    /// Activations that wait for their next attempt.
    timers: BTreeSet<(Timestamp, ActivationKey)>,
    running: FewMap<ActivationKey, Running>,
    tasks: JoinSet<(ActivationKey, AttemptEnd<S>, Duration)>,
    /// Replies to those who wait for a record to become durable.
    replies: VecDeque<(Seq, Owed)>,
    /// What running nodes wait for.
    waits: Waiting,
    /// The questions that the answerer was given, each with what ends its work on it.
    posed: HashMap<String, AbortHandle>,
    /// Its answers to come.
    answering: JoinSet<(String, Option<Answer>)>,
    /// When the grace of a cancellation or a shutdown is over, by the monotonic clock.
    grace: Option<Duration>,
    /// Whether the runtime ends.
    ending: bool,
    /// An update that went wrong after it had changed the live state.
    spoilt: Option<Box<Spoilt>>,
    /// The last record when old ones were dropped last.
    small_at: u64,
    turn: u32,
}

struct Running {
    task: AbortHandle,
    external: bool,
    /// What tells whether it has nothing to do until something that it waits for comes.
    scope: Arc<NodeScope>,
    /// What ended in attempts before while something else might have, each with its place in the order.
    ended: BTreeMap<String, usize>,
}

/// A reply that is owed once a record is durable.
enum Owed {
    Done(oneshot::Sender<Result<()>>),
    /// What a node waited for.
    Given {
        reply: Replier,
        given: Given,
    },
    /// That nobody answered this question in time.
    Expiry {
        key: ActivationKey,
        name: String,
    },
}

impl Owed {
    fn pay(self) {
        // Who does not wait any more needs no reply.
        match self {
            Self::Done(reply) => drop(reply.send(Ok(()))),
            Self::Given { reply, given } => reply.send(Ok(given)),
            Self::Expiry { .. } => {}
        }
    }

    fn refuse(self, error: Error) {
        match self {
            Self::Done(reply) => drop(reply.send(Err(error))),
            Self::Given { reply, .. } => reply.send(Err(error)),
            Self::Expiry { .. } => {}
        }
    }
}

impl<S: State> Driver<S> {
    #[expect(
        clippy::too_many_arguments,
        reason = "called in one place, with what a start or a claim has made"
    )]
    pub(crate) fn new(
        shared: Arc<Shared>,
        graph: Graph<S>,
        policy: CheckpointPolicy,
        driven: Driven,
        parts: (Arc<RunScope>, Receiver<Command>, Teller<()>),
        machine: Machine,
        state: Arc<S>,
        log: LogWriter,
        outbox: Outbox,
    ) -> Self {
        let plan = Arc::clone(graph.plan());
        let now = shared.clock.monotonic();
        let (scope, commands, cancelled) = parts;
        let log_start = log.head.map_or(0, |head| head.seq.get());
        let mut driver = Self {
            deadline: None,
            deadline_at: None,
            shared,
            graph,
            plan,
            policy,
            scope,
            machine,
            state,
            log,
            outbox,
            commands,
            cancelled,
            first: None,
            driven,
            held: Held { written: now, ..Held::default() },
            facts: Facts::default(),
            ready: VecDeque::new(),
            given: FewMap::default(),
            waiting: VecDeque::new(),
            passed: VecDeque::new(),
            timers: BTreeSet::new(),
            running: FewMap::default(),
            tasks: JoinSet::new(),
            replies: VecDeque::new(),
            waits: Waiting::default(),
            posed: HashMap::new(),
            answering: JoinSet::new(),
            grace: None,
            ending: false,
            spoilt: None,
            small_at: log_start,
            turn: 0,
        };
        driver.schedule_all();
        driver
    }

    /// Which claim of which life of the run it drives.
    pub(crate) fn tenure(&self) -> Tenure {
        Tenure { life: self.machine.life(), epoch: self.log.epoch }
    }

    /// Sets the deadline, which counts from the start of the run, whoever drove it since.
    pub(crate) fn count_from(&mut self, created: Timestamp) {
        let clock = &self.shared.clock;
        let left = self.plan.deadline.map(|after| after.saturating_sub(clock.now().since(created)));
        self.deadline_at = self.plan.deadline.map(|after| created.plus(after));
        self.deadline = left.map(|left| clock.monotonic().saturating_add(left));
    }

    /// Whether what nodes returned can be taken in again after another writer came first.
    ///
    /// Frequencies without a bound on what they hold back do not keep it, since that would hold memory without a bound as well:
    /// then a conflict that meets it ends the run here, and a resume goes on from the last checkpoint. What activations noted is
    /// written at once, and kept until then under every policy.
    fn keeps_ends(&self) -> bool {
        !matches!(
            self.policy.frequency,
            CheckpointFrequency::Disabled | CheckpointFrequency::StatusChangeOnly
        )
    }

    /// Whether patches are encoded: without any record to come there is no use for them, and a later one becomes a base.
    fn encodes_patches(&self) -> bool {
        self.policy.frequency != CheckpointFrequency::Disabled
    }

    /// Drives the run until it has settled, or the runtime ends.
    ///
    /// Everything that was acknowledged is durable when this returns, also with an error.
    pub(crate) async fn run(&mut self) -> Result<Stopped> {
        // Whoever polls this lets go of the run.
        self.driven.owe(None);
        let result = self.drive().await;
        self.abort_all();
        let reply = match &result {
            Ok(_) => {
                Error::new(ErrorKind::Closed, "the run is no longer driven here").with_run(&self.log.run)
            }
            Err(error) => error.clone(),
        };
        for (_, waiting) in self.replies.drain(..) {
            waiting.refuse(reply.clone());
        }
        result
    }

    async fn drive(&mut self) -> Result<Stopped> {
        loop {
            let told = *self.shared.stop.borrow();
            if told.term != self.driven.term {
                return Err(self.shared.pulse.fenced().with_run(&self.log.run));
            }
            if let Phase::Ending(grace) = told.phase {
                self.end_within(grace);
            }
            if self.is_overdue() {
                self.exceed_deadline()?;
            }
            self.step().await?;
            self.pose();
            if let Some(stopped) = self.settle().await? {
                return Ok(stopped);
            }
            self.wait().await?;
        }
    }

    /// Does everything that can be done without waiting.
    async fn step(&mut self) -> Result<()> {
        loop {
            while let Some(answer) = self.outbox.try_acknowledge() {
                self.acknowledge(answer).await?;
            }
            if self.outbox.pending() >= self.shared.limits.max_pending {
                let answer = self.outbox.acknowledged().await;
                self.acknowledge(answer).await?;
                continue;
            }
            self.turn += 1;
            if self.turn.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
                while let Some(command) = self.commands.try_recv() {
                    self.command(command)?;
                }
                while let Some(control) = self.driven.control.try_recv() {
                    self.control(control).await?;
                }
            }
            if self.plan.concurrency.is_some() {
                // Whoever has begun to wait makes room, and may go on itself before the next begins.
                while let Some(command) = self.commands.try_recv() {
                    self.command(command)?;
                }
            }
            self.offer()?;
            if !self.launch_next().await? {
                return Ok(());
            }
        }
    }

    /// Waits for the next thing to happen and takes it in.
    async fn wait(&mut self) -> Result<()> {
        let clock = Arc::clone(&self.shared.clock);
        let now = clock.monotonic();
        let wake = self.next_wake(now).min(now.saturating_add(self.shared.poll()));
        let sleep = clock.sleep(wake.saturating_sub(now));
        tokio::select! {
            biased;
            answer = self.outbox.acknowledged() => self.acknowledge(answer).await,
            Some(ended) = self.tasks.join_next() => match ended {
                Ok((key, end, took)) => self.ended(key, end, took).await,
                // Aborted on purpose; a panic of a node is caught inside its task.
                Err(_) => Ok(()),
            },
            Some(answered) = self.answering.join_next_with_id() => match answered {
                Ok((task, (question, answer))) => Box::pin(self.answered(task, question, answer)).await,
                // Somebody else answered first.
                Err(error) if error.is_cancelled() => Ok(()),
                Err(error) => {
                    tracing::error!(run = %self.log.run, %error, "the answerer panicked; its question stays open");
                    Ok(())
                }
            },
            command = self.commands.recv() => {
                self.command(command)?;
                // What others wish at the same time is weighed with it.
                while let Some(command) = self.commands.try_recv() {
                    self.command(command)?;
                }
                Ok(())
            }
            control = self.driven.control.recv() => self.control(control).await,
            () = sleep => self.on_timer().await,
        }
    }

    fn command(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Checkpoint(reply) => {
                self.flush(true)?;
                match self.log.head {
                    Some(head) if !self.outbox.is_durable(head.seq) => {
                        self.replies.push_back((head.seq, Owed::Done(reply)))
                    }
                    _ => drop(reply.send(Ok(()))),
                }
            }
            Command::Emit { node, visit, name, payload } => {
                let payload = Arc::from(payload);
                self.shared.emit(&self.log.run, || RunEventKind::Custom { node, visit, name, payload });
            }
            Command::Wish { activation, name, wish, reply } => self.wish(activation, name, wish, reply)?,
            // Looked at in the next turn.
            Command::Parked(key) => self.waits.stir(key),
        }
        Ok(())
    }

    async fn control(&mut self, control: Control) -> Result<()> {
        match control {
            Control::Look => Box::pin(self.look()).await,
            Control::Begun(reply) => {
                // Who does not wait any more needs no reply.
                let _ = reply.send(());
                Ok(())
            }
            // Looked at in the next turn.
            Control::Stop => Ok(()),
            Control::Signal { signal, reply } => tell(Box::pin(self.signal(signal)).await, reply),
            Control::Edit { patch, by, reply } => tell(Box::pin(self.edit(patch, by)).await, reply),
        }
    }

    /// Looks whether somebody else has written to the run.
    async fn look(&mut self) -> Result<()> {
        if !self.outbox.is_empty() || self.outbox.durable().is_none() {
            // What is on its way will meet whoever wrote.
            return Ok(());
        }
        match self.shared.store.head(&self.log.run).await {
            Ok(Some(head)) if Some(head.head()) == self.outbox.durable() => Ok(()),
            Ok(_) => self.rebase().await,
            // Looking is a courtesy; what matters meets the error when it is written.
            Err(error) => {
                tracing::debug!(run = %self.log.run, %error, "cannot look for signals");
                Ok(())
            }
        }
    }

    async fn acknowledge(&mut self, answer: Result<crate::id::HeadRef>) -> Result<()> {
        match answer {
            Ok(head) => {
                self.facts.acknowledged(head.seq);
                self.shared.emit(&self.log.run, || RunEventKind::Durable { seq: head.seq });
                while self.replies.front().is_some_and(|(seq, _)| *seq <= head.seq) {
                    match self.replies.pop_front() {
                        Some((_, Owed::Expiry { key, name })) => self.expired(key, &name),
                        Some((_, reply)) => reply.pay(),
                        None => {}
                    }
                }
                self.pass_barriers();
                self.keep_small(head.seq);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Conflict => Box::pin(self.rebase()).await,
            Err(error) => Err(error.with_run(&self.log.run)),
        }
    }

    /// Has old records dropped beside the run, once for as many records as are kept.
    fn keep_small(&mut self, durable: Seq) {
        let Some(policy) = self.shared.retention.clone() else { return };
        let Some(stride) = policy.stride() else { return };
        if durable.get() < self.small_at.saturating_add(stride) {
            return;
        }
        self.small_at = durable.get();
        let (shared, run) = (Arc::clone(&self.shared), self.log.run.clone());
        spawn(async move {
            let now = shared.clock.now();
            // What is not dropped now is dropped the next time, or by a sweep.
            if let Err(error) = retention::prune(&*shared.store, &run, &policy, now, false).await {
                tracing::warn!(%run, %error, "old records of the run could not be dropped");
            }
        });
    }

    /// Returns when the driver must act although nothing happens.
    fn next_wake(&self, now: Duration) -> Duration {
        let wall = self.shared.clock.now();
        let retry = self.timers.first().map(|&(at, _)| at);
        let rings = self.waits.next_look().filter(|_| !self.is_stopping());
        let [retry, rings] = [retry, rings].map(|at| at.map(|at| now.saturating_add(at.since(wall))));
        let deadline = self.deadline.filter(|_| !self.is_stopping());
        [retry, rings, deadline, self.grace].into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// Whether nothing new may start.
    fn is_stopping(&self) -> bool {
        self.machine.cancel().is_some()
            || self.machine.paused().is_some()
            || self.grace.is_some()
            || self.machine.status() != RunStatus::InProgress
    }

    /// Whether an activation that runs has more to do than to wait for something that survives it.
    fn is_at_work(&self) -> bool {
        self.running.iter().any(|(&key, running)| !(running.scope.waits.is_parked() && self.waits.waits(key)))
    }

    fn room(&self) -> bool {
        self.plan.concurrency.is_none_or(|most: NonZeroU32| {
            (most.get() as usize)
                > self.running.values().filter(|running| !running.scope.waits.is_parked()).count()
        })
    }

    fn abort_all(&mut self) {
        self.cancelled.tell(());
        self.tasks.abort_all();
        self.running.clear();
    }
}

/// Tells whoever spoke to the run what became of it, also if the driver stops over it: whether it is on record may be open then,
/// and must not be taken for "no".
fn tell(said: Result<Result<()>>, reply: oneshot::Sender<Result<()>>) -> Result<()> {
    let (answer, result) = match said {
        Ok(answer) => (answer, Ok(())),
        Err(error) => (Err(error.clone()), Err(error)),
    };
    // Who does not wait any more needs no reply.
    drop(reply.send(answer));
    result
}
