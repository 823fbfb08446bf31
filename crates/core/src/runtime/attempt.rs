//! Runs one attempt of an activation: polls the node, catches its panics and enforces its timeout.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::ask::{AskError, DeclineReason};
use crate::node::{AttemptKey, NodeError, NodeScope, Work};
use crate::panics::panic_text;
use crate::record::{Failure, FailureKind};
use crate::runtime::child_control::await_end::closing;
use crate::state::{State, Update};
use crate::telemetry::{AttemptMeter, AttemptResult};

/// The end of an attempt.
pub(crate) enum AttemptEnd<S: State> {
    Done(Update<S>),
    /// The node did not start, because the ownership check could not rule out that another process has claimed the run.
    NotBegun,
    /// The attempt ended with an error. If the error is marked `unfinished` and the run is cancelled or released, the attempt does not count as
    /// failed.
    Failed {
        failure: Failure,
        fatal: bool,
        retry_after: Option<Duration>,
        unfinished: bool,
    },
}

impl<S: State> AttemptEnd<S> {
    fn result(&self) -> AttemptResult {
        match self {
            Self::Done(_) => AttemptResult::Completed,
            Self::NotBegun | Self::Failed { unfinished: true, .. } => AttemptResult::Unfinished,
            Self::Failed { .. } => AttemptResult::Failed,
        }
    }
}

/// An ended attempt, with its key, its end and its duration.
pub(crate) type EndedAttempt<S> = (AttemptKey, AttemptEnd<S>, Duration);

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The timeout of an attempt, which limits its working time.
struct Timeout {
    after: Duration,
    /// The timer, which runs while the node has work. When the node has work again after a wait, a new timer starts.
    sleep: Option<Sleep>,
}

/// The end of an attempt whose remaining children are being cancelled.
struct AttemptClosing<S: State> {
    end: AttemptEnd<S>,
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The future of one attempt. It is spawned directly, because an async block around it would reserve its size twice.
pub(crate) struct AttemptFuture<S: State> {
    /// The future of the node. `None` after the node has ended: its future is dropped before its end is reported.
    work: Option<Work<S>>,
    had_a_turn: bool,
    /// The pending check whether this process owns the run. The work continues when the ownership is certain.
    confirmation: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
    timeout: Option<Timeout>,
    scope: Arc<NodeScope>,
    /// The maximum number of attempts of the activation.
    attempts: u32,
    /// The end of the attempt, while its remaining children receive their stop.
    closing: Option<Box<AttemptClosing<S>>>,
    /// The start time of the attempt, if a subscriber needs its duration.
    begun: Option<Duration>,
    meter: AttemptMeter,
}

impl<S: State> AttemptFuture<S> {
    pub(crate) fn new(
        work: Work<S>,
        (attempts, timeout): (u32, Option<Duration>),
        scope: Arc<NodeScope>,
        timed: bool,
        meter: AttemptMeter,
    ) -> Self {
        let clock = &scope.run.clock;
        let timeout = timeout.map(|after| Timeout { after, sleep: Some(clock.sleep(after)) });
        let begun = (timed || meter.is_on()).then(|| clock.monotonic());
        Self {
            work: Some(work),
            had_a_turn: false,
            confirmation: None,
            timeout,
            attempts,
            closing: None,
            begun,
            meter,
            scope,
        }
    }
}

impl<S: State> Future for AttemptFuture<S> {
    type Output = EndedAttempt<S>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(mut closing) = this.closing.take() {
            if closing.closed.as_mut().poll(cx).is_pending() {
                this.closing = Some(closing);
                return Poll::Pending;
            }
            return Poll::Ready(this.finish(closing.end));
        }
        // Other tasks may have run for long between the ownership check and this poll.
        if !std::mem::replace(&mut this.had_a_turn, true) {
            if !this.scope.may_begin() {
                this.work = None;
                return Poll::Ready(this.finish(AttemptEnd::NotBegun));
            }
        } else if this.poll_ownership(cx).is_pending() {
            return Poll::Pending;
        }
        let Some(work) = &mut this.work else { return Poll::Pending };
        this.scope.unpark();
        let end = match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(_)) if this.scope.is_not_begun() => AttemptEnd::NotBegun,
            Ok(Poll::Ready(Ok(update))) => AttemptEnd::Done(match this.scope.take_left() {
                Some(left) => update.sent_before(left.sent).noting(left.noted),
                None => update,
            }),
            Ok(Poll::Ready(Err(error))) => {
                this.scope.transactions.check_conflict(&error);
                failed(&error)
            }
            Ok(Poll::Pending) => {
                this.scope.park();
                let Some(Timeout { after, sleep }) = &mut this.timeout else { return Poll::Pending };
                if this.scope.waits.pauses_timeout(cx.waker()) {
                    *sleep = None;
                    return Poll::Pending;
                }
                let sleep = sleep.get_or_insert_with(|| this.scope.run.clock.sleep(*after));
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let message = format!("the attempt took longer than its timeout of {after:?}");
                let failure = Failure::new(FailureKind::Timeout, message);
                AttemptEnd::Failed { failure, fatal: false, retry_after: None, unfinished: false }
            }
            Err(panic) => {
                let failure = Failure::new(FailureKind::Panic, format!("panicked: {}", panic_text(&*panic)));
                let fatal = this.scope.lacks_resource.load(Ordering::Relaxed);
                AttemptEnd::Failed { failure, fatal, retry_after: None, unfinished: false }
            }
        };
        this.scope.end();
        // A node's destructors run user code and may panic, too.
        let work = this.work.take();
        let _ = catch_unwind(AssertUnwindSafe(move || drop(work)));
        // The children of an activation end before it, in the log as well. A further attempt takes them over.
        let is_last = match &end {
            AttemptEnd::Done(_) => true,
            AttemptEnd::NotBegun => false,
            AttemptEnd::Failed { unfinished, fatal, .. } => {
                !unfinished && (*fatal || this.scope.attempt >= this.attempts)
            }
        };
        if let Some(closed) = is_last.then(|| closing(&this.scope)).flatten() {
            this.scope.unpark();
            this.closing = Some(Box::new(AttemptClosing { end, closed: Box::pin(closed) }));
            return Pin::new(this).poll(cx);
        }
        Poll::Ready(this.finish(end))
    }
}

impl<S: State> AttemptFuture<S> {
    /// Waits until this process certainly owns the run. It is for work that must not be repeated. If the process was suspended, this check stops the
    /// work before it continues.
    ///
    /// If the run is lost, the result stays pending until the driver drops the attempt.
    fn poll_ownership(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(ownership) = &self.scope.ownership else { return Poll::Ready(()) };
        while !ownership.is_certain() {
            let confirmation = self.confirmation.get_or_insert_with(|| Arc::clone(ownership).confirm());
            match confirmation.as_mut().poll(cx) {
                Poll::Ready(true) => self.confirmation = None,
                Poll::Ready(false) => {
                    self.confirmation = Some(Box::pin(std::future::pending()));
                    return Poll::Pending;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        self.confirmation = None;
        Poll::Ready(())
    }

    fn finish(&mut self, end: AttemptEnd<S>) -> EndedAttempt<S> {
        self.scope.end();
        let took = self.took();
        self.meter.ended(Some(end.result()), took);
        (self.scope.attempt_key, end, took)
    }

    /// Returns the duration of the attempt.
    fn took(&self) -> Duration {
        let took = self.begun.map(|begun| self.scope.run.clock.monotonic().saturating_sub(begun));
        took.unwrap_or_default()
    }
}

impl<S: State> Drop for AttemptFuture<S> {
    fn drop(&mut self) {
        self.scope.end();
        if self.meter.is_on() {
            let took = self.took();
            self.meter.ended(None, took);
        }
    }
}

fn failed<S: State>(error: &NodeError) -> AttemptEnd<S> {
    let source = error.source();
    let kind = match (source.downcast_ref::<AskError>(), source.downcast_ref::<DeclineReason>()) {
        (Some(AskError::Rejected { .. }), _) | (_, Some(DeclineReason::Rejected { .. })) => {
            FailureKind::Rejected
        }
        (Some(AskError::Expired { .. }), _) | (_, Some(DeclineReason::Expired { .. })) => {
            FailureKind::Expired
        }
        _ => FailureKind::Node,
    };
    let mut failure = Failure::from_error(kind, error.source());
    failure.not_done = error.is_not_done();
    AttemptEnd::Failed {
        failure,
        // The answer is recorded: asking again would return the same answer.
        fatal: error.is_fatal() || kind != FailureKind::Node,
        retry_after: error.delay(),
        unfinished: error.is_unfinished(),
    }
}
