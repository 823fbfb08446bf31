//! Secret channels, and the placeholder that views show instead of their values.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The placeholder that views show instead of a secret value.
pub const HIDDEN: &str = "…";

/// The names of secret channels. `#[state(secret)]` on a field marks a channel as secret.
///
/// The log of a run contains the names, so tools without the user's types know which channels are secret. A run never removes a name: after a process
/// that marks the channel has started or claimed the run, the channel is secret at every position of the log.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::{HIDDEN, Secrets};
/// use serde_json::json;
///
/// let secrets: Secrets = ["token".to_owned()].into_iter().collect();
/// let mut state = json!({ "token": { "bearer": "4f0c" }, "tries": 2 });
/// secrets.hide(&mut state);
/// assert_eq!(state, json!({ "token": HIDDEN, "tries": 2 }));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(BTreeSet<String>);

impl Secrets {
    /// Returns whether the set is empty, so that no channel is secret.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the channel is secret.
    pub fn contains(&self, channel: &str) -> bool {
        self.0.contains(channel)
    }

    /// Lists the names in sorted order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Replaces the value of each secret channel of a state by [`HIDDEN`].
    pub fn hide(&self, state: &mut Value) {
        let Value::Object(channels) = state else { return };
        for name in self.iter() {
            if let Some(value) = channels.get_mut(name) {
                *value = HIDDEN.into();
            }
        }
    }

    /// Adds the names of another set.
    #[doc(hidden)]
    pub fn add(&mut self, others: &Self) {
        self.0
            .extend(others.iter().filter(|name| !self.contains(name)).map(str::to_owned).collect::<Vec<_>>());
    }

    /// Returns the names that another set lacks.
    pub(crate) fn without(&self, known: &Self) -> Self {
        self.0.difference(&known.0).cloned().collect()
    }
}

impl FromIterator<String> for Secrets {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}
