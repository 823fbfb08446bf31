//! What a routing function returns: which of its node's edges fire, and with which items.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, Visit};
use crate::state::strict;

/// Which nodes run next, chosen by a routing function among the targets declared with it.
///
/// A name, an array or list of names, or an optional name is a route as it is. Naming a target twice fires its edge once.
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

/// One target, with items or without.
pub(crate) enum RoutePart {
    /// The edge fires once.
    To(String),
    /// The edge fires once for each item.
    Each(String, Result<Vec<Arc<RawValue>>>),
    /// The edge fires once, and the run goes back on purpose, for this reason.
    Revisit(String, String),
}

impl Route {
    /// Fires the edge to one node.
    pub fn to(node: impl Into<String>) -> Self {
        Self { parts: vec![RoutePart::To(node.into())] }
    }

    /// Fires the edges to several nodes, which then run side by side.
    pub fn all(nodes: impl IntoIterator<Item: Into<String>>) -> Self {
        Self { parts: nodes.into_iter().map(|node| RoutePart::To(node.into())).collect() }
    }

    /// Fires no edge: unless another edge of the node fires, the branch ends here.
    pub fn none() -> Self {
        Self::default()
    }

    /// Fires the edge to one node once for each item: one activation per item, side by side.
    ///
    /// Items are stored as JSON. Without any item nothing fires, so that what follows the node does not run on this account;
    /// route past it if it should.
    ///
    /// # Errors
    ///
    /// None here. An item that JSON cannot hold is reported when the route is evaluated: the activation fails with
    /// [`ErrorKind::Invalid`], naming the node, the item and the place in it.
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

    /// Fires the edge to one node, as [`to`](Self::to) does, and says that the run goes back to it on purpose, and why: what was
    /// tried does not work out, and is planned anew.
    ///
    /// Such replans are counted, per node and for the run, and their reasons are kept in the log, up to 500 bytes of each. A run
    /// that goes back to a node more often than it [allows](crate::graph::GraphBuilder::max_replans), twice unless set, fails
    /// with [`FailureKind::Replan`](crate::record::FailureKind::Replan) instead, and the failure tells the whole history. It
    /// counts whether or not the node ran before. To go another way at the limit, ask
    /// [`RouteContext::replans`] first.
    ///
    /// If the edge fires anyway, on account of another part of the route, it still fires once, and the reasons are joined.
    pub fn revisit(node: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { parts: vec![RoutePart::Revisit(node.into(), reason.into())] }
    }

    /// Fires what both routes fire.
    pub fn and(mut self, other: impl Into<Self>) -> Self {
        self.parts.extend(other.into().parts);
        self
    }

    /// Whether no edge fires, however many items it names.
    pub(crate) fn fires_nothing(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, RoutePart::Each(_, Ok(items)) if items.is_empty()))
    }

    /// Returns the same route with other names for its targets.
    pub(crate) fn renamed(self, rename: impl Fn(String) -> String) -> Self {
        let rename = |part| match part {
            RoutePart::To(node) => RoutePart::To(rename(node)),
            RoutePart::Each(node, items) => RoutePart::Each(rename(node), items),
            RoutePart::Revisit(node, reason) => RoutePart::Revisit(rename(node), reason),
        };
        Self { parts: self.parts.into_iter().map(rename).collect() }
    }

    /// Returns the same route with an error in the place of the items for any of these targets.
    pub(crate) fn without_items_for(mut self, is_refused: impl Fn(&str) -> bool, why: &str) -> Self {
        for part in &mut self.parts {
            if let RoutePart::Each(node, items) = part
                && is_refused(node)
            {
                *items = Err(Error::new(ErrorKind::Invalid, format!("items for `{node}`: {why}")));
            }
        }
        self
    }

    /// Returns what the route says, part by part.
    pub(crate) fn into_parts(self) -> Vec<RoutePart> {
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
    /// Shows targets and how many items each has, never an item or a reason.
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

/// What a routing function is told besides the state.
///
/// Routes may be evaluated again, after a write conflict and when a stored run is verified. A function that depends on
/// anything but the state and this is not a route.
#[derive(Clone, Copy, Debug)]
pub struct RouteContext<'a> {
    node: &'a NodeName,
    visit: Visit,
    output: Option<&'a RawValue>,
    replans: &'a [(NodeName, u32)],
    /// How many visits before this one ended a conversation without a message.
    left: u32,
    /// Whether this one does.
    is_left: bool,
    /// How many bytes of the node's name are the path of the graph whose route is asked.
    within: usize,
    /// The entries of that graph's subgraphs.
    entries: Option<&'a HashMap<String, String>>,
}

impl<'a> RouteContext<'a> {
    /// Describes the activation that has just succeeded.
    pub(crate) const fn new(node: &'a NodeName, visit: Visit, output: Option<&'a RawValue>) -> Self {
        Self { node, visit, output, replans: &[], left: 0, is_left: false, within: 0, entries: None }
    }

    /// Adds how often the run went back to each node on purpose.
    pub(crate) const fn with_replans(self, replans: &'a [(NodeName, u32)]) -> Self {
        Self { replans, ..self }
    }

    /// Adds how many visits before this one ended a conversation without a message, and whether this one does.
    pub(crate) const fn with_left(self, left: u32, is_left: bool) -> Self {
        Self { left, is_left, ..self }
    }

    /// Says that the route asked is of a graph so many bytes further down the path of the node.
    pub(crate) const fn further(self, bytes: usize) -> Self {
        Self { within: self.within + bytes, ..self }
    }

    /// Adds the entry of each subgraph of the graph whose route is asked: who goes back to a subgraph goes back to that.
    pub(crate) fn with_entries<'b>(&'b self, entries: &'b HashMap<String, String>) -> RouteContext<'b> {
        RouteContext { entries: Some(entries), ..*self }
    }

    /// Whether the activation ended a conversation without a message.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left
    }

    /// Returns how many messages a conversation has heard, over the whole run.
    pub(crate) fn heard(&self) -> u32 {
        self.visit.get().saturating_sub(self.left.saturating_add(u32::from(self.is_left())))
    }

    /// Returns the name of the node that has just succeeded; of a node in a subgraph, its path.
    pub const fn node(&self) -> &'a NodeName {
        self.node
    }

    /// Returns which visit of the node it was; the first is 1.
    pub const fn visit(&self) -> Visit {
        self.visit
    }

    /// Returns how often the run has gone back to a node by [`Route::revisit`] so far; 0 for a name that no node has. A route of a
    /// subgraph names the nodes of its own graph.
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

    /// Returns the output that the node sends along its edges; `None` if it sends none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if there is an output and it is not a `T`.
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
