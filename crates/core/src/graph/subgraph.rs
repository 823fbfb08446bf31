//! Inlines subgraphs into one graph. Nodes of a subgraph get paths as names, and edges of the outer graph connect to these nodes.
//!
//! Records, forks, checks and tools see only the resulting graph.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::graph::EdgeKind;
use crate::graph::Join;
use crate::graph::Route;
use crate::graph::builder::RouteFn;
use crate::graph::outline::{EdgeOutline, GraphOutline, NodeOutline, RouteOutline};
use crate::graph::typed::{NodeFunctions, Predicate};
use crate::record::effect::Effect;
use crate::state::{ChannelSpec, State};

/// The error text for a route that sends items to a subgraph.
const NO_ITEMS: &str =
    "a subgraph has one state for all items; route to it once, or run a child for each item";

/// A subgraph of a graph that is being declared.
pub(crate) struct EmbeddedGraph<S: State> {
    pub(crate) name: String,
    /// The number of edges that were declared before the subgraph.
    pub(crate) edges_before: usize,
    /// The declared graph of the subgraph. Its nodes have paths as names.
    pub(crate) outline: GraphOutline,
    /// The functions of the nodes, by node index.
    pub(crate) nodes: Vec<NodeFunctions<S>>,
    /// The predicates of conditional edges, by edge index.
    pub(crate) predicates: Vec<Option<Arc<Predicate<S>>>>,
    /// The channels of the outer state that the subgraph's lens declares.
    pub(crate) channels: Vec<ChannelSpec>,
    /// The prefix of the subgraph's keys in the outer state, if its lens has a prefix.
    pub(crate) prefix: Option<String>,
}

/// A declared graph with its functions.
pub(crate) struct SubgraphSource<S: State> {
    pub(crate) outline: GraphOutline,
    /// The functions of the nodes, by node index.
    pub(crate) nodes: Vec<NodeFunctions<S>>,
    /// The predicates of conditional edges, by edge index.
    pub(crate) predicates: Vec<Option<Arc<Predicate<S>>>>,
    pub(crate) routes: Vec<(String, Arc<RouteFn<S>>)>,
}

/// Returns the outline of a graph as a part of another graph: the nodes get paths that begin with `name`.
pub(crate) fn under(name: &str, graph: &GraphOutline) -> GraphOutline {
    let mut outline = graph.clone();
    let path = |own: &String| format!("{name}/{own}");
    outline.nodes.iter_mut().for_each(|node| {
        node.name = path(&node.name);
        // The graph's own target comes after the node's targets, and before those of enclosing graphs.
        node.returns = node.returns.iter().chain(&graph.fallback).map(path).collect();
        node.inner = true;
    });
    for edge in &mut outline.edges {
        (edge.from, edge.to) = (path(&edge.from), path(&edge.to));
    }
    outline.routes.iter_mut().for_each(|route| route.from = path(&route.from));
    outline.entries.iter_mut().for_each(|entry| *entry = path(entry));
    outline.subgraphs.iter_mut().for_each(|subgraph| subgraph.0 = path(&subgraph.0));
    outline.subgraphs.insert(0, (name.to_owned(), graph.name.clone(), graph.version.clone()));
    outline
}

/// A node of a subgraph where a branch may end successfully.
struct SubgraphExit {
    node: usize,
    how: ExitCondition,
}

/// The condition on which a branch ends at a node that succeeded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExitCondition {
    /// The branch always ends at this node, because no edge leaves it.
    Always,
    /// The branch ends at this node if no `When` edge fires.
    Otherwise,
    /// The branch ends at this node if neither its route nor its `When` edges fire an edge.
    Unrouted,
}

/// The way in which the branches of a subgraph continue at the targets of its outgoing edges.
#[derive(PartialEq, Eq)]
enum SubgraphOutput {
    /// The outer graph has no edge from the subgraph, so a branch simply ends at its last node.
    Nowhere,
    /// All branches end once at this node, so the outer edges start there.
    By(String),
    /// The outer edges start at every exit node, and their target joins them. No decision is needed.
    ByAll,
    /// The outer edges start at an extra node with the subgraph's name, which joins the exit nodes. It exists for a decision or a count that must
    /// happen once.
    Gathered,
}

impl<S: State> EmbeddedGraph<S> {
    fn entry(&self) -> &str {
        self.outline.entries.first().map_or("", |entry| entry)
    }

    fn join_of_entry(&self) -> Join {
        let entry = self.outline.nodes.iter().find(|node| node.name == self.entry());
        entry.map_or(Join::All, |node| node.join)
    }

    fn exits(&self) -> Vec<SubgraphExit> {
        let exit = |(at, node): (usize, &NodeOutline)| {
            let has =
                |kind| self.outline.edges.iter().any(|edge| edge.from == node.name && edge.kind == kind);
            let goes_on = node.leads_on || has(EdgeKind::Plain) || has(EdgeKind::Otherwise);
            let how = match (goes_on, self.nodes[at].route.is_some()) {
                (true, _) => return None,
                (false, true) => ExitCondition::Unrouted,
                (false, false) if has(EdgeKind::When) => ExitCondition::Otherwise,
                (false, false) => ExitCondition::Always,
            };
            Some(SubgraphExit { node: at, how })
        };
        self.outline.nodes.iter().enumerate().filter_map(exit).collect()
    }

    /// Returns the node at which every branch ends, if there is one and it runs once in each pass through the subgraph.
    fn sole_exit<'a>(&'a self, exits: &[SubgraphExit]) -> Option<&'a str> {
        let [SubgraphExit { node, how: ExitCondition::Always }] = exits else { return None };
        let node = &self.outline.nodes[*node];
        let by_items = |edge: &EdgeOutline| edge.to == node.name && edge.kind == EdgeKind::Routed;
        let once = node.join == Join::All && !self.outline.edges.iter().any(by_items);
        once.then_some(&*node.name)
    }

    /// Chooses the output connection of the subgraph. `join` returns the join rule of an edge's target.
    fn choose_output(&self, outer: &GraphOutline, join: impl Fn(&str) -> Join) -> SubgraphOutput {
        let mut out =
            outer.edges.iter().filter(|edge| edge.from == self.name && edge.kind != EdgeKind::OnFailure);
        if let Some(node) = self.sole_exit(&self.exits()) {
            SubgraphOutput::By(node.to_owned())
        } else if out.clone().next().is_none() {
            SubgraphOutput::Nowhere
        } else if out.all(|edge| edge.kind == EdgeKind::Plain && join(&edge.to) == Join::All) {
            SubgraphOutput::ByAll
        } else {
            SubgraphOutput::Gathered
        }
    }

    /// Adds edges from every exit node to these nodes. Each edge fires if the branch would otherwise end at the exit node.
    fn lead(&mut self, to: &[String], call: usize) -> Vec<SubgraphEdge<S>> {
        let mut edges = Vec::new();
        for SubgraphExit { node: at, how } in self.exits() {
            let from = &self.outline.nodes[at].name;
            let kind = match how {
                ExitCondition::Always => EdgeKind::Plain,
                ExitCondition::Otherwise => EdgeKind::Otherwise,
                ExitCondition::Unrouted => EdgeKind::Routed,
            };
            let there = |to: &String| {
                self.outline
                    .edges
                    .iter()
                    .any(|edge| edge.kind == kind && edge.from == *from && edge.to == *to)
            };
            let new = to.iter().filter(|to| !there(to));
            edges.extend(new.map(|to| SubgraphEdge::new((from, to), kind, call, None)));
            if let (ExitCondition::Unrouted, Some(choose)) = (how, self.nodes[at].route.take()) {
                let own =
                    self.outline.edges.iter().zip(&self.predicates).filter(|(edge, _)| edge.from == *from);
                let conditions: Vec<_> = own.filter_map(|(_, holds)| holds.clone()).collect();
                let to = to.to_vec();
                self.outline.nodes[at].leads_on = true;
                self.nodes[at].route = Some(Arc::new(move |state, cx| {
                    let route = choose(state, cx);
                    if route.fires_nothing() && !conditions.iter().any(|holds| holds(state)) {
                        return Route::all(to.clone());
                    }
                    route
                }));
            }
        }
        edges
    }
}

/// An edge with its condition.
struct SubgraphEdge<S: State> {
    outline: EdgeOutline,
    holds: Option<Arc<Predicate<S>>>,
}

impl<S: State> SubgraphEdge<S> {
    fn new((from, to): (&str, &str), kind: EdgeKind, call: usize, holds: Option<Arc<Predicate<S>>>) -> Self {
        Self { outline: EdgeOutline { from: from.to_owned(), to: to.to_owned(), kind, call }, holds }
    }
}

/// Inlines the subgraphs of a graph without mistakes.
pub(crate) fn dissolve<S: State>(
    mut whole: SubgraphSource<S>,
    mut subgraphs: Vec<EmbeddedGraph<S>>,
) -> SubgraphSource<S> {
    let entries: HashMap<String, String> =
        subgraphs.iter().map(|sub| (sub.name.clone(), sub.entry().to_owned())).collect();
    let enter = |name: &String| entries.get(name).unwrap_or(name).clone();
    let ways: Vec<SubgraphOutput> = subgraphs
        .iter()
        .map(|sub| {
            sub.choose_output(&whole.outline, |name| {
                match subgraphs.iter().find(|other| other.name == name) {
                    Some(other) => other.join_of_entry(),
                    None => whole
                        .outline
                        .nodes
                        .iter()
                        .find(|node| node.name == name)
                        .map_or(Join::All, |n| n.join),
                }
            })
        })
        .collect();
    let edges = join_edges(&mut whole, &mut subgraphs, &ways, enter);
    (whole.outline.edges, whole.predicates) =
        edges.into_iter().map(|edge| (edge.outline, edge.holds)).unzip();
    for name in whole.outline.entries.iter_mut().chain(&mut whole.outline.fallback) {
        *name = enter(name);
    }
    for node in &mut whole.outline.nodes {
        node.returns.iter_mut().for_each(|name| *name = enter(name));
    }
    let exit_of = |name: &str| {
        let at = subgraphs.iter().position(|sub| sub.name == name)?;
        if let SubgraphOutput::By(node) = &ways[at] { Some(node.clone()) } else { None }
    };
    let shared = Arc::new(entries.clone());
    for (from, choose) in &mut whole.routes {
        *from = exit_of(from).unwrap_or_else(|| from.clone());
        let (own, entries) = (Arc::clone(choose), Arc::clone(&shared));
        *choose = Arc::new(move |state, cx| {
            let route = own(state, &cx.with_entries(&entries));
            let route = route.without_items_for(|name| entries.contains_key(name), NO_ITEMS);
            route.renamed(|name| entries.get(&name).cloned().unwrap_or(name))
        });
    }
    for RouteOutline { from, .. } in &mut whole.outline.routes {
        *from = exit_of(from).unwrap_or_else(|| from.clone());
    }
    put_nodes(&mut whole, subgraphs, &ways);
    whole
}

/// Joins the edges of the graph and of its subgraphs. The edges of each subgraph are placed at the position where the subgraph was declared.
fn join_edges<S: State>(
    whole: &mut SubgraphSource<S>,
    subgraphs: &mut [EmbeddedGraph<S>],
    ways: &[SubgraphOutput],
    enter: impl Fn(&String) -> String,
) -> Vec<SubgraphEdge<S>> {
    let outer: Vec<_> = whole.outline.edges.drain(..).zip(whole.predicates.drain(..)).collect();
    // The targets of each subgraph that leads on by all of its exits, combined for one evaluation of each route.
    let mut targets: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (edge, _) in &outer {
        let at = subgraphs.iter().position(|sub| sub.name == edge.from && edge.kind != EdgeKind::OnFailure);
        if let Some(at) = at.filter(|&at| ways[at] == SubgraphOutput::ByAll) {
            targets.entry(at).or_default().push(enter(&edge.to));
        }
    }
    let mut edges = Vec::new();
    let mut led = HashSet::new();
    for place in 0..=outer.len() {
        for (at, sub) in subgraphs.iter_mut().enumerate().filter(|(_, sub)| sub.edges_before == place) {
            let own = sub.outline.edges.iter().zip(&sub.predicates);
            edges.extend(
                own.map(|(edge, holds)| SubgraphEdge { outline: edge.clone(), holds: holds.clone() }),
            );
            if ways[at] == SubgraphOutput::Gathered {
                edges.extend(sub.lead(std::slice::from_ref(&sub.name.clone()), usize::MAX));
            }
        }
        let Some((edge, holds)) = outer.get(place) else { continue };
        let to = enter(&edge.to);
        let plain = |from: &str| SubgraphEdge::new((from, &to), edge.kind, edge.call, holds.clone());
        let Some(at) = subgraphs.iter().position(|sub| sub.name == edge.from) else {
            edges.push(plain(&edge.from));
            continue;
        };
        let sub = &mut subgraphs[at];
        match &ways[at] {
            way if edge.kind == EdgeKind::OnFailure => {
                edges.extend(sub.uncaught().map(plain));
                // Its route may fail, which also fails the subgraph.
                edges.extend((*way == SubgraphOutput::Gathered).then(|| plain(&edge.from)));
            }
            SubgraphOutput::By(node) => edges.push(plain(node)),
            SubgraphOutput::ByAll if led.insert(at) => {
                edges.extend(sub.lead(targets.get(&at).map_or(&[], Vec::as_slice), edge.call));
            }
            SubgraphOutput::ByAll | SubgraphOutput::Nowhere => {}
            SubgraphOutput::Gathered => edges.push(plain(&edge.from)),
        }
    }
    for (edge, _) in outer.iter().filter(|(edge, _)| edge.kind == EdgeKind::OnFailure) {
        if let Some(sub) = subgraphs.iter_mut().find(|sub| sub.name == edge.from) {
            sub.return_first();
        }
    }
    edges
}

impl<S: State> EmbeddedGraph<S> {
    /// Returns the nodes whose failure is not handled by an edge of their own graph.
    fn uncaught(&self) -> impl Iterator<Item = &str> {
        let edges = self.outline.edges.iter();
        let caught: HashSet<&String> =
            edges.filter(|edge| edge.kind == EdgeKind::OnFailure).map(|edge| &edge.from).collect();
        let nodes = self.outline.nodes.iter().map(|node| &node.name);
        nodes.filter(move |name| !caught.contains(name)).map(String::as_str)
    }

    /// Makes the nodes whose failure no edge of their own graph handles use the retry targets of that graph first. Only then an edge of the outer
    /// graph handles their failure.
    fn return_first(&mut self) {
        let uncaught: HashSet<String> = self.uncaught().map(str::to_owned).collect();
        for node in self.outline.nodes.iter_mut().filter(|node| uncaught.contains(&node.name)) {
            node.returns_first = node.returns.len();
        }
    }
}

/// Puts the nodes of each subgraph at the position where the subgraph was declared.
fn put_nodes<S: State>(
    whole: &mut SubgraphSource<S>,
    subgraphs: Vec<EmbeddedGraph<S>>,
    ways: &[SubgraphOutput],
) {
    let mut by_name: HashMap<String, (EmbeddedGraph<S>, &SubgraphOutput)> =
        subgraphs.into_iter().zip(ways).map(|(sub, way)| (sub.name.clone(), (sub, way))).collect();
    let (mut outlines, mut nodes) = (Vec::new(), Vec::new());
    for (mut outline, node) in whole.outline.nodes.drain(..).zip(whole.nodes.drain(..)) {
        let Some((sub, way)) = by_name.remove(&outline.name) else {
            outlines.push(outline);
            nodes.push(node);
            continue;
        };
        outlines.extend(sub.outline.nodes);
        nodes.extend(sub.nodes);
        if *way == SubgraphOutput::Gathered {
            outline.effect = Effect::Pure;
            outlines.push(outline);
            nodes.push(node);
        }
        whole.outline.routes.extend(sub.outline.routes);
        whole.outline.subgraphs.extend(sub.outline.subgraphs);
    }
    (whole.outline.nodes, whole.nodes) = (outlines, nodes);
}
