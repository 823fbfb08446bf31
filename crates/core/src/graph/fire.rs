//! Computes the edges that fire after a node has succeeded.

use crate::error::{Error, ErrorKind, Result};
use crate::graph::EdgeKind;
use crate::graph::fired::{EdgeToken, FiredEdges};
use crate::graph::node_set::NodeIx;
use crate::graph::plan::{EdgeIx, GraphPlan};
use crate::graph::suggest::closest;
use crate::graph::typed::Graph;
use crate::graph::{Route, RouteContext, RoutePart};
use crate::state::{State, as_stored};

impl<S: State> Graph<S> {
    /// Returns the edges that fire, like [`fire`](Self::fire), for the stored state. If the node has only one edge and this edge always fires, no
    /// function is called.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`fire`](Self::fire).
    pub(crate) fn fires(&self, node: NodeIx, state: &S, cx: &RouteContext<'_>) -> Result<FiredEdges> {
        match self.plan().node(node).sole {
            Some(edge) if self.route_fn(node).is_none() => Ok(FiredEdges::Sole(edge)),
            _ => self.fire(node, &as_stored(state), cx).map(FiredEdges::These),
        }
    }

    /// Returns the edges that fire after `node` succeeded and its update produced `state`. They are in the order of declaration, and for one edge in
    /// the order of the items.
    ///
    /// If the list is empty, the branch ends. After a failure, this function is not used: then only the `OnFailure` edges of the plan fire.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] with the node's name, if its route chose a node outside of its targets, or an item that JSON cannot represent.
    pub(crate) fn fire(&self, node: NodeIx, state: &S, cx: &RouteContext<'_>) -> Result<Vec<EdgeToken>> {
        let plan = self.plan();
        let holds = |edge: &EdgeIx| {
            self.predicates()[edge.as_usize()].as_ref().is_some_and(|predicate| predicate(state))
        };
        let mut fired: Vec<EdgeToken> =
            plan.outgoing(node, EdgeKind::When).filter(holds).map(EdgeToken::once).collect();
        if fired.is_empty() {
            fired.extend(plan.outgoing(node, EdgeKind::Otherwise).map(EdgeToken::once));
        }
        fired.extend(plan.outgoing(node, EdgeKind::Plain).map(EdgeToken::once));
        if let Some(choose) = self.route_fn(node) {
            let routed = follow(plan, node, choose(state, cx));
            fired.extend(routed.map_err(|error| error.with_node(&plan.node(node).name))?);
        }
        // A stable sort, because items must stay in order.
        fired.sort_by_key(|fired| fired.edge);
        Ok(fired)
    }
}

/// Finds the edges that a route chose.
fn follow(plan: &GraphPlan, node: NodeIx, route: Route) -> Result<Vec<EdgeToken>> {
    let find = |name: &str| {
        let edge = plan.find(name).and_then(|to| plan.find_edge(node, to, EdgeKind::Routed));
        edge.ok_or_else(|| stray(plan, node, name))
    };
    let mut fired: Vec<EdgeToken> = Vec::new();
    for part in route.into_parts() {
        match part {
            RoutePart::To(name) => {
                once(&mut fired, find(&name)?);
            }
            RoutePart::Revisit(name, reason) => {
                let before = &mut once(&mut fired, find(&name)?).reason;
                *before = Some(match before.take() {
                    Some(first) => format!("{first}; {reason}").into(),
                    None => reason.into(),
                });
            }
            RoutePart::Each(name, items) => {
                let edge = find(&name)?;
                fired.extend(items?.into_iter().map(|item| EdgeToken {
                    edge,
                    item: Some(item),
                    reason: None,
                }));
            }
        }
    }
    Ok(fired)
}

/// Returns the token (fired edge) without an item for an edge. If the list has none, a token is added.
fn once(fired: &mut Vec<EdgeToken>, edge: EdgeIx) -> &mut EdgeToken {
    let found = fired.iter().position(|fired| fired.edge == edge && fired.item.is_none());
    let at = found.unwrap_or(fired.len());
    if found.is_none() {
        fired.push(EdgeToken::once(edge));
    }
    &mut fired[at]
}

fn stray(plan: &GraphPlan, node: NodeIx, name: &str) -> Error {
    let targets: Vec<&str> = plan
        .outgoing(node, EdgeKind::Routed)
        .map(|edge| plan.node(plan.edge(edge).to).name.as_str())
        .collect();
    let remedy = match closest(name, targets.iter().copied()) {
        Some(other) => format!("did you mean `{other}`?"),
        None => "add it to the targets".into(),
    };
    let listed = targets.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let message = format!(
        "the route chose `{}`, which is not among its targets {listed}; {remedy}",
        name.escape_debug()
    );
    Error::new(ErrorKind::Invalid, message)
}
