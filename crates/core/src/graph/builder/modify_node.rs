//! Modifiers of the last added node.

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
    /// Sets the effect of repeating the node. The default is [`Effect::Write`].
    pub fn effect(self, effect: Effect) -> Self {
        self.modify("effect", |node| node.effect = effect)
    }

    /// Sets the number of attempts and the delay after each failure. The default is one attempt. An [`Effect::External`] node is tried again only
    /// after a failure that is [not done](crate::node::NodeError::not_done).
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.modify("retry", |node| node.retry = policy)
    }

    /// Sets the maximum time that one attempt may work without a wait, more than zero. By default there is no limit.
    ///
    /// An attempt that exceeds it fails; for an [`Effect::External`] node the run asks for the outcome. The timeout pauses while the node only waits
    /// for an answer, a message or a time, but not for a [`child`](Self::child). It is checked when the node awaits, so a node that never yields is
    /// not stopped.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.modify("timeout", |node| node.timeout = Some(timeout))
    }

    /// Sets the join rule, which decides when a node with tokens runs. The default is [`Join::All`].
    pub fn join(self, join: Join) -> Self {
        self.modify("join", |node| node.join = join)
    }

    /// Sets the maximum number of activations of the node in one run, at least 1. By default there is no limit.
    ///
    /// A run that exceeds it fails. Each item is one activation, even if it waited for another branch. Joined tokens count as one activation.
    pub fn max_visits(self, visits: u32) -> Self {
        self.modify("max_visits", |node| node.max_visits = Some(visits))
    }

    /// Sets the maximum number of concurrent activations of the node in one run, at least 1. By default there is no limit. The others start later, in
    /// their order.
    ///
    /// An activation that only waits, for a child or an answer, counts too. The limit therefore also bounds the concurrent children of a map.
    /// [`concurrency`](Self::concurrency) bounds the running activations of all nodes.
    pub fn max_running(self, activations: u32) -> Self {
        self.modify("max_running", |node| node.max_running = Some(activations))
    }

    /// Sets how often one run may return to the node by [`Route::revisit`](crate::graph::Route::revisit). The default is 2, and 0 disables it.
    ///
    /// A run that exceeds the limit fails with [`FailureKind::Replan`](crate::record::FailureKind::Replan). Each
    /// [`Runtime::retry`](crate::runtime::Runtime::retry) of the run allows one more.
    ///
    /// The limit is separate from [`max_visits`](Self::max_visits), which counts every activation.
    pub fn max_replans(self, replans: u32) -> Self {
        self.modify("max_replans", |node| node.max_replans = Some(replans))
    }

    /// Makes the node a goal gate: a run that visited the node can end only if the predicate holds for its final state. Otherwise the run continues
    /// at the retry target of the node, or at the [`fallback`](Self::fallback) of the graph.
    pub fn goal_gate(mut self, met: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        if let Some(node) = self.nodes.last_mut() {
            node.goal = Some(Arc::new(met));
        }
        self.modify("goal_gate", |node| node.goal_gate = true)
    }

    /// Sets the node where the run continues if the goal is not met, or if the node fails permanently and no edge handles the failure.
    ///
    /// This is a jump and not an edge: no join waits for its token.
    pub fn retry_target(self, name: impl Into<String>) -> Self {
        self.modify("retry_target", |node| node.returns = vec![name.into()])
    }

    /// Reuses the node's earlier results in this process, for activations of any run with the same key. The node must be [`Effect::Pure`] or
    /// [`Effect::Read`].
    ///
    /// `key` returns everything that the work depends on, as a value that is compared by its JSON. It receives the state and the context, so it may
    /// read the item, the inputs and the tenant. Put everything that may differ between tenants into the key. The cache belongs to this graph and its
    /// clones, and so to one version of the code; it ends with them.
    ///
    /// A hit ends the activation like any other end: update, output and notes are recorded with the run, and a resume, a replay or a fork reads them
    /// from the record. The node does not run, so it makes no calls on its context. The cached update is applied to the current run's state by its
    /// reducers: a cached draft changes the channels that it changed originally.
    ///
    /// An error of `key` fails the attempt. The cache stores neither failures nor results with outbox messages, artifacts or memory notes. Two
    /// concurrent misses both do the work, and the cache keeps the later result.
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

    /// Runs middleware around each attempt of the node. `around` is called instead of the node's work, which it receives as an argument, and returns
    /// the node's result.
    ///
    /// A second call wraps the first. The method is for libraries: a limit, a lock, a measurement.
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

    /// Sets when the run writes a checkpoint around the node. By default the run's policy decides.
    pub fn checkpoint(self, checkpoint: NodeCheckpoint) -> Self {
        self.modify("checkpoint", |node| node.checkpoint = checkpoint)
    }

    /// Requires a cleanup: if the run is cancelled, each activation of the node that has begun runs once more before the run ends, and
    /// [`is_cleaning_up`](crate::node::NodeContext::is_cleaning_up) is true in it. It finds its recorded steps, and undoes them.
    ///
    /// A cancelled run gives running attempts their grace, drops them, and starts the cleanup, in this process or in another one that serves the
    /// workflow. The cleanup has no time limit, follows the retry policy of the node, and survives crashes. The run ends as cancelled, whatever
    /// the cleanup returns. If it fails for good, its error is added to the reason of the cancellation. Children of the run are cancelled after
    /// it.
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

    /// Asks for confirmation before each activation of the node. The question is `node@visit:before`. An acceptance with any value starts the node. A
    /// rejection fails the activation with its comment.
    pub fn interrupt_before(self) -> Self {
        self.modify("interrupt_before", |node| node.interrupt.before = true)
    }

    /// Asks for confirmation after each activation of the node that fires an edge. Its work is then done and recorded, and the next nodes start once
    /// a signaller accepts the question `node@visit:after`. A rejection fails the run with its comment.
    pub fn interrupt_after(self) -> Self {
        self.modify("interrupt_after", |node| node.interrupt.after = true)
    }

    /// Sets the version of the node's code, which is part of the node's fingerprint. Change it if runs that are stored within the node must not
    /// continue with new code without a confirmation.
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
