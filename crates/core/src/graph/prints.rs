//! What each node of a graph is like, shared by its runs, and encoded once for all of them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::OnceLock;

use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::id::{Fingerprint, NodeName};

/// The fingerprint of each node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prints {
    by_name: BTreeMap<NodeName, Fingerprint>,
    /// As JSON: every run begins with a record that holds it. `None` for what was read, which is not written again.
    text: Option<OnceLock<Box<RawValue>>>,
}

impl Prints {
    /// Those of a graph that runs start from.
    pub(crate) fn of_graph(by_name: BTreeMap<NodeName, Fingerprint>) -> Self {
        Self { by_name, text: Some(OnceLock::new()) }
    }
}

impl Deref for Prints {
    type Target = BTreeMap<NodeName, Fingerprint>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl PartialEq for Prints {
    fn eq(&self, other: &Self) -> bool {
        self.by_name == other.by_name
    }
}

impl Eq for Prints {}

impl From<BTreeMap<NodeName, Fingerprint>> for Prints {
    fn from(by_name: BTreeMap<NodeName, Fingerprint>) -> Self {
        Self { by_name, text: None }
    }
}

impl Serialize for Prints {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(text) = &self.text else { return self.by_name.serialize(serializer) };
        if let Some(text) = text.get() {
            return text.serialize(serializer);
        }
        let made = serde_json::value::to_raw_value(&self.by_name).map_err(S::Error::custom)?;
        text.get_or_init(|| made).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Prints {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_once_is_what_is_encoded_each_time() {
        let by_name: BTreeMap<_, _> =
            ["b", "a"].map(|name| (NodeName::new(name).unwrap(), Fingerprint::of(name.as_bytes()))).into();
        let (kept, read) = (Prints::of_graph(by_name.clone()), Prints::from(by_name));
        let text = serde_json::to_string(&read).unwrap();
        assert_eq!([(); 2].map(|()| serde_json::to_string(&kept).unwrap()), [text.clone(), text.clone()]);
        assert_eq!(serde_json::from_str::<Prints>(&text).unwrap(), kept);
    }
}
