//! Starting activations.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use super::RunDriver;
use super::barrier::BarrierState;
use super::children::StopProgress;
use super::journal::facts::{PendingEvent, PendingEventKind};
use super::origin::ActivationOrigin;
use crate::engine::frontier::ActivationKey;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::node::{
    AttemptKey, AttemptTransactions, AttemptWaits, NodeContext, NodeScope, RunScope, StartedChildren,
};
use crate::record::body::{Event, StatusChange};
use crate::record::{Failure, FailureKind};
use crate::runtime::attempt::Attempt;
use crate::runtime::event::Event as RunEventKind;
use crate::state::{Draft, State};
use crate::telemetry::spans;

impl<S: State> RunDriver<S> {
    /// Starts the next activation that may start. Returns whether there was anything to do.
    pub(super) async fn launch_next(&mut self) -> Result<bool> {
        if self.is_stopping() || !self.room() {
            return Ok(false);
        }
        if self.stopping.has_told() {
            // The attempts to come get a scope in which they were not told to stop.
            let cancelled = self.stopping.tell_anew();
            self.scope = Arc::new(RunScope { cancelled, ..RunScope::clone(&self.scope) });
        }
        if let Some(key) = self.line.next_passed() {
            if self.machine.in_flight().contains_key(&key) {
                self.launch(key).await?;
            }
            return Ok(true);
        }
        let plan = &self.plan;
        let Some(key) = self.line.next_ready(|node| plan.most_running(node)) else { return Ok(false) };
        let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(true) };
        if activation.in_doubt {
            return Ok(true);
        }
        if let Some(resolution) = activation.resolution.clone() {
            let result = self.resolve(resolution);
            self.apply_fact(PendingEvent {
                key,
                what: PendingEventKind::Ended { result, took: Duration::ZERO },
            })?;
            // Its routes may have gone wrong, as at the end of an attempt.
            self.settle_end(None).await?;
            return Ok(true);
        }
        if self.machine.is_held(key) {
            return Ok(true);
        }
        if let Some(at) = activation.retry_at.filter(|at| *at > self.shared.clock.now()) {
            self.line.wait_until(at, key);
            return Ok(true);
        }
        if self.agreed(key)? && matches!(self.barrier(key)?, BarrierState::Open) {
            self.launch(key).await?;
        }
        Ok(true)
    }

    /// Starts an attempt: here if nothing else could run meanwhile, as a task of its own otherwise.
    async fn launch(&mut self, key: ActivationKey) -> Result<()> {
        let index = NodeIx::new(key.0);
        self.journal.leave();
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
            heard: key.1.get().saturating_sub(self.machine.node(key.0).left + 1),
            item: activation.item.clone(),
            inputs: self.inputs(key),
            attempt_key: AttemptKey { activation: key, way: self.line.next_way() },
            memos: activation.memos.clone(),
            waits: AttemptWaits::default(),
            time_limit: self.plan.node(index).timeout,
            started: StartedChildren::default(),
            effect: self.plan.node(index).effect,
            transactions: AttemptTransactions::default(),
            left: Mutex::default(),
            lacks: AtomicBool::new(false),
            ownership: external.then(|| self.ownership()),
            not_begun: AtomicBool::new(false),
        };
        let scope = Arc::new(scope);
        self.emit(|| RunEventKind::NodeStarted { node: scope.node.clone(), visit: key.1, attempt });
        let plan = self.plan.node(index);
        // The given state stays for further attempts only if there may be any.
        let is_last = plan.retry.attempts() == 1 && plan.effect != Effect::Transactional && !external;
        let state = self.line.state_of(key, is_last);
        let state = state.unwrap_or_else(|| Arc::clone(&self.state));
        let bounds = (plan.retry.attempts(), plan.timeout);
        let mut work = self.graph.begin(index, NodeContext::new(Arc::clone(&scope)), Draft::new(state));
        if let Some(span) = spans::attempt(self.journal.run(), &scope.node, key.1, attempt) {
            let told = async move { work.await.inspect_err(|_| spans::failed("node")) };
            work = Box::pin(tracing::Instrument::instrument(told, span));
        }
        // How long it took is told in the record and to subscribers.
        let timed = self.journal.encodes_patches() || self.shared.has_subscribers();
        let meter = self.registration.meter.attempt(&scope.node);
        let mut attempt = Attempt::new(work, bounds, Arc::clone(&scope), timed, meter);
        if self.line.is_idle() {
            // One turn here: work that does not wait is done without a task of its own.
            let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut attempt).poll(cx))).await;
            if let Poll::Ready(ended) = first {
                let within = self.ended(ended)?;
                return self.settle_end(within).await;
            }
        }
        let origin = ActivationOrigin::of(&self.machine, key);
        self.line.run(external, scope, origin, attempt);
        Ok(())
    }

    /// Whether the time that the graph allows is over. It stays over: refused, the record that says so is made again.
    pub(super) fn is_overdue(&self) -> bool {
        self.stopping.is_deadline_over() && !self.is_halted()
    }

    /// Fails the run by its deadline, once its children have been cancelled: no retry would wait for them.
    pub(super) fn exceed_deadline(&mut self) -> Result<()> {
        self.stopping.exceed();
        self.line.abort_repeatable();
        let reason = format!("its parent {} took longer than its deadline", self.journal.run());
        if self.stop_children(&reason) != StopProgress::Done {
            return Ok(());
        }
        let after = self.plan.deadline.unwrap_or_default();
        let failure = Failure::new(
            FailureKind::Deadline,
            format!("the run took longer than its deadline of {after:?}"),
        );
        self.note(&Event::Status(StatusChange::Failed(failure)), None, false).map(|_| ())
    }

    /// Says that a run that is in progress has nothing that could move it: a fault of the machine, never of the user.
    pub(super) fn stuck(&self) -> Error {
        let waiting: Vec<_> =
            self.machine.tokens().keys().map(|&node| self.machine.name(node).to_string()).collect();
        let message = format!(
            "nothing can move the run, tokens wait at: {}; report this with the run's log",
            waiting.join(", ")
        );
        Error::new(ErrorKind::Corrupt, message).with_run(self.journal.run())
    }
}
