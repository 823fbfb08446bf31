//! Starting activations.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::super::attempt::Attempt;
use super::barrier::Barrier;
use super::facts::{Fact, What};
use super::{Driver, Running};
use crate::clock::Timestamp;
use crate::engine::frontier::{Activation, ActivationKey, Token};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::Effect;
use crate::graph::node_set::NodeIx;
use crate::latch::latch;
use crate::node::{Input, Inputs, NodeContext, NodeScope, RunScope, Waits};
use crate::record::body::Resolution;
use crate::record::memo::Memo;
use crate::record::{Failure, FailureKind};
use crate::runtime::event::Event as RunEventKind;
use crate::state::{Channels, Draft, State, Update};

impl<S: State> Driver<S> {
    /// Puts every activation in line that is in flight and does not run.
    pub(super) fn schedule_all(&mut self) {
        self.ready.clear();
        self.waiting.clear();
        self.passed.clear();
        self.timers.clear();
        self.given.retain(|key, _| self.running.contains_key(key));
        let mut idle: Vec<_> =
            self.machine.in_flight().keys().copied().filter(|key| !self.running.contains_key(key)).collect();
        // What came due while nobody drove the run begins again in the order of the times.
        let now = self.shared.clock.now();
        idle.sort_by_key(|&key| {
            self.machine.in_flight().get(&key).and_then(|activation| due(activation, now))
        });
        for key in idle {
            self.given.insert(key, Arc::clone(&self.state));
            self.ready.push_back(key);
        }
    }

    /// Starts the next activation that may start. Returns whether there was anything to do.
    pub(super) async fn launch_next(&mut self) -> Result<bool> {
        if self.is_stopping() || !self.room() {
            return Ok(false);
        }
        if self.cancelled.has_told() {
            self.tell_anew();
        }
        if let Some(key) = self.passed.pop_front() {
            if self.machine.in_flight().contains_key(&key) {
                self.launch(key).await?;
            }
            return Ok(true);
        }
        let Some(key) = self.ready.pop_front() else { return Ok(false) };
        let Some(activation) = self.machine.in_flight().get(&key) else { return Ok(true) };
        if activation.in_doubt {
            return Ok(true);
        }
        if let Some(resolution) = activation.resolution.clone() {
            let result = self.resolve(resolution);
            self.take_in(Fact { key, what: What::Ended { result, took: Duration::ZERO } })?;
            return Ok(true);
        }
        if self.machine.is_held(key) {
            return Ok(true);
        }
        if let Some(at) = activation.retry_at.filter(|at| *at > self.shared.clock.now()) {
            self.timers.insert((at, key));
            return Ok(true);
        }
        if self.agreed(key)? && matches!(self.barrier(key)?, Barrier::Open) {
            self.launch(key).await?;
        }
        Ok(true)
    }

    /// Gives the attempts to come a scope in which nobody was told to stop: those of before were told that the run failed, and it
    /// was retried since.
    fn tell_anew(&mut self) {
        let (teller, cancelled) = latch();
        self.cancelled = teller;
        self.scope = Arc::new(RunScope { cancelled, ..RunScope::clone(&self.scope) });
    }

    /// Starts an attempt: here if nothing else could run meanwhile, as a task of its own otherwise.
    async fn launch(&mut self, key: ActivationKey) -> Result<()> {
        let index = NodeIx::new(key.0);
        if self.plan.node(index).effect == Effect::External && !Box::pin(self.may_act()).await? {
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
            activation: key,
            memos: activation.memos.clone(),
            waits: Waits::default(),
            lacks: AtomicBool::new(false),
        };
        let scope = Arc::new(scope);
        self.shared.emit(&self.log.run, || RunEventKind::NodeStarted {
            node: scope.node.clone(),
            visit: key.1,
            attempt,
        });
        let plan = self.plan.node(index);
        // The given state stays for further attempts only if there may be any.
        let state = match plan.retry.attempts() {
            1 => self.given.remove(&key),
            _ => self.given.get(&key).cloned(),
        };
        let state = state.unwrap_or_else(|| Arc::clone(&self.state));
        let external = plan.effect == Effect::External;
        let timeout = plan.timeout;
        let mut work = self.graph.begin(index, NodeContext::new(Arc::clone(&scope)), Draft::new(state));
        // Asked first, because even a span that nobody wants costs more than the rest of a small node where `log` is enabled.
        if LevelFilter::current() >= LevelFilter::DEBUG {
            let span = tracing::debug_span!(
                "ferrata.node", run.id = %self.log.run.run, node.id = %scope.node, node.visit = %key.1, attempt
            );
            if !span.is_disabled() {
                work = Box::pin(tracing::Instrument::instrument(work, span));
            }
        }
        // How long it took is told in the record and to subscribers.
        let timed = self.encodes_patches() || self.shared.is_heard();
        let mut attempt = Attempt::new(work, timeout, Arc::clone(&scope), timed);
        let alone = self.running.is_empty() && self.ready.is_empty() && self.passed.is_empty();
        if alone {
            // One turn here: work that does not wait is done without a task of its own.
            let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut attempt).poll(cx))).await;
            if let Poll::Ready((end, took)) = first {
                return self.ended(key, end, took).await;
            }
        }
        let task = self.tasks.spawn(async move {
            let (end, took) = attempt.await;
            (key, end, took)
        });
        let ended = scope.memos.ended().into_iter().enumerate().map(|(at, name)| (name, at)).collect();
        self.running.insert(key, Running { task, external, scope, ended });
        Ok(())
    }

    /// Returns what was joined, in the order of the edges, then of the items.
    fn inputs(&self, key: ActivationKey) -> Inputs {
        let Some(activation) = self.machine.in_flight().get(&key) else { return Inputs::default() };
        let input = |token: &Token| Input {
            from: self.machine.name(token.from).clone(),
            visit: token.visit,
            output: token.output.clone(),
        };
        if let [token] = &*activation.inputs {
            return Inputs::One([input(token)]);
        }
        let to = NodeIx::new(key.0);
        let order = |token: &Token| {
            let edges = self.machine.index(token.from).map(|from| &self.plan.node(from).outgoing);
            let edge = edges.and_then(|edges| edges.iter().find(|&&edge| self.plan.edge(edge).to == to));
            (edge.copied().is_none(), edge.copied(), token.visit)
        };
        let mut tokens: Vec<&Token> = activation.inputs.iter().collect();
        if tokens.len() > 1 {
            tokens.sort_by_cached_key(|token| order(token));
        }
        Inputs::Many(tokens.into_iter().map(input).collect())
    }

    /// Turns an answer about an activation in doubt into what it came to.
    fn resolve(&mut self, resolution: Resolution) -> Result<Update<S>, Failure> {
        match resolution {
            Resolution::Skip | Resolution::Retry => Ok(Update::none()),
            Resolution::Fail(reason) => Err(Failure::new(FailureKind::Operator, reason)),
            Resolution::Supply(patch) => {
                self.supplied(&patch).map_err(|error| Failure::of(FailureKind::Update, &error))
            }
        }
    }

    /// Makes an update of a patch that somebody supplied.
    fn supplied(&self, patch: &crate::state::Patch) -> Result<Update<S>> {
        Ok(Update::new(S::diff(&self.state, self.patched(patch)?)?))
    }

    /// Returns the state as a patch would make it.
    pub(super) fn patched(&self, patch: &crate::state::Patch) -> Result<S> {
        let mut channels = Channels::from_json(self.state.to_channels_json()?.get())?;
        channels.apply(patch)?;
        S::from_channels(channels, self.graph.schema())
    }

    /// Acts on the time: retries that are due, the deadline, the end of a grace, signals of others.
    pub(super) async fn on_timer(&mut self) -> Result<()> {
        let (now, wall) = (self.shared.clock.monotonic(), self.shared.clock.now());
        while let Some(&(_, key)) = self.timers.first().filter(|(at, _)| *at <= wall) {
            self.timers.pop_first();
            self.ready.push_back(key);
        }
        if self.is_overdue() {
            // Looked at in the next turn, as whenever a run is taken up: before anything new starts.
            return Ok(());
        }
        if self.grace.is_some_and(|grace| grace <= now) {
            self.tasks.abort_all();
            self.running.clear();
            return Ok(());
        }
        Box::pin(self.look()).await
    }

    /// Whether the time that the graph allows is over. It stays over: refused, the record that says so is made again.
    pub(super) fn is_overdue(&self) -> bool {
        let now = self.shared.clock.monotonic();
        self.deadline.is_some_and(|deadline| deadline <= now) && !self.is_stopping()
    }

    pub(super) fn exceed_deadline(&mut self) -> Result<()> {
        let after = self.plan.deadline.unwrap_or_default();
        let failure = Failure::new(
            FailureKind::Deadline,
            format!("the run took longer than its deadline of {after:?}"),
        );
        self.note(
            &crate::record::body::Event::Status(crate::record::body::StatusChange::Failed(failure)),
            None,
            false,
        )?;
        Ok(())
    }

    /// Says that a run that is in progress has nothing that could move it: a fault of the machine, never of the user.
    pub(super) fn stuck(&self) -> Error {
        let waiting: Vec<_> =
            self.machine.tokens().keys().map(|&node| self.machine.name(node).to_string()).collect();
        let message = format!(
            "nothing can move the run, tokens wait at: {}; report this with the run's log",
            waiting.join(", ")
        );
        Error::new(ErrorKind::Corrupt, message).with_run(&self.log.run)
    }
}

/// Returns when an activation that time moves could go on: the last of its times that has come, because those before it have moved it
/// already; or, if none has come, the last.
fn due(activation: &Activation, now: Timestamp) -> Option<Timestamp> {
    let until = |memo: &Memo| match memo {
        Memo::Until(until) => Some(*until),
        Memo::Asked(asked) => asked.ask.deadline.filter(|_| asked.reply.is_open()),
        _ => None,
    };
    let times = || activation.memos.values().filter_map(until).chain(activation.retry_at);
    times().filter(|at| *at <= now).max().or_else(|| times().max())
}
