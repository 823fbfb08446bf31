//! Child runs as nodes: one child per activation, so one child per item of a fan-out.

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
    /// Adds a node that starts a child of `graph`, waits for its final state, and updates the state from it. `input` creates the child's input, and
    /// `update` reads the child's final state. For children in general, see [`NodeContext::child`].
    ///
    /// [`Route::each`](crate::graph::Route::each) to the node starts one child for each item; `input` reads the item with [`NodeContext::item`].
    /// [`max_running`](Self::max_running) limits the number of concurrent children. The reducers of the channels that `update` writes join the
    /// results. The next node after all of them runs once.
    ///
    /// A failed, cancelled or purged child fails the node: its retry policy starts a new child, or an `on_failure` edge handles the failure, or the
    /// run fails. To handle the failure in the node, see [`child_with`](Self::child_with). The node's timeout limits how long an attempt waits for
    /// the child, even across restarts; each retry has its own timeout. The next attempt continues with a child that has not ended. The end of the
    /// last attempt cancels the child.
    ///
    /// Serve the child's workflow, too, so that the child continues after its process ends.
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

    /// Adds a child like [`child`](Self::child), whose function also receives a failure, a cancellation or a purge of the child. The function can
    /// write the failure to the state instead of failing the node.
    ///
    /// A child that cannot be started, or whose end cannot be read, still fails the node.
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
