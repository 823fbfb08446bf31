//! Edges that begin one branch for each item of a list: the items, and the names of the branches.

use std::borrow::Cow;

use ferrata_core::state::{Context, ContextUpdate};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::plan::NodeTargets;

/// Maximum number of items per edge. Each item has a branch of its own, in the log and in the context of the node where the branches meet.
const MOST: usize = 1000;

/// The context keys of a branch's item and of the position of the item in the list.
pub(super) const ITEM: &str = "item";
pub(super) const INDEX: &str = "item_index";

/// An item that is sent to the first node of its branch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BranchItem {
    pub(super) index: usize,
    pub(super) item: Json,
}

/// Returns the name of a branch's first node with the position of its item, for example `work:2`. An id never contains a colon.
pub(super) fn first(node: &str, index: usize) -> String {
    format!("{node}:{index}")
}

/// Splits such a name into the node and the position.
pub(super) fn parts(first: &str) -> (&str, usize) {
    match first.split_once(':') {
        Some((node, index)) => (node, index.parse().unwrap_or(0)),
        None => (first, 0),
    }
}

/// Returns the context key of the number of items. The value stays until the branches have met.
pub(super) fn key(join: &str) -> String {
    format!("internal.items.{join}")
}

/// Returns the first nodes of a join's branches. A node whose edge has a list occurs once for each item.
pub(super) fn all<'a>(firsts: &'a [String], context: &Context, join: &str) -> Vec<Cow<'a, str>> {
    let counts = context.get_value(&key(join));
    let count = |node: &str| usize::try_from(counts?.get(node)?.as_u64()?).ok();
    let mut all = Vec::with_capacity(firsts.len());
    for node in firsts {
        match count(node) {
            Some(count) => all.extend((0..count).map(|index| Cow::Owned(first(node, index)))),
            None => all.push(Cow::Borrowed(&**node)),
        }
    }
    all
}

/// Adds to an update the removal of the number of items.
pub(super) fn forget(update: ContextUpdate, join: &str) -> ContextUpdate {
    update.remove(key(join))
}

impl NodeTargets {
    /// Returns the items of an edge; `None` if the edge has no list. The attribute of the edge names the context key of the list.
    ///
    /// # Errors
    ///
    /// Returns an error if the context has no list under this key, or if the list is too long.
    fn list<'a>(&self, edge: usize, context: &'a Context) -> Result<Option<&'a [Json]>, String> {
        let Some(key) = self.each.get(edge).and_then(Option::as_deref) else { return Ok(None) };
        let key = key.strip_prefix("context.").unwrap_or(key);
        let to = &self.edges[edge].to;
        match context.get_value(key).and_then(Json::as_array) {
            Some(items) if items.len() > MOST => Err(format!(
                "`{key}` has {} items for `{to}`, and the maximum is {MOST}; split the list",
                items.len()
            )),
            Some(items) => Ok(Some(items)),
            None => Err(format!(
                "the context value `{key}` is not a list, and `{to}` needs one item per branch; let a node set `{key}` to a list"
            )),
        }
    }

    /// Returns the number of items of each edge with a list, by target node, and the number of branches.
    ///
    /// # Errors
    ///
    /// The errors of [`list`](Self::list).
    pub(super) fn items(&self, context: &Context) -> Result<(Map<String, Json>, usize), String> {
        let (mut counts, mut branches) = (Map::new(), 0);
        for (at, edge) in self.edges.iter().enumerate() {
            match self.list(at, context)? {
                Some(items) => {
                    counts.insert(edge.to.clone(), items.len().into());
                    branches += items.len();
                }
                None => branches += 1,
            }
        }
        Ok((counts, branches))
    }

    /// Returns the branches of an edge, one for each item; `None` if the edge begins a single branch.
    pub(super) fn branches(&self, edge: usize, context: &Context) -> Option<Vec<BranchItem>> {
        let items = self.list(edge, context).ok().flatten()?;
        Some(items.iter().cloned().enumerate().map(|(index, item)| BranchItem { index, item }).collect())
    }
}
