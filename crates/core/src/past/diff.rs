//! What differs between two states.

use json_patch::{PatchOperation, diff};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};

/// What turns one state into another: changes in order, each at a JSON pointer (RFC 6901), as a JSON patch (RFC 6902) whose
/// operations also say what was there before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Diff {
    /// The changes, in the order in which they are made.
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// Something is there that was not.
    Add {
        /// Where.
        path: String,
        /// What.
        value: Value,
    },
    /// Something else is there.
    Replace {
        /// Where.
        path: String,
        /// What is there.
        value: Value,
        /// What was there.
        before: Value,
    },
    /// Something is gone.
    Remove {
        /// Where.
        path: String,
        /// What was there.
        before: Value,
    },
}

impl Diff {
    /// Finds what turns `from` into `to`.
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
                // A difference is expressed in these three.
                _ => continue,
            };
            // What was just found to turn one into the other can be applied.
            let _ = json_patch::patch(&mut now, std::slice::from_ref(&operation));
            changes.push(change);
        }
        Self { changes }
    }

    /// Tells whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Makes the changes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if they do not fit the value, which is then as it was.
    ///
    /// <!-- held by: past::a_difference_names_each_change_and_makes_it -->
    pub fn apply(&self, value: &mut Value) -> Result<()> {
        let invalid = |source: serde_json::Error| {
            Error::new(ErrorKind::Invalid, "the differences are no JSON patch").with_source(source)
        };
        let patch = serde_json::to_value(self).and_then(serde_json::from_value::<json_patch::Patch>);
        json_patch::patch(value, &patch.map_err(invalid)?).map_err(|source| {
            Error::new(ErrorKind::Invalid, "the differences do not fit the state").with_source(source)
        })
    }
}
