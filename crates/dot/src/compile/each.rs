//! A branch for each item of a list: which items there are, and how the branches of one edge are told apart.

use std::borrow::Cow;

use ferrata_core::state::{Context, ContextUpdate};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::plan::NodeTargets;

/// How many items an edge takes: each is a branch of its own, in the log and in the context that they meet in.
const MOST: usize = 1000;

/// The keys by which a branch knows its item, and the place of that in the list.
pub(super) const ITEM: &str = "item";
pub(super) const INDEX: &str = "item_index";

/// An item on its way to the node that its branch begins with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Item {
    pub(super) index: usize,
    pub(super) item: Json,
}

/// Returns the name of the node that a branch begins with, and the place of its item: `work:2`. No id has a colon.
pub(super) fn first(node: &str, index: usize) -> String {
    format!("{node}:{index}")
}

/// Takes such a name apart.
pub(super) fn parts(first: &str) -> (&str, usize) {
    match first.split_once(':') {
        Some((node, index)) => (node, index.parse().unwrap_or(0)),
        None => (first, 0),
    }
}

/// Returns the key under which the context holds how many items the edges of a fork have, until its branches have met.
pub(super) fn key(join: &str) -> String {
    format!("internal.items.{join}")
}

/// Returns what the branches of a join begin with, one for each item.
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

/// Forgets how many items there were.
pub(super) fn forget(update: ContextUpdate, join: &str) -> ContextUpdate {
    update.remove(key(join))
}

impl NodeTargets {
    /// Returns the items of an edge: those of the list that the context holds under the edge's key, if it has one.
    ///
    /// # Errors
    ///
    /// That the context holds no list there, or one that is too long.
    fn list<'a>(&self, edge: usize, context: &'a Context) -> Result<Option<&'a [Json]>, String> {
        let Some(key) = self.each.get(edge).and_then(Option::as_deref) else { return Ok(None) };
        let key = key.strip_prefix("context.").unwrap_or(key);
        let to = &self.edges[edge].to;
        match context.get_value(key).and_then(Json::as_array) {
            Some(items) if items.len() > MOST => Err(format!(
                "`{key}` has {} items for `{to}`, more than {MOST}; give it in parts",
                items.len()
            )),
            Some(items) => Ok(Some(items)),
            None => Err(format!(
                "`{key}` of the context is no list of items for `{to}`; have a node set it to one"
            )),
        }
    }

    /// Returns how many items the edges have that take some, by the nodes that they lead to, and how many branches there are.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
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

    /// Returns the branches of an edge, each by its item; `None` if the edge begins a single one.
    pub(super) fn branches(&self, edge: usize, context: &Context) -> Option<Vec<Item>> {
        let items = self.list(edge, context).ok().flatten()?;
        Some(items.iter().cloned().enumerate().map(|(index, item)| Item { index, item }).collect())
    }
}
