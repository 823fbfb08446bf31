//! Flows: durable functions with a name and settings.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::{Graph, GraphBuilder, GraphError, RetryPolicy, Route, RouteContext};
use ferrata_core::node::{Node, NodeContext, NodeError, NodeResult};
use ferrata_core::state::{Context, Draft, IntoUpdate as _, State};
use ferrata_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::again::FlowEnd;
use crate::context::FlowContext;
use crate::error::FlowError;
use crate::runner::{FlowFn, FlowRunner};
use crate::sealed::SealedType;

/// The only node of the graph of a flow.
pub(crate) const NODE: &str = "main";

/// The channels of the state of a flow.
const INPUT: &str = "input";
const OUTPUT: &str = "output";
const UNDONE: &str = "undone";

/// Creates a flow from an async function.
///
/// `name` becomes the name of the workflow. Input and output may be any serde types.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use ferrata_core::runtime::Runtime;
/// use ferrata_core::store::MemoryStore;
/// use ferrata_flow::{FlowContext, FlowError, RuntimeFlowExt, flow};
///
/// async fn greet(cx: FlowContext, name: String) -> Result<String, FlowError> {
///     let greeting = cx.step("greet", || async { Ok::<_, FlowError>(format!("hello {name}")) }).await?;
///     cx.sleep("pause", Duration::from_millis(1)).await;
///     Ok(greeting)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
/// let greeting = runtime.call(&flow("greet", greet), "ann".to_owned()).id("greet-ann").await?;
/// assert_eq!(greeting, "hello ann");
/// # Ok(())
/// # }
/// ```
pub fn flow<I, O, F, Fut>(name: impl Into<String>, function: F) -> Flow<I, O>
where
    I: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(FlowContext, I) -> Fut + Send + Sync + 'static, // async closures cannot capture: use `cx.resource()`
    Fut: Future<Output = Result<O, FlowError>> + Send + 'static, // drop each `Rc` and lock guard before an `.await`
{
    let function: Arc<FlowFn<I, O>> = Arc::new(move |cx, input| Box::pin(function(cx, input)));
    let settings = FlowSettings { version: None, retry: RetryPolicy::none(), deadline: None };
    Flow::build(name.into(), function, settings)
}

/// A durable function: an async function whose runs survive the end of their process. [`flow`] creates it. A clone is cheap.
///
/// A run of a flow is a run of a [graph](Self::graph) with one node, `main`. So processes serve, list, watch, cancel, fork, queue and schedule it
/// like any other run.
pub struct Flow<I, O> {
    name: String,
    function: Arc<FlowFn<I, O>>,
    settings: FlowSettings,
    graph: Result<Graph<Context>, GraphError>,
}

#[derive(Clone, Debug)]
struct FlowSettings {
    version: Option<String>,
    retry: RetryPolicy,
    deadline: Option<Duration>,
}

impl<I, O> Flow<I, O>
where
    I: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    fn build(name: String, function: Arc<FlowFn<I, O>>, settings: FlowSettings) -> Self {
        let graph = Self::build_graph(&name, &function, &settings, false);
        Self { name, function, settings, graph }
    }

    fn build_graph(
        name: &str,
        function: &Arc<FlowFn<I, O>>,
        settings: &FlowSettings,
        is_checking: bool,
    ) -> Result<Graph<Context>, GraphError> {
        let (function, attempts) = (Arc::clone(function), settings.retry.attempts());
        let node = FlowNode { function, attempts, is_checking };
        // A pass without a result begins the next one.
        let next = |state: &Context, _: &RouteContext<'_>| match state.contains_key(OUTPUT)
            || state.contains_key(UNDONE)
        {
            true => Route::none(),
            false => Route::to(NODE),
        };
        let mut graph = Graph::<Context>::builder(name)
            .add(NODE, node)
            .retry(settings.retry)
            .entry(NODE)
            .clean_up_on_cancel()
            .route(NODE, [NODE], next)
            .unlimited_steps();
        if let Some(version) = &settings.version {
            graph = graph.version(version);
        }
        if let Some(deadline) = settings.deadline {
            graph = graph.deadline(deadline);
        }
        graph.build()
    }

    /// Sets the version of the workflow. Each run records the version at its start.
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        let settings = FlowSettings { version: Some(version.into()), ..self.settings };
        Self::build(self.name, self.function, settings)
    }

    /// Sets the retry policy of the function: how often the runtime calls it again after a panic, or after an error that is not
    /// [fatal](FlowError::fatal). By default it does not. The next call gets the results of the recorded steps, and executes the failed step again.
    /// Compensations run after the last attempt.
    #[must_use]
    pub fn retry(self, policy: RetryPolicy) -> Self {
        let settings = FlowSettings { retry: policy, ..self.settings };
        Self::build(self.name, self.function, settings)
    }

    /// Limits the duration of a run, including all waits. A run that takes longer fails without compensations.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        let settings = FlowSettings { deadline: Some(deadline), ..self.settings };
        Self::build(self.name, self.function, settings)
    }

    /// Returns the name of the workflow.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the graph of the flow. Pass it to every API that takes a graph: `runtime.serve(flow.graph()?)`, schedules, queues, forks, tests.
    ///
    /// # Errors
    ///
    /// [`GraphError`] if the name of the flow is not a valid workflow name.
    pub fn graph(&self) -> Result<&Graph<Context>, GraphError> {
        self.graph.as_ref().map_err(Clone::clone)
    }

    /// Returns the graph whose runs only check the function against their records.
    pub(crate) fn checking_graph(&self) -> Result<Graph<Context>, GraphError> {
        Self::build_graph(&self.name, &self.function, &self.settings, true)
    }

    /// Returns the initial state for a run of [`graph`](Self::graph).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the input cannot be encoded as JSON.
    pub fn input(&self, input: &I) -> Result<Context> {
        let mut state = Context::new();
        state.set(INPUT, input)?;
        Ok(state)
    }

    /// Reads the result from the final state of a run of [`graph`](Self::graph).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the run has not completed; [`ErrorKind::Invalid`] if the result does not have this type.
    pub fn output(&self, state: &Context) -> Result<O> {
        read_output(state)
    }
}

/// Reads the result from the final state of a flow.
pub(crate) fn read_output<O: DeserializeOwned>(state: &Context) -> Result<O> {
    let value = state.get_value(OUTPUT).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "the state has no `output`; wait until the flow has completed")
    })?;
    O::deserialize(value).map_err(|source| {
        let message = format!("the result of the flow is not of type {}", std::any::type_name::<O>());
        Error::new(ErrorKind::Invalid, message).with_source(source)
    })
}

/// Reads the input of a pass.
fn read_input<I: DeserializeOwned>(value: &Value) -> Result<I, NodeError> {
    I::deserialize(value).map_err(|source| {
        let message = format!("the input of the flow is not of type {}", std::any::type_name::<I>());
        NodeError::new(Error::new(ErrorKind::Invalid, message).with_source(source)).fatal()
    })
}

impl<I, O> Clone for Flow<I, O> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            function: Arc::clone(&self.function),
            settings: self.settings.clone(),
            graph: self.graph.clone(),
        }
    }
}

impl<I, O> fmt::Debug for Flow<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The node of a flow.
struct FlowNode<I, O> {
    function: Arc<FlowFn<I, O>>,
    attempts: u32,
    is_checking: bool,
}

#[async_trait]
impl<I, O> Node<Context> for FlowNode<I, O>
where
    I: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    async fn run(&self, cx: NodeContext, mut state: Draft<Context>) -> NodeResult<Context> {
        let input = read_input(state.get_value(INPUT).unwrap_or(&Value::Null))?;
        let end = FlowRunner::new(&*self.function, cx, input, self.attempts, self.is_checking).await?;
        let set = match end {
            FlowEnd::Returned(output) => state.set(OUTPUT, output),
            FlowEnd::Undone => state.set(UNDONE, true),
            FlowEnd::Continued(input) => {
                read_input::<I>(&input)?;
                // An operator may have moved a completed run to its node.
                state.remove(OUTPUT);
                state.set(INPUT, input)
            }
        };
        set.map_err(|error| NodeError::new(error).fatal())?;
        Ok(state.into_update())
    }
}

/// Flows as nodes of graphs.
pub trait GraphFlowExt<S: State>: SealedType + Sized {
    /// Adds a node that calls a flow as a child run, like [`GraphBuilder::child`]. `input` computes the input of the flow from the state, and
    /// `update` applies the result of the flow to the state.
    ///
    /// If the flow fails, the node fails. Some process must also serve the flow.
    ///
    /// # Errors
    ///
    /// [`GraphError`] if the name of the flow is not a valid workflow name.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::state::Context;
    /// use ferrata_core::store::MemoryStore;
    /// use ferrata_flow::{FlowContext, FlowError, GraphFlowExt, flow};
    ///
    /// async fn square(_cx: FlowContext, n: u64) -> Result<u64, FlowError> {
    ///     Ok(n * n)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let square = flow("square", square);
    /// let graph = Graph::<Context>::builder("report")
    ///     .flow("square", &square, |s, _cx| Ok(s.get("n")?.unwrap_or(0)), |s, squared| s.set("squared", squared))?
    ///     .entry("square")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(square.graph()?)?;
    /// let mut input = Context::new();
    /// input.set("n", 5)?;
    /// let state = runtime.start(&graph, input).await?.completed().await?;
    /// assert_eq!(state.get::<u64>("squared")?, Some(25));
    /// # Ok(())
    /// # }
    /// ```
    fn flow<I, O, M, U>(
        self,
        name: impl Into<String>,
        flow: &Flow<I, O>,
        input: M,
        update: U,
    ) -> Result<Self, GraphError>
    where
        I: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        M: Fn(&S, &NodeContext) -> Result<I, NodeError> + Send + Sync + 'static,
        U: Fn(&mut S, O) -> Result<()> + Send + Sync + 'static;
}

impl<S: State> GraphFlowExt<S> for GraphBuilder<S> {
    fn flow<I, O, M, U>(
        self,
        name: impl Into<String>,
        flow: &Flow<I, O>,
        input: M,
        update: U,
    ) -> Result<Self, GraphError>
    where
        I: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        M: Fn(&S, &NodeContext) -> Result<I, NodeError> + Send + Sync + 'static,
        U: Fn(&mut S, O) -> Result<()> + Send + Sync + 'static,
    {
        let (graph, own) = (flow.graph()?.clone(), flow.clone());
        let input = move |state: &S, cx: &NodeContext| {
            let input = input(state, cx)?;
            own.input(&input).map_err(NodeError::new)
        };
        let update = move |state: &mut S, child: Context| update(state, read_output(&child)?);
        Ok(self.child(name, &graph, input, update))
    }
}
