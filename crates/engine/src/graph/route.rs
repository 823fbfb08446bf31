//! Routes, which name the edges that a routing function fires, with their items.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, Visit};
use crate::state::strict;

/// The result of a routing function: the next nodes, which the function chooses among its declared targets.
///
/// You can convert a name, an array or list of names, or an optional name into a route. If a route names a target twice, the edge to it fires once.
///
/// # Examples
///
/// ```
/// use ferrata_core::graph::Route;
///
/// let one: Route = "publish".into();
/// let several: Route = ["lint", "facts"].into();
/// let none: Route = None::<&str>.into();
/// let one_activation_per_item = Route::each("fetch", ["a.html", "b.html"]).and("report");
/// let back = Route::revisit("plan", "the tests need a database that is not there").and("notify");
/// ```
#[derive(Default)]
#[must_use]
pub struct Route {
    parts: Vec<RoutePart>,
}

/// One target of a route, with or without items.
#[doc(hidden)]
pub enum RoutePart {
    /// The edge to this node fires once.
    To(String),
    /// The edge to this node fires once for each item.
    Each(String, Result<Vec<Arc<RawValue>>>),
    /// The edge to this node fires once as a replan (a deliberate return), with this reason.
    Revisit(String, String),
}

impl Route {
    /// Returns a route that fires the edge to one node.
    pub fn to(node: impl Into<String>) -> Self {
        Self { parts: vec![RoutePart::To(node.into())] }
    }

    /// Returns a route that fires the edges to several nodes, which then run concurrently.
    pub fn all(nodes: impl IntoIterator<Item: Into<String>>) -> Self {
        Self { parts: nodes.into_iter().map(|node| RoutePart::To(node.into())).collect() }
    }

    /// Returns a route that fires no edge. The branch then ends at the node, unless another edge of the node fires.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns a route that fires the edge to one node once for each item. Each item starts an activation of its own, and these activations run
    /// concurrently.
    ///
    /// Items are stored as JSON. If there are no items, the edge does not fire, so neither the target nor the nodes after it run. To run the nodes
    /// after the target in this case, let the route choose one of them instead.
    ///
    /// # Errors
    ///
    /// This call returns no error. If an item cannot be expressed in JSON, the activation fails with [`ErrorKind::Invalid`] when the runtime
    /// evaluates the route. The error contains the node, the item and the path to the invalid value in it.
    pub fn each(node: impl Into<String>, items: impl IntoIterator<Item: Serialize>) -> Self {
        let node = node.into();
        let encode = |(at, item)| {
            strict::to_raw_value(&item).map(Arc::from).map_err(|error| {
                Error::new(error.kind(), format!("item {at} for `{node}`: {}", error.message()))
            })
        };
        let items = items.into_iter().enumerate().map(encode).collect();
        Self { parts: vec![RoutePart::Each(node, items)] }
    }

    /// Returns a route that fires the edge to one node, like [`to`](Self::to), and marks this as a replan: a deliberate return to an earlier node,
    /// with a reason. Use it if the earlier result was not good enough and the run must try again.
    ///
    /// The run counts replans for each node and in total, and stores at most 500 bytes of each reason in the log. If a run returns to a node more
    /// often than the limit of the node (by default 2), the run fails with [`FailureKind::Replan`](crate::record::FailureKind::Replan), and the
    /// failure lists the replans. Only replans are counted, and not other activations of the node. To choose another target when the limit is
    /// reached, check [`RouteContext::replans`] in the routing function.
    ///
    /// If another part of the route fires the same edge, the edge fires only once, and the reasons are joined.
    pub fn revisit(node: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { parts: vec![RoutePart::Revisit(node.into(), reason.into())] }
    }

    /// Returns a route that fires the edges of both routes.
    pub fn and(mut self, other: impl Into<Self>) -> Self {
        self.parts.extend(other.into().parts);
        self
    }

    /// Returns whether the route fires no edge, because it names no target or all its targets have no items.
    #[doc(hidden)]
    pub fn fires_nothing(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, RoutePart::Each(_, Ok(items)) if items.is_empty()))
    }

    /// Returns the same route with renamed targets.
    #[doc(hidden)]
    pub fn renamed(self, rename: impl Fn(String) -> String) -> Self {
        let rename = |part| match part {
            RoutePart::To(node) => RoutePart::To(rename(node)),
            RoutePart::Each(node, items) => RoutePart::Each(rename(node), items),
            RoutePart::Revisit(node, reason) => RoutePart::Revisit(rename(node), reason),
        };
        Self { parts: self.parts.into_iter().map(rename).collect() }
    }

    /// Returns the same route, in which the items of refused targets are replaced by an error.
    #[doc(hidden)]
    pub fn without_items_for(mut self, is_refused: impl Fn(&str) -> bool, why: &str) -> Self {
        for part in &mut self.parts {
            if let RoutePart::Each(node, items) = part
                && is_refused(node)
            {
                *items = Err(Error::new(ErrorKind::Invalid, format!("items for `{node}`: {why}")));
            }
        }
        self
    }

    /// Returns the parts of the route.
    #[doc(hidden)]
    pub fn into_parts(self) -> Vec<RoutePart> {
        self.parts
    }
}

impl From<&str> for Route {
    fn from(node: &str) -> Self {
        Self::to(node)
    }
}

impl From<String> for Route {
    fn from(node: String) -> Self {
        Self::to(node)
    }
}

impl<T: Into<String>, const N: usize> From<[T; N]> for Route {
    fn from(nodes: [T; N]) -> Self {
        Self::all(nodes)
    }
}

impl<T: Into<String>> From<Vec<T>> for Route {
    fn from(nodes: Vec<T>) -> Self {
        Self::all(nodes)
    }
}

impl<T: Into<Self>> From<Option<T>> for Route {
    fn from(route: Option<T>) -> Self {
        route.map_or_else(Self::none, Into::into)
    }
}

impl fmt::Debug for Route {
    /// Shows targets and their numbers of items, without items or reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.parts).finish()
    }
}

impl fmt::Debug for RoutePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To(node) => f.write_str(node),
            Self::Revisit(node, _) => write!(f, "{node} again"),
            Self::Each(node, Ok(items)) => write!(f, "{node} x {}", items.len()),
            Self::Each(node, Err(error)) => write!(f, "{node}: {error}"),
        }
    }
}

/// The second argument of a routing function, with information that is not in the state.
///
/// The runtime may call a routing function again for the same activation, after a write conflict and when a stored run is verified. The function must
/// therefore depend only on the state and this context.
#[derive(Clone, Copy, Debug)]
pub struct RouteContext<'a> {
    node: &'a NodeName,
    visit: Visit,
    output: Option<&'a RawValue>,
    replans: &'a [(NodeName, u32)],
    /// The number of earlier visits that ended a conversation without a message.
    left: u32,
    /// Whether this visit ends a conversation without a message.
    is_left: bool,
    /// The length in bytes of the path of the route's graph within the node's name.
    within: usize,
    /// The entry nodes of the subgraphs of the route's graph.
    entries: Option<&'a HashMap<String, String>>,
}

impl<'a> RouteContext<'a> {
    /// Creates the context for an activation that has just succeeded.
    #[doc(hidden)]
    pub const fn new(node: &'a NodeName, visit: Visit, output: Option<&'a RawValue>) -> Self {
        Self { node, visit, output, replans: &[], left: 0, is_left: false, within: 0, entries: None }
    }

    /// Adds the number of replans to each node.
    #[doc(hidden)]
    pub const fn with_replans(self, replans: &'a [(NodeName, u32)]) -> Self {
        Self { replans, ..self }
    }

    /// Adds the number of earlier visits that ended a conversation without a message, and whether this visit is such a visit.
    #[doc(hidden)]
    pub const fn with_left(self, left: u32, is_left: bool) -> Self {
        Self { left, is_left, ..self }
    }

    /// Returns the context for the routing function of a subgraph: the first `bytes` bytes of the node's path are omitted.
    #[doc(hidden)]
    pub const fn further(self, bytes: usize) -> Self {
        Self { within: self.within + bytes, ..self }
    }

    /// Adds the entry node of each subgraph of the route's graph. A replan to a subgraph is a replan to its entry node.
    #[doc(hidden)]
    pub fn with_entries<'b>(&'b self, entries: &'b HashMap<String, String>) -> RouteContext<'b> {
        RouteContext { entries: Some(entries), ..*self }
    }

    /// Returns whether the activation ended a conversation without a message.
    #[doc(hidden)]
    pub fn is_left(&self) -> bool {
        self.is_left
    }

    /// Returns the number of messages of a conversation, over the whole run.
    #[doc(hidden)]
    pub fn message_count(&self) -> u32 {
        self.visit.get().saturating_sub(self.left.saturating_add(u32::from(self.is_left())))
    }

    /// Returns the name of the node that has just succeeded. For a node in a subgraph, the name is its path.
    pub const fn node(&self) -> &'a NodeName {
        self.node
    }

    /// Returns the visit of the node, counted from 1.
    pub const fn visit(&self) -> Visit {
        self.visit
    }

    /// Returns how often the run has returned to a node by [`Route::revisit`]. Returns 0 for an unknown name. A routing function of a subgraph uses
    /// the node names of its own graph.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::{Route, RouteContext};
    ///
    /// fn after_review(cx: &RouteContext<'_>, problem: Option<String>) -> Route {
    ///     match problem {
    ///         None => "publish".into(),
    ///         Some(problem) if cx.replans("plan") < 2 => Route::revisit("plan", problem),
    ///         Some(_) => "ask-a-person".into(),
    ///     }
    /// }
    /// # let _ = after_review;
    /// ```
    pub fn replans(&self, node: &str) -> u32 {
        let path = self.node.as_str().get(..self.within).unwrap_or_default();
        let node = self.entries.and_then(|entries| entries.get(node)).map_or(node, |entry| entry);
        let is_it = |name: &NodeName| name.as_str().strip_prefix(path) == Some(node);
        self.replans.iter().find(|(name, _)| is_it(name)).map_or(0, |(_, count)| *count)
    }

    /// Decodes the output that the node sends along its edges. Returns `None` if the node sends no output.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the output is not of type `T`.
    pub fn output<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let Some(output) = self.output else { return Ok(None) };
        serde_json::from_str(output.get()).map(Some).map_err(|source| {
            let message = format!("the output is not of type {}", std::any::type_name::<T>());
            Error::new(ErrorKind::Invalid, message).with_node(self.node).with_source(source)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(route: impl Into<Route>) -> String {
        format!("{:?}", route.into())
    }

    #[test]
    fn names_lists_and_options_are_routes() {
        assert_eq!(shown("a"), "[a]");
        assert_eq!(shown("a".to_owned()), "[a]");
        assert_eq!(shown(["a", "b"]), "[a, b]");
        assert_eq!(shown(vec!["a".to_owned()]), "[a]");
        assert_eq!(shown(Some("a")), "[a]");
        assert_eq!(shown(None::<Vec<&str>>), "[]");
        assert_eq!(shown(Route::none().and("a").and(Route::each("b", 0..3)).and(["c"])), "[a, b x 3, c]");
        assert_eq!(shown(Route::revisit("a", "private").and("b")), "[a again, b]");
    }

    #[test]
    fn items_are_held_as_json() {
        let mut parts = Route::each("b", [("x", 1), ("y", 2)]).into_parts();
        let Some(RoutePart::Each(_, Ok(items))) = parts.pop() else { panic!("{parts:?}") };
        assert_eq!(items.iter().map(|item| item.get()).collect::<Vec<_>>(), [r#"["x",1]"#, r#"["y",2]"#]);
    }

    #[test]
    fn an_item_that_json_cannot_hold_is_named() {
        let mut parts = Route::each("b", [0.5, f64::NAN]).into_parts();
        let Some(RoutePart::Each(_, Err(error))) = parts.pop() else { panic!("{parts:?}") };
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().starts_with("item 1 for `b`: value: NaN cannot be stored"), "{error}");
    }

    #[test]
    fn a_route_reads_the_output_of_its_node() {
        let (node, output) = (NodeName::new("a").unwrap(), strict::to_raw_value(&7).unwrap());
        let cx = RouteContext::new(&node, Visit::new(2), Some(&output));
        assert_eq!(cx.output::<u32>().unwrap(), Some(7));
        let error = cx.output::<String>().unwrap_err();
        assert_eq!(error.to_string(), "node a: the output is not of type alloc::string::String");
        assert_eq!(RouteContext::new(&node, Visit::new(2), None).output::<u32>().unwrap(), None);
    }
}
