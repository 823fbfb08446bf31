//! Starts activations.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use super::RunDriver;
use super::barrier::BarrierState;
use super::children::StopProgress;
use super::journal::pending_events::{PendingEvent, PendingEventKind};
use super::origin::ActivationOrigin;
use crate::engine::frontier::ActivationKey;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::kernel::event::Event as RunEventKind;
use crate::node::{
    AttemptCleanup, AttemptKey, AttemptTransactions, AttemptWaits, NodeContext, NodeScope, RunScope,
    StartedChildren,
};
use crate::record::body::{RecordEvent, StatusChange};
use crate::record::{Failure, FailureKind};
use crate::runtime::attempt::AttemptFuture;
use crate::state::{Draft, State};
use crate::telemetry::spans;

impl<S: State> RunDriver<S> {
    /// Starts the next activation that may start. Returns whether it did any work.
    pub(super) async fn launch_next(&mut self) -> Result<bool> {
        if self.is_stopping() || !self.room() {
            return Ok(false);
        }
        if self.stopping.has_notified() {
            // New attempts get a scope without a stop signal.
            let cancelled = self.stopping.renew_stop_signal();
            self.scope = Arc::new(RunScope { cancelled, ..RunScope::clone(&self.scope) });
        }
        if let Some(key) = self.ready_queue.next_passed() {
            if self.machine.in_flight().contains_key(&key) && self.may_start(key) {
                self.launch(key).await?;
            }
            return Ok(true);
        }
        let plan = &self.plan;
        let Some(key) = self.ready_queue.next_ready(|node| plan.most_running(node)) else { return Ok(false) };
        let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(true) };
        if activation.in_doubt || !self.may_start(key) {
            return Ok(true);
        }
        if let Some(resolution) = activation.resolution.clone() {
            let result = self.resolve(resolution);
            self.apply_fact(PendingEvent {
                key,
                what: PendingEventKind::Ended { result, took: Duration::ZERO },
            })?;
            // Its routes may have failed, as after an attempt.
            self.finish_end(None).await?;
            return Ok(true);
        }
        if self.machine.is_held(key) {
            return Ok(true);
        }
        if let Some(at) = activation.retry_at.filter(|at| *at > self.shared.clock.now()) {
            self.ready_queue.wait_until(at, key);
            return Ok(true);
        }
        if self.agreed(key)? && matches!(self.barrier(key)?, BarrierState::Open) {
            self.launch(key).await?;
        }
        Ok(true)
    }

    /// Starts an attempt. If no other activation can run at the same time, the driver polls the attempt itself. Otherwise the attempt becomes a task
    /// of its own.
    async fn launch(&mut self, key: ActivationKey) -> Result<()> {
        let index = NodeIx::new(key.0);
        self.journal.detach_append();
        let external = self.plan.node(index).effect == Effect::External;
        if external && !Box::pin(self.may_act()).await? {
            return Ok(());
        }
        let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(()) };
        let attempt = activation.failed + 1;
        let scope = NodeScope {
            run: Arc::clone(&self.scope),
            node: self.plan.node(index).name.clone(),
            visit: key.1,
            attempt,
            message_count: key.1.get().saturating_sub(self.machine.node(key.0).left + 1),
            item: activation.item.clone(),
            inputs: self.inputs(key),
            attempt_key: AttemptKey { activation: key, way: self.ready_queue.next_way() },
            memos: activation.memos.clone(),
            places: OnceLock::new(),
            waits: AttemptWaits::default(),
            time_limit: self.plan.node(index).timeout,
            started_children: StartedChildren::default(),
            effect: self.plan.node(index).effect,
            transactions: AttemptTransactions::default(),
            outputs: Mutex::default(),
            lacks_resource: AtomicBool::new(false),
            ownership: external.then(|| self.ownership()),
            is_not_begun: AtomicBool::new(false),
            cleanup: AttemptCleanup::new(self.machine.cancel().is_some()),
        };
        let scope = Arc::new(scope);
        self.emit(|| RunEventKind::NodeStarted { node: scope.node.clone(), visit: key.1, attempt });
        let plan = self.plan.node(index);
        // Keep the input state only if another attempt may follow.
        let is_last = plan.retry.attempts() == 1 && plan.effect != Effect::Transactional && !external;
        let state = self.ready_queue.state_of(key, is_last);
        let state = state.unwrap_or_else(|| Arc::clone(&self.state));
        let bounds = (plan.retry.attempts(), plan.timeout);
        let mut work = self.graph.begin(index, NodeContext::new(Arc::clone(&scope)), Draft::new(state));
        if let Some(span) = spans::attempt(self.journal.run(), &scope.node, key.1, attempt) {
            let told = async move { work.await.inspect_err(|_| spans::failed("node")) };
            work = Box::pin(tracing::Instrument::instrument(told, span));
        }
        // The record and the subscribers need the duration.
        let timed = self.journal.encodes_patches() || self.shared.has_subscribers();
        let meter = self.registration.meter.attempt(&scope.node);
        let mut attempt = AttemptFuture::new(work, bounds, Arc::clone(&scope), timed, meter);
        if self.ready_queue.is_idle() {
            // Poll once inline: work that does not wait needs no task.
            let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut attempt).poll(cx))).await;
            if let Poll::Ready(ended) = first {
                let within = self.handle_end(ended)?;
                return self.finish_end(within).await;
            }
        }
        let origin = ActivationOrigin::of(&self.machine, key);
        self.ready_queue.run(external, scope, origin, attempt);
        Ok(())
    }

    /// Returns whether the deadline of the graph has passed. The result stays true, so if the record about it is refused, it is created again.
    pub(super) fn is_overdue(&self) -> bool {
        self.stopping.is_deadline_over() && !self.is_halted()
    }

    /// Fails the run because of its deadline. Its children are cancelled before, because a retry of the run would not wait for them.
    pub(super) fn exceed_deadline(&mut self) -> Result<()> {
        self.stopping.exceed();
        self.ready_queue.abort_repeatable();
        let reason = format!("its parent {} exceeded its deadline", self.journal.run());
        if self.stop_children(&reason) != StopProgress::Done {
            return Ok(());
        }
        let after = self.plan.deadline.unwrap_or_default();
        let failure =
            Failure::new(FailureKind::Deadline, format!("the run exceeded its deadline of {after:?}"));
        self.write_event(&RecordEvent::Status(StatusChange::Failed(failure)), None, false).map(|_| ())
    }

    /// Returns the error for an active run that nothing can advance. This is a bug in the machine and never an error of the user.
    pub(super) fn stuck_error(&self) -> Error {
        let waiting: Vec<_> =
            self.machine.tokens().keys().map(|&node| self.machine.name(node).to_string()).collect();
        let message = format!(
            "the run cannot continue, and tokens wait at: {}; report this with the run's log",
            waiting.join(", ")
        );
        Error::new(ErrorKind::Corrupt, message).with_run(self.journal.run())
    }
}
