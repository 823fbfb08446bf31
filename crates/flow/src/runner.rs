//! Runs the function of a flow in an activation of its node.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use ferrata_core::node::{NodeContext, NodeError};

use crate::again::FlowEnd;
use crate::context::FlowContext;
use crate::entry::OperationKind;
use crate::error::FlowError;
use crate::gate::{GateDecision, ReplayGate};
use crate::gate_state::FailedOperation;
use crate::saga;

/// The number of additional polls before the function counts as quiet, if no recorded operation can continue. A future that yields wakes the function
/// only a little later.
const CONFIRMATIONS: u32 = 16;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The function of a flow, with its future in a box.
pub(crate) type FlowFn<I, O> = dyn Fn(FlowContext, I) -> BoxFuture<Result<O, FlowError>> + Send + Sync;

/// The future of an attempt of a flow.
pub(crate) struct FlowRunner<O> {
    work: BoxFuture<Result<FlowEnd<O>, FlowError>>,
    cancelled: Option<BoxFuture<()>>,
    flush: Option<BoxFuture<Result<(), NodeError>>>,
    cx: FlowContext,
    gate: Arc<ReplayGate>,
    waker: Arc<WakeFlag>,
    unsure_count: u32,
}

impl<O: Send + 'static> FlowRunner<O> {
    /// Starts an attempt. The function has at most `attempts` attempts in total.
    pub(crate) fn new<I: Send + 'static>(
        function: &FlowFn<I, O>,
        node: NodeContext,
        input: I,
        attempts: u32,
        is_checking: bool,
    ) -> Self {
        let gate = Arc::new(ReplayGate::new(&node, is_checking));
        let cx = FlowContext::new(node.clone(), Arc::clone(&gate));
        let call = function(cx.clone(), input);
        let work = Box::pin(finish(cx.clone(), call, attempts));
        let cancelled: BoxFuture<()> = Box::pin(async move { node.cancelled().await });
        Self {
            work,
            cancelled: Some(cancelled),
            flush: None,
            cx,
            gate,
            waker: Arc::default(),
            unsure_count: 0,
        }
    }
}

/// Waits for the function and checks that it requested all recorded operations. If the function failed without a further attempt, or the run was
/// cancelled, the compensations of its steps run.
async fn finish<O>(
    cx: FlowContext,
    call: impl Future<Output = Result<O, FlowError>>,
    attempts: u32,
) -> Result<FlowEnd<O>, FlowError> {
    let gate = cx.gate();
    let ended = {
        let call = pin!(call);
        tokio::select! {
            biased;
            result = call => Some(result),
            () = gate.rewound() => None,
        }
    };
    let is_undoing = cx.node().is_cleaning_up() && !gate.is_checking();
    let mut error = match ended {
        Some(Ok(output)) if !is_undoing && gate.check_end(None) => return Ok(FlowEnd::Returned(output)),
        Some(Ok(_)) if !is_undoing => return pending().await,
        Some(Err(error)) if !is_undoing => Some(error),
        _ => None,
    };
    if !gate.check_end(Some(OperationKind::Undo)) {
        return pending().await;
    }
    if is_undoing {
        gate.begin_undo();
    }
    if error.as_ref().is_none_or(|error| error.is_fatal() || cx.node().attempt() >= attempts) {
        let failed = cx.undo().await;
        if !failed.is_empty() {
            error = Some(saga::not_undone(error.as_ref(), &failed));
        }
    }
    match (gate.check_end(None), error) {
        (false, _) => pending().await,
        (true, None) => Ok(FlowEnd::Undone),
        (true, Some(error)) => Err(error),
    }
}

impl<O> Future for FlowRunner<O> {
    type Output = Result<FlowEnd<O>, NodeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(cancelled) = &mut this.cancelled
            && cancelled.as_mut().poll(context).is_ready()
        {
            this.cancelled = None;
            // If the process only releases the run, no cleanup is due and the function continues.
            if this.cx.node().is_cleanup_due() {
                this.gate.wind_down();
            }
        }
        loop {
            if let Some(flush) = &mut this.flush {
                match flush.as_mut().poll(context) {
                    Poll::Ready(Ok(())) => {
                        this.flush = None;
                        this.gate.end_flush();
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {}
                }
            }
            this.waker.begin(context.waker());
            let waker = Waker::from(Arc::clone(&this.waker));
            let polled = this.work.as_mut().poll(&mut Context::from_waker(&waker));
            if let Some(error) = this.gate.take_abort() {
                return Poll::Ready(Err(error));
            }
            if let Poll::Ready(result) = polled {
                return Poll::Ready(result.map_err(node_error));
            }
            if let Some(input) = this.gate.take_continuation() {
                return Poll::Ready(Ok(FlowEnd::Continued(input)));
            }
            if this.waker.take() {
                continue;
            }
            if this.gate.is_replayed() {
                this.cx.node().set_cleanup(!this.cx.compensations().is_empty());
            }
            match this.gate.settle(this.unsure_count >= CONFIRMATIONS) {
                GateDecision::Progress => this.unsure_count = 0,
                GateDecision::Flush(failed) => {
                    this.flush = Some(Box::pin(record_failures(
                        this.cx.node().clone(),
                        Arc::clone(&this.gate),
                        failed,
                    )));
                }
                GateDecision::Idle if this.waker.end() => {}
                GateDecision::Idle => return Poll::Pending,
                GateDecision::Unsure => {
                    this.waker.end();
                    this.unsure_count += 1;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            if let Some(error) = this.gate.take_abort() {
                return Poll::Ready(Err(error));
            }
        }
    }
}

/// Records the errors of failed operations. The function has seen these errors, or sees them as soon as they are recorded.
async fn record_failures(
    node: NodeContext,
    gate: Arc<ReplayGate>,
    failed: Vec<FailedOperation>,
) -> Result<(), NodeError> {
    // Operations may wait at the gate, where the driver does not see them. The pause counts as one of them, so the driver records the order.
    let _rival = node.pause_timeout();
    for FailedOperation { number, key, entry } in failed {
        node.step(key, || std::future::ready(Ok::<_, NodeError>(entry))).await?;
        gate.end_failure(number);
    }
    Ok(())
}

fn node_error(error: FlowError) -> NodeError {
    let (is_fatal, delay) = (error.is_fatal(), error.delay());
    let error = NodeError::new(error.into_failure());
    let error = if is_fatal { error.fatal() } else { error };
    match delay {
        Some(delay) => error.retry_after(delay),
        None => error,
    }
}

/// Records that the function was woken. A wakeup outside a poll also wakes the attempt.
#[derive(Debug, Default)]
struct WakeFlag {
    outer: Mutex<Option<Waker>>,
    is_polling: AtomicBool,
    is_woken: AtomicBool,
}

impl WakeFlag {
    fn begin(&self, outer: &Waker) {
        let mut known = self.outer.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.as_ref().is_some_and(|known| known.will_wake(outer)) {
            *known = Some(outer.clone());
        }
        drop(known);
        self.is_polling.store(true, Ordering::SeqCst);
        self.is_woken.store(false, Ordering::SeqCst);
    }

    /// Returns whether the function was woken since the last call, and clears the flag.
    fn take(&self) -> bool {
        self.is_woken.swap(false, Ordering::SeqCst)
    }

    /// Ends a poll. Returns whether the function was woken during it.
    fn end(&self) -> bool {
        self.is_polling.store(false, Ordering::SeqCst);
        self.take()
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_polling.load(Ordering::SeqCst) {
            let outer = self.outer.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(outer) = outer {
                outer.wake();
            }
        }
    }
}
