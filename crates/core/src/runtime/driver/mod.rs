//! The driver of one active run. It turns events into records, applies the records to the machine, appends them to the log, and does what the machine
//! requires next.
//!
//! In addition to the machine, the driver has these parts. The [`RecordBuffer`] contains records that are not durable yet. The [`ReadyQueue`]
//! contains activations that are ready or running. The [`WaitRegistry`] contains the waits of nodes. The [`AnswererTasks`] contain questions on which
//! the answerer works. This module has the loop that connects them.

mod answerer_tasks;
mod apply;
mod attempt_end;
mod barrier;
mod child_pauses;
mod children;
mod cleanup;
mod data_loss;
mod deliveries;
mod events;
mod heartbeat_term;
mod idle;
mod inputs;
mod journal;
mod launch;
mod node_requests;
mod origin;
mod outbox;
mod ready_queue;
mod rebase;
mod record;
mod signal;
mod stopping;
mod test_fixture;
mod transactions;
mod waiters;

use crate::kernel::log::LogWriter;
use crate::record::RunFacts;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use self::answerer_tasks::AnswererTasks;
use self::apply::FailedApply;
pub(crate) use self::apply::check_input;
use self::journal::{DurableReply, ExpiredQuestion, RecordBuffer};
pub(crate) use self::journal::{FirstRecord, PendingRecords};
use self::ready_queue::ReadyQueue;
use self::stopping::StopDeadlines;
pub(crate) use self::transactions::check_transactions;
use self::waiters::WaitRegistry;
use crate::claim::ClaimId;
use crate::compact::once_channel::OnceSender;
use crate::compact::queue::Receiver;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::plan::GraphPlan;
use crate::graph::{CheckpointPolicy, Graph};
use crate::id::{HeadRef, RunKey, Seq};
use crate::kernel::commands::{DriverCommand, RuntimePhase};
use crate::kernel::event::Event as RunEventKind;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::spawn;
use crate::node::{AttemptKey, DriverRequest, RunScope};
use crate::past::retention;
use crate::record::RunStatus;
use crate::record::pause::ActivationNote;
use crate::runtime::writes::registration::DriverRegistration;
use crate::state::State;

/// The data from which a driver starts.
pub(crate) struct DriverInput<S> {
    pub(crate) machine: Machine,
    pub(crate) state: S,
    pub(crate) log: LogWriter,
    pub(crate) outbox: PendingRecords,
    /// The content of the first record, if this record is appended later.
    pub(crate) first: Option<FirstRecord>,
    pub(crate) facts: Arc<RunFacts>,
}

/// The maximum number of nodes that the driver handles before it yields to other tasks.
const TURN: u32 = 64;

/// The reason why the driver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverExit {
    /// The run has ended, or is idle.
    Settled,
    /// The runtime shut down and released the run.
    Released,
}

pub(crate) struct RunDriver<S: State> {
    shared: Arc<RuntimeInner>,
    graph: Graph<S>,
    plan: Arc<GraphPlan>,
    scope: Arc<RunScope>,
    machine: Machine,
    state: Arc<S>,
    journal: RecordBuffer<S>,
    ready_queue: ReadyQueue<S>,
    waits: WaitRegistry,
    answerer_tasks: AnswererTasks,
    commands: Receiver<DriverRequest>,
    registration: DriverRegistration,
    stopping: StopDeadlines,
    /// An update that failed after it had changed the live state.
    failed_apply: Option<Box<FailedApply>>,
    turn: u32,
}

impl<S: State> RunDriver<S> {
    pub(crate) fn new(
        shared: Arc<RuntimeInner>,
        graph: Graph<S>,
        policy: CheckpointPolicy,
        mut registration: DriverRegistration,
        (scope, commands, cancelled): (Arc<RunScope>, Receiver<DriverRequest>, OnceSender<()>),
        parts: DriverInput<S>,
    ) -> Self {
        let DriverInput { machine, state, log, outbox, first, facts } = parts;
        let plan = Arc::clone(graph.plan());
        let clock = &shared.clock;
        let journal = RecordBuffer::new(policy, Arc::clone(clock), log, outbox, first);
        let stopping = StopDeadlines::new(Arc::clone(clock), cancelled, plan.deadline, facts.created);
        registration.left.facts = Some(Arc::clone(&scope.facts));
        let (mut line, state) = (ReadyQueue::default(), Arc::new(state));
        line.push_all((&machine, &state), clock.now(), |node| plan.most_running(node).is_some());
        Self {
            shared,
            graph,
            plan,
            scope,
            machine,
            state,
            journal,
            ready_queue: line,
            waits: WaitRegistry::default(),
            answerer_tasks: AnswererTasks::default(),
            commands,
            registration,
            stopping,
            failed_apply: None,
            turn: 0,
        }
    }

    /// Returns the claim by which the driver drives its run.
    pub(crate) fn claim(&self) -> ClaimId {
        ClaimId { start_id: self.machine.start_id(), epoch: self.journal.epoch() }
    }

    pub(crate) fn shared(&self) -> &RuntimeInner {
        &self.shared
    }

    /// Returns the runtime, for use after the driver is gone.
    pub(crate) fn shared_handle(&self) -> Arc<RuntimeInner> {
        Arc::clone(&self.shared)
    }

    pub(crate) fn run_key(&self) -> &RunKey {
        self.journal.run()
    }

    /// Returns the driver's machine of the run.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the driver's state of the run.
    pub(crate) fn state(&self) -> &S {
        &self.state
    }

    /// Returns the last record known to be durable.
    pub(crate) fn durable_head(&self) -> Option<HeadRef> {
        self.journal.durable()
    }

    /// Returns whether the run has any record.
    pub(crate) fn has_begun(&self) -> bool {
        self.journal.has_begun()
    }

    /// Drives the run until it has ended or is idle, or until the runtime shuts down.
    ///
    /// When the call returns, even with an error, every acknowledged record is durable.
    pub(crate) async fn run(&mut self) -> Result<DriverExit> {
        // The caller releases the run.
        self.registration.expect_claim(None);
        let result = loop {
            match self.drive().await {
                Err(error) if self.journal.has_dropped() => {
                    if let Err(error) = Box::pin(self.fall_back(&error)).await {
                        break Err(error);
                    }
                }
                result => break result,
            }
        };
        if matches!(result, Ok(DriverExit::Settled)) && self.machine.status().is_finished() {
            // A run with disabled checkpoints has no record.
            self.registration.left.ended_at =
                Some(self.journal.durable().map_or(Seq::new(0), |head| head.seq));
        }
        self.stopping.notify_nodes();
        self.ready_queue.abort_all();
        let closed = |_| {
            Error::new(ErrorKind::Closed, "this process no longer drives the run")
                .with_run(self.journal.run())
        };
        let error = result.as_ref().map_or_else(Error::clone, closed);
        self.journal.refuse_all(&error);
        result
    }

    async fn drive(&mut self) -> Result<DriverExit> {
        self.deliver_all();
        loop {
            let told = self.shared.registry.stop();
            if told.term != self.registration.term {
                return Err(self.shared.heartbeat.fenced().with_run(self.journal.run()));
            }
            if let Some(lost) = self.stopping.take_stop_error() {
                return Err(lost);
            }
            if let RuntimePhase::Ending(grace) = told.phase {
                self.stopping.end_within(grace);
            }
            if self.is_overdue() {
                self.exceed_deadline()?;
            }
            self.step().await?;
            self.pose();
            if let Some(stopped) = self.try_become_idle().await? {
                return Ok(stopped);
            }
            let next = self.wait().await?;
            self.follow(next).await?;
        }
    }

    /// Does all work that is possible without waiting.
    async fn step(&mut self) -> Result<()> {
        loop {
            while let Some(answer) = self.journal.try_acknowledge() {
                self.acknowledge(answer).await?;
            }
            self.commit_steps().await?;
            if self.has_deferred() {
                Box::pin(self.take_in_deferred()).await?;
            }
            self.grant_transaction()?;
            if self.journal.pending() >= self.shared.limits.max_pending {
                if !self.journal.is_sending() {
                    // They are part of the open transaction.
                    return Ok(());
                }
                let answer = Box::pin(self.acknowledged()).await;
                self.acknowledge(answer).await?;
                continue;
            }
            self.turn += 1;
            if self.turn.is_multiple_of(TURN) {
                self.journal.detach_append();
                tokio::task::yield_now().await;
                self.take_commands()?;
                while let Some(control) = self.registration.control.try_recv() {
                    Box::pin(self.control(control)).await?;
                }
            }
            if self.plan.concurrency.is_some() {
                // A node that starts to wait frees its slot, and may itself continue before the next node starts.
                self.take_commands()?;
            }
            // Must follow the commands above: nothing else wakes the driver for them.
            self.commit_steps().await?;
            self.grant_transaction()?;
            self.deliver_ready()?;
            if self.launch_next().await? {
                continue;
            }
            if !self.ready_queue.is_idle() {
                // Ends that arrive meanwhile leave together.
                self.journal.detach_append();
                return Ok(());
            }
            // If the driver is otherwise idle, it sends inline: many stores answer at once.
            let Some(answer) = self.journal.try_here() else { return Ok(()) };
            self.acknowledge(answer).await?;
        }
    }

    fn take_commands(&mut self) -> Result<()> {
        while let Some(command) = self.commands.try_recv() {
            self.command(command)?;
        }
        Ok(())
    }

    /// Returns whether an attempt still belongs to an activation of the run.
    fn follows(&self, by: AttemptKey) -> bool {
        self.machine.in_flight().contains_key(&by.activation) && !self.ready_queue.has_left(by)
    }

    fn command(&mut self, command: DriverRequest) -> Result<()> {
        match command {
            DriverRequest::Checkpoint(reply) => {
                if let Err(error) = self.flush(true) {
                    // The caller must not rely on a record that does not exist.
                    drop(reply.send(Err(error.clone())));
                    return Err(error);
                }
                match self.journal.on_its_way() {
                    Some(seq) => self.journal.defer_reply(seq, DurableReply::Done(reply)),
                    None => drop(reply.send(Ok(()))),
                }
            }
            // After a write conflict, the attempt no longer follows and its work is dropped.
            DriverRequest::Chunks { by, .. }
            | DriverRequest::Wish { by, .. }
            | DriverRequest::Transaction { by, .. }
                if !self.follows(by) => {}
            // The attempt has ended. Its successor's commands come next.
            DriverRequest::Chunks { by, .. } if !self.ready_queue.runs(by) => {}
            DriverRequest::Chunks { by, name, text, taken } => {
                self.write_note(by.activation, &name, ActivationNote::Result(text.into()), false)?;
                taken.return_permit();
            }
            DriverRequest::Wish { by, name, wish, reply } => {
                self.handle_request(by.activation, name, wish, reply)?
            }
            DriverRequest::Transaction { by, reply } => self.await_transaction(by.activation, reply),
            DriverRequest::TransactionOver(number) => self.transaction_over(number),
            // The next turn checks it.
            DriverRequest::Parked(key) => self.waits.mark_dirty(key),
        }
        Ok(())
    }

    async fn control(&mut self, control: DriverCommand) -> Result<()> {
        match control {
            DriverCommand::Look(told) => Box::pin(self.check_head(told)).await,
            DriverCommand::Begun(reply) => {
                // The caller may be gone.
                let _ = reply.send(());
                Ok(())
            }
            // The next turn checks it.
            DriverCommand::Stop => Ok(()),
            DriverCommand::Release => {
                self.stopping.end_within(Duration::ZERO);
                self.ready_queue.abort_all();
                Ok(())
            }
            DriverCommand::Signal { signal, reply } if self.is_deferred(&signal) => {
                self.defer(*signal, reply);
                Ok(())
            }
            DriverCommand::Signal { signal, reply } => {
                signal::reply_to_signaller(Box::pin(self.signal(*signal)).await, reply)
            }
            DriverCommand::Edit { patch, by, reply } => {
                signal::reply_to_signaller(Box::pin(self.edit(*patch, by)).await, reply)
            }
        }
    }

    /// Checks whether other writers have appended records. `told` is the head that a notice contained, if there was one.
    async fn check_head(&mut self, told: Option<HeadRef>) -> Result<()> {
        // A transaction may have the only connection, and its commit finds the records, too.
        if self.has_transaction() || self.journal.pending() > 0 {
            // A pending record will conflict with another writer's record.
            return Ok(());
        }
        let Some(durable) = self.journal.durable() else { return Ok(()) };
        if told.is_some_and(|told| told == durable || told.seq < durable.seq) {
            // Mostly the head is its own: an append after another writer's record has found that record.
            return Ok(());
        }
        match self.in_term(self.shared.store.head(self.journal.run())).await {
            Ok(Some(head)) if head.head() == durable => Ok(()),
            Ok(_) => self.rebase().await,
            // This check is optional: the next write meets the same error.
            Err(error) => {
                tracing::debug!(run = %self.journal.run(), %error, "cannot check for signals; will retry");
                Ok(())
            }
        }
    }

    async fn acknowledge(&mut self, answer: Result<HeadRef>) -> Result<()> {
        match answer {
            Ok(head) => {
                self.emit(|| RunEventKind::Durable { seq: head.seq });
                for ExpiredQuestion { key, name } in self.journal.release_durable(head.seq) {
                    self.waits.expired(key, &name);
                }
                self.ready_queue.pass_barriers(head.seq);
                self.deliver_durable(head.seq);
                self.keep_small(head.seq);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Conflict => Box::pin(self.rebase()).await,
            Err(error) => Err(error.with_run(self.journal.run())),
        }
    }

    /// Starts to prune old records in a task of its own, each time the run has written as many records as the policy keeps.
    fn keep_small(&mut self, durable: Seq) {
        let Some(policy) = self.shared.services.retention.clone() else { return };
        if !policy.stride().is_some_and(|stride| self.journal.is_time_to_prune(durable, stride)) {
            return;
        }
        let (shared, run) = (Arc::clone(&self.shared), self.journal.run().clone());
        spawn(async move {
            let now = shared.clock.now();
            // The next prune or a sweep retries.
            if let Err(error) = retention::prune(&*shared.store, &run, &policy, now, false).await {
                tracing::warn!(%run, %error, "cannot prune old records of the run; will retry");
            }
        });
    }

    /// Handles times that have passed: retries that are due, the deadline, the end of a grace period, and the next check for signals of other
    /// processes.
    async fn on_timer(&mut self) -> Result<()> {
        self.ready_queue.push_due(self.shared.clock.now());
        if self.is_overdue() {
            // The next turn checks it before any new start, as after a claim.
            return Ok(());
        }
        if self.stopping.end_grace() {
            match self.is_cleaning_up() {
                true => _ = self.begin_cleanup(),
                false => self.ready_queue.abort_all(),
            }
        }
        Box::pin(self.check_head(None)).await
    }

    /// Returns the time at which the driver must act if no event arrives earlier.
    fn next_wake(&self, now: Duration) -> Duration {
        let wall = self.shared.clock.now();
        let is_stopping = self.is_stopping();
        let rings = self.waits.next_wake().filter(|_| !is_stopping);
        let times =
            [self.ready_queue.next_time(), rings].map(|at| at.map(|at| now.saturating_add(at.since(wall))));
        let ends = is_stopping || self.machine.cancel().is_some();
        let stops = [self.stopping.next_wake(ends), self.waits.end_of_stopping(now)];
        times.into_iter().chain(stops).flatten().min().unwrap_or(Duration::MAX)
    }

    /// Returns whether no new activation may start.
    fn is_stopping(&self) -> bool {
        self.stopping.is_exceeding() || self.is_halted() && !self.is_cleaning_up()
    }

    /// Returns whether anything other than the deadline halts the run.
    fn is_halted(&self) -> bool {
        self.machine.cancel().is_some()
            || self.machine.paused().is_some()
            || self.stopping.has_grace()
            || self.machine.status() != RunStatus::InProgress
    }

    /// Returns whether the concurrency limit of the run allows another running activation.
    fn room(&self) -> bool {
        self.plan
            .concurrency
            .is_none_or(|most: NonZeroU32| (most.get() as usize) > self.ready_queue.working())
    }

    /// Notifies subscribers, if there are any.
    fn emit(&self, event: impl FnOnce() -> RunEventKind) {
        self.shared.emit(self.journal.run(), event);
    }
}
