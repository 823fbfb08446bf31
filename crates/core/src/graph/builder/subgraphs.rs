//! The builder method that adds a graph as a part (a subgraph) of another graph.

use std::sync::Arc;

use super::GraphBuilder;
use crate::graph::GraphIssue;
use crate::graph::lens::Lens;
use crate::graph::outline::GraphOutline;
use crate::graph::subgraph::{EmbeddedGraph, under};
use crate::graph::typed::Graph;
use crate::id::NodeName;
use crate::node::{FnNode, NodeContext, NodeError};
use crate::state::{ChannelSpec, Draft, State, Update};

impl<S: State> GraphBuilder<S> {
    /// Adds a graph as a part of this one. Its nodes become nodes of this graph, named by paths such as `review/lint`, with their own joins, retries,
    /// gates and limits. The lens maps the state of this graph to the state of the subgraph.
    ///
    /// Edges, routes and the entry name the subgraph like a node. An edge to the subgraph leads to its entry node. An edge from the subgraph starts
    /// at the nodes where its branches end. All nodes belong to one run with one log, and a node of a subgraph costs as much as any other node.
    ///
    /// If the branches of the subgraph do not all end at one node that runs once, the builder may add an extra node with the subgraph's name, which
    /// joins the branches. It adds this node if an edge with a condition or a route leaves the subgraph, or if the target of an edge from the
    /// subgraph has a join other than [`Join::All`]. So the condition or the route is evaluated once, and the join counts the subgraph once.
    ///
    /// An [`on_failure`](Self::on_failure) edge of a subgraph handles the failure of each node in the subgraph, unless an edge or a retry target
    /// inside the subgraph handles it. The other branches of the subgraph continue. Visits are counted over the whole run, as in one graph. A route
    /// that sends items to a subgraph fails, because all items would share one state.
    ///
    /// [`Join::All`]: crate::graph::Join::All
    ///
    /// # Errors
    ///
    /// This call returns no error. [`build`](Self::build) rejects a subgraph with settings that would be lost: limits for the whole run (deadline,
    /// concurrency, steps, replans in total) or migrations of its state. It also rejects a path of more than 128 bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::{Graph, Lens};
    /// use ferrata_core::state::Context;
    ///
    /// let check = Graph::<Context>::builder("check")
    ///     .node("split", async |_cx, _s| Ok(()))
    ///     .node("lint", async |_cx, _s| Ok(()))
    ///     .node("facts", async |_cx, _s| Ok(()))
    ///     .entry("split")
    ///     .edge("split", ["lint", "facts"])
    ///     .build()?;
    /// let graph = Graph::<Context>::builder("article")
    ///     .node("write", async |_cx, s| Ok(s))
    ///     .subgraph("check", &check, Lens::whole())
    ///     .node("publish", async |_cx, s| Ok(s))
    ///     .entry("write")
    ///     .edge("write", "check")
    ///     .edge("check", "publish")
    ///     .build()?;
    /// let names: Vec<_> = graph.node_names().map(ToString::to_string).collect();
    /// assert_eq!(names, ["write", "check/split", "check/lint", "check/facts", "publish"]);
    /// # Ok::<(), ferrata_core::graph::GraphError>(())
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "a lens is made for the call")]
    pub fn subgraph<P: State>(mut self, name: impl Into<String>, graph: &Graph<P>, lens: Lens<S, P>) -> Self {
        let name = name.into();
        let outline = under(&name, graph.outline());
        self.report_lost_settings(&name, graph, &outline);
        let path = format!("{name}/");
        let nodes = graph.behaviours().iter().map(|own| lens.behaviour(own, graph.schema(), &path)).collect();
        let holds = graph.predicates().iter().map(|holds| holds.as_ref().map(|holds| lens.predicate(holds)));
        let (predicates, edges_before) = (holds.collect(), self.outline.edges.len());
        let (channels, prefix) = (lens.channels(graph.schema()), lens.prefix().map(str::to_owned));
        self.subgraphs.push(EmbeddedGraph {
            name: name.clone(),
            edges_before,
            outline,
            nodes,
            predicates,
            channels,
            prefix,
        });
        self.calls += 1;
        self.push(name, Arc::new(FnNode(gather)))
    }

    /// Declares the channels of the subgraphs' lenses.
    pub(super) fn declare_channels(&mut self) {
        for subgraph in &self.subgraphs {
            for ChannelSpec { name, reducer, secret, .. } in &subgraph.channels {
                let schema = &self.outline.schema;
                if !schema.declares(name) {
                    self.outline.schema = schema.with_channel(name.clone(), reducer.clone());
                } else if schema.reducer(name) != reducer {
                    let message = format!(
                        "its channel `{name}` has the reducer `{reducer}`, and `{}` in this graph; give both the same reducer, or its lens \
                         another prefix",
                        schema.reducer(name)
                    );
                    self.outline.issues.push(GraphIssue::node(&subgraph.name, message));
                }
                if *secret {
                    self.outline.schema = self.outline.schema.with_secret(name.clone());
                }
            }
        }
    }

    /// Reports subgraphs whose key prefixes overlap, because a change of one subgraph's state would remove keys of the other subgraph.
    pub(super) fn check_prefixes(&mut self) {
        let named = |sub: &EmbeddedGraph<S>| sub.prefix.clone().map(|prefix| (prefix, sub.name.clone()));
        let mut prefixes: Vec<(String, String)> = self.subgraphs.iter().filter_map(named).collect();
        // In sorted order, all strings with a prefix directly follow the prefix.
        prefixes.sort();
        let mut around: Vec<&(String, String)> = Vec::new();
        for inner in &prefixes {
            while around.pop_if(|outer| !inner.0.starts_with(&outer.0)).is_some() {}
            if let Some(outer) = around.iter().rev().find(|outer| outer.0 != inner.0) {
                let message = format!(
                    "its keys `{}` overlap with the keys `{}` of the subgraph `{}`; choose prefixes such that neither begins with the other",
                    inner.0, outer.0, outer.1
                );
                self.outline.issues.push(GraphIssue::node(&inner.1, message));
            }
            around.push(inner);
        }
    }

    /// Reports settings of the graph that would be lost if the graph became a part of this graph.
    fn report_lost_settings<P: State>(&mut self, name: &str, graph: &Graph<P>, outline: &GraphOutline) {
        let mut issue = |message: String| self.outline.issues.push(GraphIssue::node(name, message));
        for (set, what) in [
            (outline.deadline.is_some(), "deadline"),
            (outline.concurrency.is_some(), "concurrency"),
            (outline.max_steps.is_some(), "max_steps"),
            (outline.unlimited, "unlimited_steps"),
            (outline.max_replans_total.is_some(), "max_replans_total"),
        ] {
            if set {
                issue(format!(
                    "its graph sets `{what}`, which applies to a whole run; set it on this graph, or run the subgraph as a child"
                ));
            }
        }
        if !graph.migrations().is_empty() {
            issue(
                "its graph migrates its state, which is part of the state of this graph; migrate the channels of this graph".into(),
            );
        }
        for node in &outline.nodes {
            // An invalid name is already reported at its declaration.
            if let (Err(error), Ok(_)) = (NodeName::new(&node.name), NodeName::new(name)) {
                self.outline.issues.push(GraphIssue::node(&node.name, error.message()));
            }
        }
    }
}

/// The work of the extra node where the branches of a subgraph meet. If exactly one branch has ended at it, the node passes the output of this branch
/// to its targets.
async fn gather<S: State>(cx: NodeContext, _state: Draft<S>) -> Result<Update<S>, NodeError> {
    Ok(match cx.inputs() {
        [one] => match &one.output {
            Some(output) => Update::none().with_output(output),
            None => Update::none(),
        },
        _ => Update::none(),
    })
}
