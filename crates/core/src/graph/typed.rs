//! Validated graphs with the user's types and functions.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::graph::EdgeKind;
use crate::graph::builder::{GraphBuilder, RouteFn};
use crate::graph::migrate::Migration;
use crate::graph::node_set::NodeIx;
use crate::graph::outline::GraphOutline;
use crate::graph::plan::GraphPlan;
use crate::graph::suggest::no_node;
use crate::id::{Fingerprint, NodeName, WorkflowName};
use crate::node::{FnNode, NodeContext, NodeError, StartWork, Work};
use crate::state::{Draft, IntoUpdate, Schema, State, as_stored};

/// A condition on the state.
pub(crate) type Predicate<S> = dyn Fn(&S) -> bool + Send + Sync;

/// The functions of one node.
#[derive(Clone)]
pub(crate) struct NodeFunctions<S: State> {
    pub(crate) node: Arc<dyn StartWork<S>>,
    /// The predicate of a goal gate. It returns whether the goal is met.
    pub(crate) goal: Option<Arc<Predicate<S>>>,
    pub(crate) route: Option<Arc<RouteFn<S>>>,
}

/// A validated, immutable graph of nodes and edges over one type of state. Cheap to clone.
///
/// # Fingerprints
///
/// A process resumes a stored run only with a matching graph, and compares fingerprints for this.
///
/// The fingerprint of a node covers its name, its effect, its join, the kinds and targets of its outgoing edges, its revision, and whether it is a
/// goal gate. It does not cover retries, timeout, visits, checkpoints, the retry target, the order of edge declarations, or the node's code. The
/// fingerprint of the graph covers the fingerprints of its nodes, its entry, its version, and the channels, reducers and version of the state.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::{Effect, Graph};
/// use ferrata_core::state::Context;
///
/// let graph = Graph::<Context>::builder("review")
///     .version("1")
///     .node("write", async |_cx, s| Ok(s))
///     .node("approve", async |_cx, mut s| {
///         s.set("approved", true)?;
///         Ok(s)
///     })
///     .node("publish", async |_cx, _s| Ok(()))
///     .effect(Effect::External)
///     .entry("write")
///     .edge("write", "approve")
///     .route("approve", ["publish", "write"], |s, _cx| if s.contains_key("approved") { "publish" } else { "write" })
///     .build()?;
/// assert_eq!(graph.name().as_str(), "review");
///
/// let wrong = Graph::<Context>::builder("review").node("write", async |_cx, s| Ok(s)).entry("wirte").build();
/// assert_eq!(
///     wrong.unwrap_err().to_string(),
///     "graph `review`: the node `wirte` does not exist; did you mean `write`?"
/// );
/// # Ok::<(), ferrata_core::graph::GraphError>(())
/// ```
pub struct Graph<S: State> {
    inner: Arc<GraphInner<S>>,
}

struct GraphInner<S: State> {
    plan: Arc<GraphPlan>,
    /// The declarations from which the plan was made. They are needed if another graph inlines this graph.
    outline: GraphOutline,
    /// The functions of the nodes, by node index.
    nodes: Vec<NodeFunctions<S>>,
    /// The predicates of conditional edges, by edge index.
    predicates: Vec<Option<Arc<Predicate<S>>>>,
    migrations: Vec<Migration>,
}

impl<S: State> Graph<S> {
    /// Creates a builder for the workflow `name`, which has 1 to 128 of the characters `A-Z a-z 0-9 . _ : -`.
    pub fn builder(name: impl Into<String>) -> GraphBuilder<S> {
        GraphBuilder::new(name.into())
    }

    pub(crate) fn new(
        (outline, plan): (GraphOutline, GraphPlan),
        nodes: Vec<NodeFunctions<S>>,
        predicates: Vec<Option<Arc<Predicate<S>>>>,
        migrations: Vec<Migration>,
    ) -> Self {
        Self { inner: Arc::new(GraphInner { plan: Arc::new(plan), outline, nodes, predicates, migrations }) }
    }

    /// Returns the name of the workflow.
    pub fn name(&self) -> &WorkflowName {
        &self.plan().name
    }

    /// Returns the version of the workflow.
    pub fn version(&self) -> &str {
        &self.plan().version
    }

    /// Returns the fingerprint of the whole graph.
    pub fn fingerprint(&self) -> Fingerprint {
        self.plan().fingerprint
    }

    /// Returns the fingerprint of a node, or `None` if there is no such node.
    #[cfg(test)]
    pub(crate) fn node_fingerprint(&self, name: &str) -> Option<Fingerprint> {
        self.plan().find(name).map(|node| self.plan().node(node).fingerprint)
    }

    /// Returns the names of the nodes in the order of declaration.
    pub fn node_names(&self) -> impl Iterator<Item = &NodeName> {
        self.plan().nodes.iter().map(|node| &node.name)
    }

    /// Lists the edges in the order of declaration: source, target and kind. Edges of subgraphs are included, with paths as node names.
    pub fn edges(&self) -> impl Iterator<Item = (&NodeName, &NodeName, EdgeKind)> {
        let plan = self.plan();
        plan.edges.iter().map(|edge| (&plan.node(edge.from).name, &plan.node(edge.to).name, edge.kind))
    }

    /// Returns the node where runs begin.
    pub fn entry(&self) -> &NodeName {
        let plan = self.plan();
        &plan.node(plan.entry).name
    }

    /// Returns the channels of the state: the channels of the state's type, and the channels that the graph declares.
    pub fn schema(&self) -> &Schema {
        &self.plan().schema
    }

    /// Returns a copy of the graph in which the node `name` does other work.
    ///
    /// Use this in tests, for example if a node would call a bank or a model. The names, edges and fingerprints stay the same, so the copy can resume
    /// the same runs.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if the graph has no such node. The error message suggests the node with the closest name.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::state::Context;
    ///
    /// let graph = Graph::<Context>::builder("pay").node("pay", async |_cx, s| Ok(s)).entry("pay").build()?;
    /// let tame = graph.with_node("pay", async |_cx, mut s| {
    ///     s.set("receipt", "r-1")?;
    ///     Ok(s)
    /// })?;
    /// assert_eq!(tame.fingerprint(), graph.fingerprint());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_node<F, Fut, R>(&self, name: &str, work: F) -> Result<Self>
    where
        F: Fn(NodeContext, Draft<S>) -> Fut + Send + Sync + 'static, // async closures cannot capture: use `cx.resource()`
        Fut: Future<Output = std::result::Result<R, NodeError>> + Send + 'static,
        R: IntoUpdate<S>,
    {
        let Some(node) = self.plan().find(name) else {
            let message = no_node(name, self.node_names().map(NodeName::as_str));
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        let inner = &self.inner;
        let mut nodes = inner.nodes.clone();
        nodes[node.as_usize()].node = Arc::new(FnNode(work));
        let (plan, outline) = (Arc::clone(&inner.plan), inner.outline.clone());
        let (predicates, migrations) = (inner.predicates.clone(), inner.migrations.clone());
        Ok(Self { inner: Arc::new(GraphInner { plan, outline, nodes, predicates, migrations }) })
    }

    /// Returns the plan for the engine.
    pub(crate) fn plan(&self) -> &Arc<GraphPlan> {
        &self.inner.plan
    }

    /// Returns the declared graph with inlined subgraphs.
    pub(super) fn outline(&self) -> &GraphOutline {
        &self.inner.outline
    }

    /// Returns the functions of each node, by index.
    pub(super) fn behaviours(&self) -> &[NodeFunctions<S>] {
        &self.inner.nodes
    }

    /// Returns the steps from older versions of the state.
    pub(crate) fn migrations(&self) -> &[Migration] {
        &self.inner.migrations
    }

    /// Begins the work of a node.
    pub(crate) fn begin(&self, node: NodeIx, cx: NodeContext, state: Draft<S>) -> Work<S> {
        Arc::clone(&self.inner.nodes[node.as_usize()].node).begin(cx, state)
    }

    /// Returns whether the stored state meets the goal of a node. Returns true if the node is not a goal gate.
    pub(crate) fn goal_met(&self, node: NodeIx, state: &S) -> bool {
        self.inner.nodes[node.as_usize()].goal.as_ref().is_none_or(|met| met(&as_stored(state)))
    }

    /// Returns the routing function of a node.
    pub(super) fn route_fn(&self, node: NodeIx) -> Option<&RouteFn<S>> {
        self.inner.nodes[node.as_usize()].route.as_deref()
    }

    /// Returns the predicates of the edges, by edge index.
    pub(super) fn predicates(&self) -> &[Option<Arc<Predicate<S>>>] {
        &self.inner.predicates
    }
}

impl<S: State> Clone for Graph<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S: State> fmt::Debug for Graph<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("name", self.name())
            .field("version", &self.version())
            .field("fingerprint", &self.fingerprint())
            .field("nodes", &self.plan().nodes.len())
            .finish_non_exhaustive()
    }
}
