//! Child runs of a flow: other flows, and graphs.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as PollContext, Poll};
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeError;
use ferrata_core::runtime::{ChildHandle, ChildRequest, OnParentEnd};
use ferrata_core::state::{Context, State};
use ferrata_core::{Error, RunKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::{FlowContext, OperationKey};
use crate::entry::{FlowEntry, OperationKind};
use crate::error::{self, FlowError};
use crate::flow::Flow;
use crate::gate::ReplayEnd;
use crate::recorded::SPAWNED;
use crate::wait::FlowFuture;

type SetChild<S> = Box<dyn FnOnce(ChildRequest<S>) -> ChildRequest<S> + Send>;
type ReadResult<S, O> = Box<dyn FnOnce(S) -> Result<O, FlowError> + Send>;

/// A request to call a child run. `.await` starts the child and waits for its result.
///
/// # Cancel safety
///
/// If the future is dropped after the child was started, the child continues until the function ends. Then the runtime cancels the child.
#[must_use = "a child is not started before it is awaited"]
pub struct FlowChildRequest<S: State, O> {
    cx: FlowContext,
    /// The key of the operation, assigned when the child is named. So the numbers of keys follow the order of the calls.
    key: Result<Arc<str>, Error>,
    id: u64,
    location: &'static Location<'static>,
    prepared: Option<PreparedChild<S, O>>,
    running: Option<FlowFuture<Result<O, FlowError>>>,
    /// `fn() -> O` is always `Send` and `Sync`, so this field adds no bound on `O`.
    output: PhantomData<fn() -> O>,
}

struct PreparedChild<S: State, O> {
    start: Result<(Graph<S>, S), Error>,
    set: Vec<SetChild<S>>,
    read: ReadResult<S, O>,
}

impl FlowContext {
    /// Calls another flow as a child run, and waits for its result. The call starts exactly one run, even after crashes. The name of the operation is
    /// the name of the flow, unless [`name`](FlowChildRequest::name) sets another name.
    ///
    /// Some process must also serve the other flow, so that the child continues when this process ends.
    ///
    /// # Errors
    ///
    /// [`FlowErrorKind::ChildFailed`](crate::FlowErrorKind::ChildFailed): the child failed; its failure is in the causes.
    /// [`ChildCancelled`](crate::FlowErrorKind::ChildCancelled): the child was cancelled. [`ChildGone`](crate::FlowErrorKind::ChildGone): the child
    /// was purged.
    ///
    /// # Cancel safety
    ///
    /// The same as for [`FlowChildRequest`].
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_flow::{FlowContext, FlowError, RuntimeFlowExt, flow};
    ///
    /// async fn square(_cx: FlowContext, n: u64) -> Result<u64, FlowError> {
    ///     Ok(n * n)
    /// }
    ///
    /// async fn squares(cx: FlowContext, _: ()) -> Result<u64, FlowError> {
    ///     let square = flow("square", square);
    ///     let (three, four) = tokio::try_join!(cx.call(&square, 3), cx.call(&square, 4))?;
    ///     Ok(three + four)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(flow("square", square).graph()?)?;
    /// assert_eq!(runtime.call(&flow("squares", squares), ()).await?, 25);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "an argument of a call")]
    pub fn call<I, O>(&self, flow: &Flow<I, O>, input: I) -> FlowChildRequest<Context, O>
    where
        I: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let start =
            flow.graph().map_err(Error::from).and_then(|graph| Ok((graph.clone(), flow.input(&input)?)));
        let read: ReadResult<Context, O> = Box::new(|state| Ok(crate::flow::read_output(&state)?));
        self.child_request(flow.name(), Location::caller(), PreparedChild { start, set: Vec::new(), read })
    }

    /// Runs a graph as a child run, and waits for its final state, like [`call`](Self::call). The name of the operation is the name of the graph,
    /// unless [`name`](FlowChildRequest::name) sets another name.
    ///
    /// # Errors
    ///
    /// The errors of [`call`](Self::call).
    ///
    /// # Cancel safety
    ///
    /// The same as for [`FlowChildRequest`].
    #[track_caller]
    pub fn child<S: State>(&self, graph: &Graph<S>, input: S) -> FlowChildRequest<S, S> {
        let prepared = PreparedChild {
            start: Ok((graph.clone(), input)),
            set: Vec::new(),
            read: Box::new(Ok) as ReadResult<S, S>,
        };
        self.child_request(graph.name().as_str(), Location::caller(), prepared)
    }

    fn child_request<S: State, O>(
        &self,
        name: &str,
        location: &'static Location<'static>,
        prepared: PreparedChild<S, O>,
    ) -> FlowChildRequest<S, O> {
        let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let name: String = name.chars().map(fits).take(50).collect();
        let key = self.gate().next_key(&name, OperationKind::Child, location);
        let (cx, id, prepared) = (self.clone(), self.gate().next_id(), Some(prepared));
        FlowChildRequest { cx, key, id, location, prepared, running: None, output: PhantomData }
    }
}

impl<S: State, O> FlowChildRequest<S, O> {
    /// Sets the name of the operation.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        if let Ok(key) = &self.key {
            self.cx.gate().give_back(key);
        }
        self.key = self.cx.gate().next_key(name.as_ref(), OperationKind::Child, self.location);
        self
    }

    /// Sets the id of the child run, like [`ChildRequest::id`].
    pub fn id(self, id: impl Into<String>) -> Self {
        let id = id.into();
        self.set(move |child| child.id(id))
    }

    /// Adds a label to the child run.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        self.set(move |child| child.label(key, value))
    }

    /// Sets the configuration of the child run, like [`ChildRequest::config`].
    pub fn config(self, config: impl Serialize + Send + 'static) -> Self {
        self.set(move |child| child.config(config))
    }

    /// Sets what happens to the child if the function ends first. The default is [`OnParentEnd::Cancel`].
    pub fn on_parent_end(self, what: OnParentEnd) -> Self {
        self.set(move |child| child.on_parent_end(what))
    }

    /// Sets a deadline after which the child is cancelled, like [`ChildRequest::deadline`].
    pub fn deadline(self, after: Duration) -> Self {
        self.set(move |child| child.deadline(after))
    }

    fn set(mut self, set: impl FnOnce(ChildRequest<S>) -> ChildRequest<S> + Send + 'static) -> Self {
        if let Some(prepared) = &mut self.prepared {
            prepared.set.push(Box::new(set));
        }
        self
    }
}

impl<S: State, O> Unpin for FlowChildRequest<S, O> {}

impl<S: State, O: Send + 'static> Future for FlowChildRequest<S, O> {
    type Output = Result<O, FlowError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut PollContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(prepared) = this.prepared.take() {
            let own = this.cx.key_or_stop(this.key.clone(), this.id, OperationKind::Child, this.location);
            this.running = Some(Box::pin(run_child(this.cx.clone(), own, prepared)));
        }
        match &mut this.running {
            Some(running) => running.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

async fn run_child<S: State, O>(
    cx: FlowContext,
    own: OperationKey,
    prepared: PreparedChild<S, O>,
) -> Result<O, FlowError> {
    let ticket = cx.enter(&own, false).await;
    let error = ticket.entry.as_ref().and_then(|entry| entry.error());
    // A fork keeps the failure of a child and drops its start, so only the end has a position.
    if error.is_none() || ticket.entry.as_ref().is_some_and(|entry| entry.place.is_some()) {
        ticket.released().await;
    }
    if let Some(error) = error {
        // Other operations may have ended between the start of the child and its failure.
        let entry = ticket.entry.clone();
        drop(ticket);
        let ticket = cx.enter_end(&own, entry).await;
        ticket.released().await;
        cx.recall_failure(&own, &ticket).await;
        return Err(error);
    }
    if cx.gate().is_checking() && !ticket.entry.as_ref().is_some_and(|entry| entry.has_result) {
        return cx.stop(NodeError::new(ReplayEnd).fatal()).await;
    }
    let (graph, input) = match prepared.start {
        Ok(start) => start,
        Err(error) => return cx.stop(error).await,
    };
    let request = cx.node().child(&graph, input).name(own.key.as_deref().unwrap_or_default());
    let request = prepared.set.into_iter().fold(request, |request, set| set(request));
    let handle: ChildHandle<S> = match request.start().await {
        Ok(handle) => handle,
        Err(error) => return cx.stop(error).await,
    };
    let entry = ticket.entry.clone();
    drop(ticket);
    let ticket = cx.enter_end(&own, entry).await;
    ticket.released().await;
    let error = match handle.result().await {
        Ok(state) => return (prepared.read)(state),
        Err(error) => error,
    };
    drop(ticket);
    match error::of_child(&error) {
        Some(error) => Err(cx.fail(&own, error).await),
        None => cx.stop(error).await,
    }
}

impl<S: State, O> fmt::Debug for FlowChildRequest<S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowChildRequest").field("key", &self.key).finish_non_exhaustive()
    }
}

impl FlowContext {
    /// Starts another flow as an independent run, and returns the key of that run. Exactly one run starts, even after crashes. The function does not
    /// wait for the new run, and the end of this run does not end it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before the start is recorded, the run may not start.
    #[track_caller]
    pub fn spawn<I, O>(
        &self,
        name: &str,
        flow: &Flow<I, O>,
        input: &I,
    ) -> impl Future<Output = RunKey> + Send + use<I, O>
    where
        I: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let start =
            flow.graph().map_err(Error::from).and_then(|graph| Ok((graph.clone(), flow.input(input)?)));
        let (cx, own) = (self.clone(), self.key(name, OperationKind::Child));
        async move {
            let ticket = cx.enter(&own, false).await;
            ticket.released().await;
            if cx.gate().is_checking() && !ticket.entry.as_ref().is_some_and(|entry| entry.has_begun) {
                return cx.stop(NodeError::new(ReplayEnd).fatal()).await;
            }
            let (graph, input) = match start {
                Ok(start) => start,
                Err(error) => return cx.stop(error).await,
            };
            let key = own.key.as_deref().unwrap_or_default();
            let run = match cx.node().spawn(&graph, input).name(key).await {
                Ok(run) => run,
                Err(error) => return cx.stop(error).await,
            };
            let entry = ticket.entry.clone();
            let has_ended = entry.as_ref().is_some_and(|entry| entry.has_result);
            drop(ticket);
            let ticket = cx.enter_end(&own, entry).await;
            ticket.released().await;
            // The records of the child do not show the position at which its start ended. This order may decide a race, so the function records it.
            let end = OperationKey { key: own.part(SPAWNED).map(Into::into), ..own.clone() };
            match has_ended {
                true => cx.recorded_end(end.key.as_deref(), &ticket).await,
                false if cx.gate().is_checking() => return cx.stop(NodeError::new(ReplayEnd).fatal()).await,
                false => drop(cx.record(&end, FlowEntry::Value(true)).await),
            }
            run
        }
    }
}
