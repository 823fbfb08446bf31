//! Builder methods for nodes that start one child run in each activation, and so one child for each item of a route.

use async_trait::async_trait;

use super::error::ChildError;
use crate::graph::{Graph, GraphBuilder};
use crate::node::{GateResult, Node, NodeContext, NodeError, NodeResult};
use crate::state::{Draft, State};

/// A node that runs a child.
struct ChildNode<C: State, I, U> {
    graph: Graph<C>,
    input: I,
    update: U,
}

impl<S: State> GraphBuilder<S> {
    /// Adds a node that starts a child run of `graph`, waits for the child's final state, and updates the state of this run. The function `input`
    /// creates the child's input. The function `update` reads the child's final state and changes the state. [`NodeContext::child`] describes
    /// children in general.
    ///
    /// If a route leads to the node with [`Route::each`](crate::graph::Route::each), one child is started for each item, and `input` reads the item
    /// with [`NodeContext::item`]. [`max_running`](Self::max_running) limits the number of concurrent children. The results are joined by the
    /// reducers of the channels that `update` writes. The next node runs once, after all children have ended.
    ///
    /// If the child fails, or is cancelled or purged, the attempt fails. The next attempt, if the retry policy allows one, starts a new child. After
    /// the last attempt, an `on_failure` edge handles the failure, or the run fails. To handle the failure in the node itself, use
    /// [`child_with`](Self::child_with). The node's timeout limits how long an attempt waits for the child, even across restarts. Each attempt has
    /// the full timeout. If an attempt times out, the next attempt waits for the same child. If the last attempt times out, the child is cancelled.
    ///
    /// Also [serve](crate::runtime::Runtime::serve) the child's workflow, so that another process can continue the child after a crash.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::{Graph, Route};
    /// use ferrata_core::runtime::Runtime;
    /// use ferrata_core::state::{Context, Reducer};
    /// use ferrata_core::store::MemoryStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let square = Graph::<Context>::builder("square")
    ///     .node("square", async |_cx, mut s| {
    ///         let n: u64 = s.get("n")?.unwrap_or_default();
    ///         s.set("n", n * n)?;
    ///         Ok(s)
    ///     })
    ///     .entry("square")
    ///     .build()?;
    /// let graph = Graph::<Context>::builder("squares")
    ///     .channel("squares", Reducer::Append)
    ///     .node("split", async |_cx, _s| Ok(()))
    ///     .child(
    ///         "square",
    ///         &square,
    ///         |_s: &Context, cx| {
    ///             let mut input = Context::new();
    ///             input.set("n", cx.item::<u64>()?)?;
    ///             Ok(input)
    ///         },
    ///         |s, child: Context| s.push("squares", child.get_value("n")),
    ///     )
    ///     .max_running(2)
    ///     .node("gather", async |_cx, _s| Ok(()))
    ///     .entry("split")
    ///     .route("split", ["square"], |_s, _cx| Route::each("square", [1, 2, 3]))
    ///     .edge("square", "gather")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(&square)?;
    /// let state = runtime.start(&graph, Context::new()).await?.completed().await?;
    /// let mut squares: Vec<u64> = state.get("squares")?.unwrap_or_default();
    /// squares.sort_unstable();
    /// assert_eq!(squares, [1, 4, 9]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn child<C, I, U, R>(self, name: impl Into<String>, graph: &Graph<C>, input: I, update: U) -> Self
    where
        C: State,
        I: Fn(&S, &NodeContext) -> Result<C, NodeError> + Send + Sync + 'static,
        U: Fn(&mut S, C) -> R + Send + Sync + 'static,
        R: GateResult + 'static,
    {
        self.child_with(name, graph, input, move |state, _cx, came: Result<C, ChildError>| match came {
            Ok(child) => update(state, child).into_result(),
            Err(error) => Err(NodeError::new(error)),
        })
    }

    /// Adds a node that starts a child run, like [`child`](Self::child). Its function also receives the error if the child fails, or is cancelled or
    /// purged. The function can then write the failure to the state, so that the node succeeds.
    ///
    /// If the child cannot be started, or its end cannot be loaded, the node still fails.
    pub fn child_with<C, I, U, R>(
        self,
        name: impl Into<String>,
        graph: &Graph<C>,
        input: I,
        update: U,
    ) -> Self
    where
        C: State,
        I: Fn(&S, &NodeContext) -> Result<C, NodeError> + Send + Sync + 'static,
        U: Fn(&mut S, &NodeContext, Result<C, ChildError>) -> R + Send + Sync + 'static,
        R: GateResult + 'static,
    {
        self.add_waiting(name, ChildNode { graph: graph.clone(), input, update })
    }
}

#[async_trait]
impl<S, C, I, U, R> Node<S> for ChildNode<C, I, U>
where
    S: State,
    C: State,
    I: Fn(&S, &NodeContext) -> Result<C, NodeError> + Send + Sync + 'static,
    U: Fn(&mut S, &NodeContext, Result<C, ChildError>) -> R + Send + Sync + 'static,
    R: GateResult,
{
    async fn run(&self, cx: NodeContext, mut state: Draft<S>) -> NodeResult<S> {
        let input = (self.input)(&state, &cx)?;
        let child = cx.child(&self.graph, input).0.begin_alone().await.map_err(NodeError::new)?;
        let came = match cx.time_limit() {
            None => child.result().await,
            Some(limit) => tokio::select! {
                biased;
                came = child.result() => came,
                slept = cx.sleep_in_round(child.round(), limit) => {
                    slept?;
                    let message = format!("the child {} did not end within {limit:?}", child.run());
                    return Err(NodeError::new(message));
                }
            },
        };
        if let Err(ChildError::Refused(error)) = came {
            return Err(error.into());
        }
        (self.update)(&mut state, &cx, came).into_result()?;
        Ok(state.into())
    }
}
