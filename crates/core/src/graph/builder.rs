//! The builder of a graph, with the methods that add nodes, edges and routes. The child modules have the methods that modify them.

mod modify_edge;
mod modify_node;
mod pauses;
mod settings;
mod subgraphs;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use crate::graph::EdgeKind;
use crate::graph::NodeNames;
use crate::graph::lower::{check_outline, lower};
use crate::graph::migrate::Migration;
use crate::graph::outline::{EdgeOutline, GraphOutline, NodeOutline, RouteOutline};
use crate::graph::subgraph::{EmbeddedGraph, SubgraphSource, dissolve};
use crate::graph::typed::{Graph, NodeFunctions, Predicate};
use crate::graph::{GraphError, GraphIssue};
use crate::graph::{Route, RouteContext};
use crate::node::{FnNode, Node, NodeContext, NodeError, StartWork, TypedNode};
use crate::state::{Draft, IntoUpdate, State};

/// The builder of a [`Graph`], created by [`Graph::builder`].
///
/// [`build`](Self::build) checks the whole graph and reports every mistake at once, so nodes and edges can be declared in any order. Only modifiers
/// depend on the order of the calls: a node modifier applies to the last added node, and an edge modifier applies to the last declared edges.
///
/// A node name has 1 to 128 of the characters `A-Z a-z 0-9 . _ : -`, and does not start with a dot.
#[must_use = "a graph is made by `build`"]
// Large: the API that declares a graph; its methods are in files by topic.
pub struct GraphBuilder<S: State> {
    pub(super) outline: GraphOutline,
    /// The functions of the nodes, by node index.
    nodes: Vec<NodeFunctions<S>>,
    /// The predicates of conditional edges, by edge index.
    predicates: Vec<Option<Arc<Predicate<S>>>>,
    routes: Vec<(String, Arc<RouteFn<S>>)>,
    pub(super) subgraphs: Vec<EmbeddedGraph<S>>,
    pub(super) migrations: Vec<Migration>,
    /// The edges to which the next edge modifier applies.
    last_edges: Option<Range<usize>>,
    /// The number of calls that declared edges or routes.
    calls: usize,
}

/// The routing function of one node.
pub(crate) type RouteFn<S> = dyn Fn(&S, &RouteContext<'_>) -> Route + Send + Sync;

impl<S: State> GraphBuilder<S> {
    /// Creates a builder without declarations.
    pub(crate) fn new(name: String) -> Self {
        Self {
            outline: GraphOutline::new(name, S::schema()),
            nodes: Vec::new(),
            predicates: Vec::new(),
            routes: Vec::new(),
            subgraphs: Vec::new(),
            migrations: Vec::new(),
            last_edges: None,
            calls: 0,
        }
    }

    /// Adds a node. Each attempt of the node calls `work`, which is an `async fn` or an async closure.
    ///
    /// The function receives the state as a draft to edit, and returns the draft, a typed update, or `()`. A function with a declared return type
    /// returns [`NodeResult`](crate::node::NodeResult).
    ///
    /// An async closure cannot capture variables, because its future would borrow from the closure. To use a client, for example, take it from the
    /// [resources](crate::runtime::RuntimeBuilder::resource), write `move |cx, s| { let client = client.clone(); async move { .. } }`, or write a
    /// type that implements [`Node`] and [`add`](Self::add) it.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::state::Context;
    ///
    /// let graph = Graph::<Context>::builder("greet")
    ///     .node("hello", async |_cx, mut s| {
    ///         s.set("text", "hello")?;
    ///         Ok(s)
    ///     })
    ///     .entry("hello")
    ///     .build()?;
    /// assert_eq!(graph.node_names().count(), 1);
    /// # Ok::<(), ferrata_core::graph::GraphError>(())
    /// ```
    pub fn node<F, Fut, R>(self, name: impl Into<String>, work: F) -> Self
    where
        F: Fn(NodeContext, Draft<S>) -> Fut + Send + Sync + 'static, // async closures cannot capture: use `cx.resource()`
        Fut: Future<Output = Result<R, NodeError>> + Send + 'static, // drop each `Rc` and lock guard before an `.await`
        R: IntoUpdate<S>,
    {
        self.push(name, Arc::new(FnNode(work)))
    }

    /// Declares an edge from each of the `from` nodes to each of the `to` nodes.
    ///
    /// An edge fires whenever the node in `from` succeeds, unless a call of [`when`](Self::when), [`otherwise`](Self::otherwise) or
    /// [`on_failure`](Self::on_failure) follows this call. If a node joins several edges, it receives their inputs in the order in which the edges
    /// were declared.
    pub fn edge(mut self, from: impl NodeNames, to: impl NodeNames) -> Self {
        let (from, to) = (from.into_names(), to.into_names());
        for (names, ends) in [(&from, "from"), (&to, "to")] {
            if names.is_empty() {
                let message = format!("an edge leads {ends} no node; name at least one");
                self.outline.issues.push(GraphIssue::graph(message));
            }
        }
        let first = self.outline.edges.len();
        for from in &from {
            self.push_edges(from, &to, EdgeKind::Plain);
        }
        self.calls += 1;
        self.last_edges = Some(first..self.outline.edges.len());
        self
    }

    /// Sets the node where a run starts.
    pub fn entry(mut self, name: impl Into<String>) -> Self {
        self.outline.entries.push(name.into());
        self
    }

    /// Declares the routing function of a node, and all nodes that this function may choose.
    ///
    /// The function receives the state after the node's update. It must depend only on its arguments, because it may be called again for the same
    /// activation. The node's other edges fire in addition to the chosen route.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::{Graph, Route};
    /// use ferrata_core::state::Context;
    ///
    /// let graph = Graph::<Context>::builder("crawl")
    ///     .node("plan", async |_cx, s| Ok(s))
    ///     .node("fetch", async |_cx, s| Ok(s))
    ///     .entry("plan")
    ///     .route("plan", ["fetch"], |s, _cx| Route::each("fetch", s.get::<Vec<String>>("pages").unwrap_or_default()))
    ///     .edge("fetch", "plan")
    ///     .build()?;
    /// # Ok::<(), ferrata_core::graph::GraphError>(())
    /// ```
    pub fn route<F, R>(mut self, from: impl Into<String>, targets: impl NodeNames, choose: F) -> Self
    where
        F: Fn(&S, &RouteContext<'_>) -> R + Send + Sync + 'static,
        R: Into<Route>,
    {
        let (from, targets) = (from.into(), targets.into_names());
        self.push_edges(&from, &targets, EdgeKind::Routed);
        self.calls += 1;
        self.last_edges = None;
        self.outline.routes.push(RouteOutline { from: from.clone(), targets: targets.len() });
        self.routes.push((from, Arc::new(move |state, cx| choose(state, cx).into())));
        self
    }

    /// Adds a node whose work is a value of a type that implements [`Node`].
    pub fn add(self, name: impl Into<String>, node: impl Node<S>) -> Self {
        self.push(name, Arc::new(TypedNode(node)))
    }

    /// Checks the declarations and creates the graph.
    ///
    /// # Errors
    ///
    /// Returns a [`GraphError`] that lists every mistake: the node or edge, the problem, and the remedy.
    pub fn build(mut self) -> Result<Graph<S>, GraphError> {
        self.declare_channels();
        self.check_prefixes();
        let Self { outline, nodes, predicates, routes, subgraphs, migrations, .. } = self;
        let mut whole = SubgraphSource { outline, nodes, predicates, routes };
        if !subgraphs.is_empty() {
            // Report mistakes between the parts before they are merged.
            check_outline(&whole.outline)?;
            whole = dissolve(whole, subgraphs);
        }
        let plan = lower(&whole.outline)?;
        for (from, route) in whole.routes {
            if let Some(node) = plan.find(&from) {
                whole.nodes[node.as_usize()].route = Some(route);
            }
        }
        Ok(Graph::new((whole.outline, plan), whole.nodes, whole.predicates, migrations))
    }

    /// Adds a node whose activations always wait for an answer, a message or a child.
    pub(crate) fn add_waiting(self, name: impl Into<String>, node: impl Node<S>) -> Self {
        let mut graph = self.add(name, node);
        if let Some(node) = graph.outline.nodes.last_mut() {
            node.waits = true;
        }
        graph
    }

    fn push(mut self, name: impl Into<String>, node: Arc<dyn StartWork<S>>) -> Self {
        self.outline.nodes.push(NodeOutline { name: name.into(), ..NodeOutline::default() });
        self.nodes.push(NodeFunctions { node, goal: None, route: None });
        self.last_edges = None;
        self
    }

    fn push_edges(&mut self, from: &str, to: &[String], kind: EdgeKind) {
        let call = self.calls;
        let edge = |to: &String| EdgeOutline { from: from.to_owned(), to: to.clone(), kind, call };
        self.outline.edges.extend(to.iter().map(edge));
        self.predicates.resize(self.outline.edges.len(), None);
    }
}

impl<S: State> fmt::Debug for GraphBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphBuilder").field("outline", &self.outline).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
