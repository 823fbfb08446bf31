//! Builder methods that modify the last added node.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::GraphBuilder;
use crate::graph::CachePolicy;
use crate::graph::GraphIssue;
use crate::graph::Join;
use crate::graph::NodeCheckpoint;
use crate::graph::RetryPolicy;
use crate::graph::middleware::{InnerNode, NodeMiddleware};
use crate::graph::node_cache::CachedNode;
use crate::graph::outline::NodeOutline;
use crate::node::{NodeContext, NodeError, NodeResult};
use crate::record::effect::Effect;
use crate::state::{Draft, State};

impl<S: State> GraphBuilder<S> {
    /// Declares what a repeated attempt of the node would do to the world outside of the run. The default is [`Effect::Write`].
    pub fn effect(self, effect: Effect) -> Self {
        self.modify("effect", |node| node.effect = effect)
    }

    /// Sets the number of attempts and the delay after each failure. The default is one attempt. An [`Effect::External`] node is tried again only
    /// after an error that is marked [not done](crate::node::NodeError::not_done).
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.modify("retry", |node| node.retry = policy)
    }

    /// Sets the maximum time that one attempt may work between two waits of the node. The time must be more than zero. By default there is no limit.
    ///
    /// An attempt that exceeds the timeout fails. If the node is [`Effect::External`], the run instead asks for the outcome. The timeout pauses while
    /// the node only waits for an answer, a message, a time or a child that it started. A node added by [`child`](Self::child) is an exception: its
    /// timeout continues while it waits for its child. The runtime checks the timeout when the node awaits, so it cannot stop a node that never
    /// yields.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.modify("timeout", |node| node.timeout = Some(timeout))
    }

    /// Sets the join rule, which decides when the node runs after one of its incoming edges has fired. The default is [`Join::All`].
    pub fn join(self, join: Join) -> Self {
        self.modify("join", |node| node.join = join)
    }

    /// Sets the maximum number of activations of the node in one run, at least 1. By default there is no limit.
    ///
    /// A run that exceeds the limit fails. Each item of [`Route::each`](crate::graph::Route::each) is one activation, even if it waited for another
    /// branch. Several edges that the node joins start one activation.
    pub fn max_visits(self, visits: u32) -> Self {
        self.modify("max_visits", |node| node.max_visits = Some(visits))
    }

    /// Sets the maximum number of concurrent activations of the node in one run, at least 1. By default there is no limit. Further activations wait,
    /// and start in the order in which they became ready.
    ///
    /// An activation that only waits for a child or an answer counts too. The limit therefore also bounds the number of concurrent children, if each
    /// activation of the node starts one child. [`concurrency`](Self::concurrency) bounds the running activations of all nodes.
    pub fn max_running(self, activations: u32) -> Self {
        self.modify("max_running", |node| node.max_running = Some(activations))
    }

    /// Sets how often one run may return to the node by [`Route::revisit`](crate::graph::Route::revisit). The default is 2, and 0 disables it.
    ///
    /// A run that exceeds the limit fails with [`FailureKind::Replan`](crate::record::FailureKind::Replan). Each
    /// [`Runtime::retry`](crate::runtime::Runtime::retry) of the run allows one more return.
    ///
    /// The limit is separate from [`max_visits`](Self::max_visits), which counts every activation.
    pub fn max_replans(self, replans: u32) -> Self {
        self.modify("max_replans", |node| node.max_replans = Some(replans))
    }

    /// Makes the node a goal gate: a run that visited the node can end only if the predicate `met` returns true for the final state. Otherwise the
    /// run continues at the retry target of the node, or at the [`fallback`](Self::fallback) of the graph.
    pub fn goal_gate(mut self, met: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        if let Some(node) = self.nodes.last_mut() {
            node.goal = Some(Arc::new(met));
        }
        self.modify("goal_gate", |node| node.goal_gate = true)
    }

    /// Sets the node where the run continues if the goal is not met, or if the node fails permanently and no edge handles the failure.
    ///
    /// The run jumps to that node without an edge, so no join of the graph waits for this jump.
    pub fn retry_target(self, name: impl Into<String>) -> Self {
        self.modify("retry_target", |node| node.returns = vec![name.into()])
    }

    /// Reuses the node's earlier results in this process, for activations of any run with the same key. The node must be [`Effect::Pure`] or
    /// [`Effect::Read`].
    ///
    /// `key` returns everything that the work depends on, as a value that is compared by its JSON. It receives the state and the context, so it may
    /// read the item, the inputs and the tenant. Put everything that may differ between tenants into the key. The cache belongs to this graph and its
    /// clones, and so to one version of the code. It is dropped when the graph and all its clones are dropped.
    ///
    /// If the cache has a result for the key, the activation ends with this result. The run records the update, the output and the notes as usual,
    /// and a resume, a replay or a fork reads them from the record. The node does not run, so it makes no calls on its context. The cached update is
    /// applied to the current run's state by its reducers: a cached draft changes the channels that it changed originally.
    ///
    /// An error of `key` fails the attempt. The cache stores neither failures nor results with outbox messages, artifacts or memory notes. If two
    /// activations with the same key run at once and the cache has no result yet, both do the work, and the cache keeps the later result.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ferrata_core::graph::{CachePolicy, Effect, Graph};
    /// use ferrata_core::node::NodeContext;
    /// use ferrata_core::state::Context;
    ///
    /// let graph = Graph::<Context>::builder("quote")
    ///     .node("rate", async |_cx, _s| Ok(Context::update().set("rate", 1.09))) // a request to a bank
    ///     .effect(Effect::Read)
    ///     .cached(CachePolicy::with_max_age(Duration::from_secs(600)), |s: &Context, cx: &NodeContext| {
    ///         Ok((cx.run().tenant.to_string(), s.get::<String>("currency")?))
    ///     })
    ///     .entry("rate")
    ///     .build()?;
    /// # Ok::<(), ferrata_core::graph::GraphError>(())
    /// ```
    pub fn cached<K: Serialize>(
        mut self,
        policy: CachePolicy,
        key: impl Fn(&S, &NodeContext) -> Result<K, NodeError> + Send + Sync + 'static,
    ) -> Self {
        if let Some(behaviour) = self.nodes.last_mut() {
            let node = Arc::clone(&behaviour.node);
            behaviour.node = Arc::new(CachedNode::new(node, policy, key));
        }
        self.modify("cached", |node| node.cached = Some(policy))
    }

    /// Runs middleware around each attempt of the node. The runtime calls `around` instead of the node's work. `around` receives the work as an
    /// argument and returns the node's result.
    ///
    /// The middleware of a second call wraps the middleware of the first. The method is for libraries that add a limit, a lock or a measurement.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::state::Context;
    ///
    /// let graph = Graph::<Context>::builder("greet")
    ///     .node("hello", async |_cx, s| Ok(s))
    ///     .around(async |cx, s, work| {
    ///         let name = cx.node().to_string();
    ///         let result = work.run(cx, s).await;
    ///         println!("{name} is {}", if result.is_ok() { "done" } else { "not done" });
    ///         result
    ///     })
    ///     .entry("hello")
    ///     .build()?;
    /// # let _ = graph;
    /// # Ok::<(), ferrata_core::graph::GraphError>(())
    /// ```
    pub fn around<F, Fut>(mut self, around: F) -> Self
    where
        F: Fn(NodeContext, Draft<S>, InnerNode<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = NodeResult<S>> + Send + 'static,
    {
        if let Some(behaviour) = self.nodes.last_mut() {
            let node = Arc::clone(&behaviour.node);
            behaviour.node = Arc::new(NodeMiddleware { node, around });
        }
        self.modify("around", |_| {})
    }

    /// Sets whether the run writes a checkpoint before or after the node. By default the checkpoint policy of the run decides.
    pub fn checkpoint(self, checkpoint: NodeCheckpoint) -> Self {
        self.modify("checkpoint", |node| node.checkpoint = checkpoint)
    }

    /// Requires a cleanup of the node. If the run is cancelled, each unfinished activation of the node that has begun runs once more before the run
    /// ends. In this cleanup, [`is_cleaning_up`](crate::node::NodeContext::is_cleaning_up) returns true. The cleanup can read the results of the
    /// recorded steps, and undo them.
    ///
    /// When a run is cancelled, the runtime waits for running attempts during the grace period, drops the attempts that still run, and starts the
    /// cleanup. The cleanup runs in this process or in another process that serves the workflow. The cleanup has no time limit, follows the retry
    /// policy of the node, and survives crashes. The run ends as cancelled, whatever the cleanup returns. If the last attempt of the cleanup fails,
    /// its error is added to the reason of the cancellation. The children of the run are cancelled after the cleanup.
    ///
    /// A run that passes its deadline has no cleanup.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("order")
    ///     .node("ship", async |cx, s| {
    ///         if cx.is_cleaning_up() {
    ///             cx.step("release", async || Ok::<_, std::io::Error>(())).await?;
    ///             return Ok(s);
    ///         }
    ///         cx.step("reserve", async || Ok::<_, std::io::Error>(())).await?;
    ///         let _: bool = cx.ask("approve", "Ship it?").await?;
    ///         Ok(s)
    ///     })
    ///     .clean_up_on_cancel()
    ///     .entry("ship")
    ///     .build()?;
    /// let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// runtime.serve(&graph)?;
    /// let run = runtime.start(&graph, Context::new()).await?;
    /// run.wait().await?; // for the answer
    /// runtime.cancel(run.run(), "not wanted").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn clean_up_on_cancel(self) -> Self {
        self.modify("clean_up_on_cancel", |node| node.cleans_up = true)
    }

    /// Asks a question before each activation of the node. The id of the question is `node@visit:before`. If the question is accepted with any value,
    /// the node starts. If it is rejected, the activation fails with the comment of the rejection.
    pub fn interrupt_before(self) -> Self {
        self.modify("interrupt_before", |node| node.interrupt.before = true)
    }

    /// Asks a question after each activation of the node that fires an edge. The work of the node is then done and recorded. The next nodes start
    /// after the question `node@visit:after` is accepted. If it is rejected, the run fails with the comment of the rejection.
    pub fn interrupt_after(self) -> Self {
        self.modify("interrupt_after", |node| node.interrupt.after = true)
    }

    /// Sets the version of the node's code, which is part of the node's fingerprint. Change the revision if a stored run that stopped inside the node
    /// must not continue with the new code without confirmation.
    pub fn revision(self, revision: impl Into<String>) -> Self {
        self.modify("revision", |node| node.revision = Some(revision.into()))
    }

    fn modify(mut self, modifier: &str, change: impl FnOnce(&mut NodeOutline)) -> Self {
        match self.outline.nodes.last_mut() {
            Some(node) if self.subgraphs.last().is_some_and(|last| last.name == node.name) => {
                let message = format!(
                    "is a subgraph, which `{modifier}` does not modify; set it on the nodes of its graph"
                );
                self.outline.issues.push(GraphIssue::node(&node.name, message));
            }
            Some(node) => change(node),
            None => {
                let message = format!("`{modifier}` has no node to modify; call it after `node` or `add`");
                self.outline.issues.push(GraphIssue::graph(message));
            }
        }
        self
    }
}
