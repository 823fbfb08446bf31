//! What modifies the node that was added last.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::GraphBuilder;
use crate::graph::around::{InnerNode, NodeMiddleware};
use crate::graph::cached::{CachePolicy, CachedNode};
use crate::graph::issue::GraphIssue;
use crate::graph::join::Join;
use crate::graph::outline::NodeOutline;
use crate::graph::policy::NodeCheckpoint;
use crate::graph::retry::RetryPolicy;
use crate::node::{NodeContext, NodeError, NodeResult};
use crate::record::effect::Effect;
use crate::state::{Draft, State};

impl<S: State> GraphBuilder<S> {
    /// Declares what repeating the node would mean; [`Effect::Write`] unless set.
    pub fn effect(self, effect: Effect) -> Self {
        self.modify("effect", |node| node.effect = effect)
    }

    /// Sets how often the node is tried, and how long after each failure; once unless set. An [`Effect::External`] node is tried
    /// again only after a failure that is [not done](crate::node::NodeError::not_done).
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.modify("retry", |node| node.retry = policy)
    }

    /// Sets how long one attempt may work at a stretch, more than zero; no limit unless set. An attempt that takes longer has
    /// failed; that of an [`Effect::External`] node is asked about. While the node only waits for an answer, a message or a time, no
    /// time counts; for a [`child`](Self::child), it does. It is looked at where the node awaits: one that never yields is not stopped.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.modify("timeout", |node| node.timeout = Some(timeout))
    }

    /// Sets when the node runs once it has tokens; [`Join::All`] unless set.
    pub fn join(self, join: Join) -> Self {
        self.modify("join", |node| node.join = join)
    }

    /// Sets how often one run may activate the node, at least 1; no limit unless set. A run that would go beyond it fails. Each item is one
    /// activation, also one that waited for another branch; tokens that are joined are one together.
    pub fn max_visits(self, visits: u32) -> Self {
        self.modify("max_visits", |node| node.max_visits = Some(visits))
    }

    /// Sets how many activations of the node one run has going at once, at least 1; no limit unless set. The others wait for their start
    /// in their order.
    ///
    /// An activation that only waits, for a child or an answer, counts as well: so it bounds how many children of a map run at once.
    /// [`concurrency`](Self::concurrency) bounds what works at once, of all nodes.
    pub fn max_running(self, activations: u32) -> Self {
        self.modify("max_running", |node| node.max_running = Some(activations))
    }

    /// Sets how often one run may go back to the node by [`Route::revisit`](crate::graph::Route::revisit); twice unless set, 0
    /// allows it never. A run that would go beyond it fails with
    /// [`FailureKind::Replan`](crate::record::FailureKind::Replan), and each
    /// [`Runtime::retry`](crate::runtime::Runtime::retry) of it allows one more.
    ///
    /// It is counted apart from [`max_visits`](Self::max_visits), which holds for every activation, however it came about.
    pub fn max_replans(self, replans: u32) -> Self {
        self.modify("max_replans", |node| node.max_replans = Some(replans))
    }

    /// Lets a run that visited the node end only if a predicate holds for its state then; otherwise it goes on at the retry
    /// target of the node, or at the [`fallback`](Self::fallback) of the graph.
    pub fn goal_gate(mut self, met: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        if let Some(node) = self.nodes.last_mut() {
            node.goal = Some(Arc::new(met));
        }
        self.modify("goal_gate", |node| node.goal_gate = true)
    }

    /// Says where the run goes when the goal of the node is not met, or when it fails for good and no edge takes the failure.
    ///
    /// That is a jump and not an edge: no join waits for what may come by it.
    pub fn retry_target(self, name: impl Into<String>) -> Self {
        self.modify("retry_target", |node| node.returns = vec![name.into()])
    }

    /// Has the node return what it returned before, in this process, to an activation with the same key, of whatever run. For nodes that
    /// are [`Effect::Pure`] or [`Effect::Read`].
    ///
    /// `key` says all that the work depends on, as a value that is compared by its JSON. It is given the state and the context, so it may
    /// read the item, the inputs and the tenant: what may differ between tenants belongs into the key. What is kept belongs to this graph
    /// and its clones, and so to one version of the code; it ends with them.
    ///
    /// A hit is the end of the activation like any other: update, output and notes are recorded with the run, and a resume, a replay or a
    /// fork reads them there. The node does not run, so it says, asks, and steps nothing. The kept update is applied to the state of the
    /// run at hand, as its reducers say: what was a draft changes the channels that it changed then.
    ///
    /// An error of `key` fails the attempt. Not kept are failures, and results of which letters, artifacts or notes of memory are part. Two
    /// activations that miss at once both work, and the later result is kept.
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
    ///     .cached(CachePolicy::for_life(Duration::from_secs(600)), |s: &Context, cx: &NodeContext| {
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

    /// Has something done around each attempt of the node: `around` is called in the place of its work, which it is given, and returns what
    /// the node returns. Called again, it stands around what was around the node before. For libraries: a limit, a lock, a measurement.
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
    ///
    /// <!-- held by: nodes::a_limit_stands_around_whatever_is_declared_before_it -->
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

    /// Sets when a checkpoint is written around the node; as the run's policy says unless set.
    pub fn checkpoint(self, checkpoint: NodeCheckpoint) -> Self {
        self.modify("checkpoint", |node| node.checkpoint = checkpoint)
    }

    /// Asks whether to go on before each activation of the node. The question is `node@visit:before`; an acceptance with any
    /// value starts the node, a rejection fails the activation with its comment.
    pub fn interrupt_before(self) -> Self {
        self.modify("interrupt_before", |node| node.interrupt.before = true)
    }

    /// Asks whether to go on behind each activation of the node that leads anywhere: its work is done and recorded, and what
    /// it leads to starts once a signaller accepts the question `node@visit:after`. A rejection fails the run with its comment.
    pub fn interrupt_after(self) -> Self {
        self.modify("interrupt_after", |node| node.interrupt.after = true)
    }

    /// Names the version of the node's code. It is part of the node's fingerprint: change it when runs that are stored within
    /// the node must not go on with its new code unasked.
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
