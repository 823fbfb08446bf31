//! Data for each node of a graph in the first record of a run. All runs of the graph share this data, and it is encoded only once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::OnceLock;

use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::id::{Fingerprint, NodeName};

/// The fingerprint of each node.
pub(crate) type Prints = ByNode<Fingerprint>;

/// The targets of each node's edges.
pub type EdgeTargets = ByNode<BTreeSet<NodeName>>;

/// A value for each node, by the node's name.
#[derive(Clone, Debug)]
pub struct ByNode<T> {
    by_name: BTreeMap<NodeName, T>,
    /// The data as JSON text, for the first record of every run. `None` if the data was decoded from a log, because it is not written again.
    text: Option<OnceLock<Box<RawValue>>>,
}

impl<T> ByNode<T> {
    /// Creates the data of a graph that runs start from.
    pub(crate) fn of_graph(by_name: BTreeMap<NodeName, T>) -> Self {
        Self { by_name, text: Some(OnceLock::new()) }
    }
}

impl<T> Default for ByNode<T> {
    fn default() -> Self {
        BTreeMap::new().into()
    }
}

impl<T> Deref for ByNode<T> {
    type Target = BTreeMap<NodeName, T>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl<T: PartialEq> PartialEq for ByNode<T> {
    fn eq(&self, other: &Self) -> bool {
        self.by_name == other.by_name
    }
}

impl<T: Eq> Eq for ByNode<T> {}

impl<T> From<BTreeMap<NodeName, T>> for ByNode<T> {
    fn from(by_name: BTreeMap<NodeName, T>) -> Self {
        Self { by_name, text: None }
    }
}

impl<T: Serialize> Serialize for ByNode<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(text) = &self.text else { return self.by_name.serialize(serializer) };
        if let Some(text) = text.get() {
            return text.serialize(serializer);
        }
        let made = serde_json::value::to_raw_value(&self.by_name).map_err(S::Error::custom)?;
        text.get_or_init(|| made).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByNode<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_encoding_equals_fresh_encoding() {
        let by_name: BTreeMap<_, _> =
            ["b", "a"].map(|name| (NodeName::new(name).unwrap(), Fingerprint::of(name.as_bytes()))).into();
        let (kept, read) = (Prints::of_graph(by_name.clone()), Prints::from(by_name));
        let text = serde_json::to_string(&read).unwrap();
        assert_eq!([(); 2].map(|()| serde_json::to_string(&kept).unwrap()), [text.clone(), text.clone()]);
        assert_eq!(serde_json::from_str::<Prints>(&text).unwrap(), kept);
    }
}
