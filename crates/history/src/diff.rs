//! Computes the difference between two states.

use std::fmt;

use json_patch::{PatchOperation, diff};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::state::{HIDDEN, Secrets};

/// An ordered list of changes that turns one state into another. Each change names a value by a JSON pointer (RFC 6901). The JSON form is a JSON
/// patch (RFC 6902) whose operations also contain the previous value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
#[non_exhaustive]
pub struct Diff {
    /// The changes, in the order in which they apply.
    pub changes: Vec<Change>,
}

/// A change of one value.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// Adds a value.
    Add {
        /// The JSON pointer to the value.
        path: String,
        /// The new value.
        value: Value,
    },
    /// Replaces a value.
    Replace {
        /// The JSON pointer to the value.
        path: String,
        /// The new value.
        value: Value,
        /// The previous value.
        before: Value,
    },
    /// Removes a value.
    Remove {
        /// The JSON pointer to the value.
        path: String,
        /// The previous value.
        before: Value,
    },
}

impl Diff {
    /// Returns the changes that turn `from` into `to`.
    pub fn between(from: &Value, to: &Value) -> Self {
        let mut now = from.clone();
        let mut changes = Vec::new();
        for operation in diff(from, to).0 {
            let before = |now: &Value, path: &str| now.pointer(path).cloned().unwrap_or(Value::Null);
            let change = match &operation {
                PatchOperation::Add(add) => {
                    Change::Add { path: add.path.to_string(), value: add.value.clone() }
                }
                PatchOperation::Replace(replace) => {
                    let path = replace.path.to_string();
                    let before = before(&now, &path);
                    Change::Replace { path, value: replace.value.clone(), before }
                }
                PatchOperation::Remove(remove) => {
                    let path = remove.path.to_string();
                    let before = before(&now, &path);
                    Change::Remove { path, before }
                }
                // A diff uses only these three operations.
                _ => continue,
            };
            // An operation that was just computed for this value always applies.
            let _ = json_patch::patch(&mut now, std::slice::from_ref(&operation));
            changes.push(change);
        }
        Self { changes }
    }

    /// Returns the changes that turn `from` into `to`, without secret values. If a secret channel differs, the change contains [`HIDDEN`] in place of
    /// the values.
    pub fn redacted(from: &Value, to: &Value, secrets: &Secrets) -> Self {
        let open = |state: &Value| {
            let mut state = state.clone();
            if let Value::Object(channels) = &mut state {
                channels.retain(|name, _| !secrets.contains(name));
            }
            state
        };
        let mut found = Self::between(&open(from), &open(to));
        let differs = secrets.iter().filter_map(|name| {
            let path = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            let hidden = || Value::from(HIDDEN);
            match (from.get(name), to.get(name)) {
                (None, Some(_)) => Some(Change::Add { path, value: hidden() }),
                (Some(_), None) => Some(Change::Remove { path, before: hidden() }),
                (before, value) if before != value => {
                    Some(Change::Replace { path, value: hidden(), before: hidden() })
                }
                _ => None,
            }
        });
        found.changes.extend(differs);
        found
    }

    /// Returns whether the states are equal.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Applies the changes to `value`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the changes do not fit the value. The value then stays unchanged.
    pub fn apply(&self, value: &mut Value) -> Result<()> {
        let invalid = |source: serde_json::Error| {
            Error::new(ErrorKind::Invalid, "the differences are not a JSON patch").with_source(source)
        };
        let patch = serde_json::to_value(self).and_then(serde_json::from_value::<json_patch::Patch>);
        json_patch::patch(value, &patch.map_err(invalid)?).map_err(|source| {
            Error::new(ErrorKind::Invalid, "cannot apply the differences to the state").with_source(source)
        })
    }
}

impl fmt::Debug for Change {
    /// Formats only the operation and the channel, and omits payloads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, path) = match self {
            Self::Add { path, .. } => ("Add", path),
            Self::Replace { path, .. } => ("Replace", path),
            Self::Remove { path, .. } => ("Remove", path),
        };
        f.debug_tuple(name).field(&path.split('/').nth(1).unwrap_or_default()).finish_non_exhaustive()
    }
}
