//! Migration of stored state to the current form.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::builder::GraphBuilder;
use super::typed::Graph;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::GraphIssue;
use crate::panics::panic_text;
use crate::state::{Channels, Op, Patch, Reducer, State};

/// A function that converts channels of one version to the next version.
pub(crate) type MigrateFn =
    dyn Fn(&mut Map<String, Value>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

/// The step from one version of the state to the next.
#[derive(Clone)]
pub(crate) struct Migration {
    pub(crate) from: u32,
    pub(crate) step: Arc<MigrateFn>,
}

impl<S: State> GraphBuilder<S> {
    /// Declares how to convert a stored state of version `from` to version `from + 1`. It is for runs that were stored before you raised
    /// `#[state(version = ..)]`. The runtime applies the declared steps in sequence. Each step receives the channels of the state by name and edits
    /// them.
    ///
    /// The store keeps the original state until the run has written a record with the new form.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::graph::Graph;
    /// use ferrata_core::state::Context;
    ///
    /// let graph = Graph::<Context>::builder("review")
    ///     .migrate(1, |channels| {
    ///         if let Some(name) = channels.remove("name") {
    ///             channels.insert("title".into(), name);
    ///         }
    ///         Ok(())
    ///     })
    ///     .node("write", async |_cx, s| Ok(s))
    ///     .entry("write")
    ///     .build()?;
    /// # let _ = graph;
    /// # Ok::<(), ferrata_core::graph::GraphError>(())
    /// ```
    pub fn migrate<F>(mut self, from: u32, step: F) -> Self
    where
        F: Fn(&mut Map<String, Value>) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
            + Send
            + Sync
            + 'static,
    {
        if self.migrations.iter().any(|known| known.from == from) {
            let message = format!("the migration from state version {from} is declared twice; keep one");
            self.outline.issues.push(GraphIssue::graph(message));
        }
        self.migrations.push(Migration { from, step: Arc::new(step) });
        self
    }
}

impl<S: State> Graph<S> {
    /// Returns the channels of a stored run in the current form of the state's type.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::GraphChanged`] with the versions if a newer version of the state type wrote the channels, or if a step is missing or
    /// fails.
    pub(crate) fn migrated(&self, stored: &Channels, version: u32) -> Result<Channels> {
        let wanted = self.schema().version();
        if version == wanted {
            return Ok(stored.clone());
        }
        let refuse = |message: String| Error::new(ErrorKind::GraphChanged, message);
        if version > wanted {
            return Err(refuse(format!(
                "the state was written in version {}, and this program reads up to version {wanted}; resume the run with the newer program",
                version
            )));
        }
        let mut channels: Map<String, Value> =
            stored.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        for from in version..wanted {
            let Some(migration) = self.migrations().iter().find(|known| known.from == from) else {
                return Err(refuse(format!(
                    "the state was written in version {}, and the graph has no migration from version {from} to the next; add \
                     `.migrate({from}, ..)` to the graph",
                    version
                )));
            };
            match catch_unwind(AssertUnwindSafe(|| (migration.step)(&mut channels))) {
                Ok(Ok(())) => {}
                Ok(Err(source)) => {
                    return Err(refuse(format!("the migration from state version {from} failed: {source}")));
                }
                // A mistake in one workflow's step must not stop a process that serves others.
                Err(panic) => {
                    let text = panic_text(&*panic);
                    return Err(refuse(format!("the migration from state version {from} panicked: {text}")));
                }
            }
        }
        let mut migrated = Channels::new();
        for (name, value) in channels {
            migrated.insert(name, value);
        }
        Ok(migrated)
    }

    /// Converts a change of stored channels to a change of migrated channels, by migrating the state with and without the change.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`migrated`](Self::migrated), and [`ErrorKind::Corrupt`] if the change does not fit the stored channels.
    pub(crate) fn migrated_patch(&self, stored: &Channels, version: u32, patch: &Patch) -> Result<Patch> {
        let before = self.migrated(stored, version)?;
        let mut changed = stored.clone();
        changed.apply(patch)?;
        let after = self.migrated(&changed, version)?;
        let mut ops = Vec::new();
        for (name, value) in &after {
            match before.get(name) {
                Some(same) if same == value => {}
                there => self.change(name, there, value, &mut ops),
            }
        }
        let gone = before.iter().filter(|(name, _)| after.get(name).is_none());
        ops.extend(gone.map(|(name, _)| Op::Remove(name.clone(), Vec::new())));
        Patch::from_ops(&ops)
    }

    /// Writes the change of one channel. If possible, it writes an input of the channel's reducer, because other writers may change the channel
    /// concurrently.
    fn change(&self, name: &str, before: Option<&Value>, after: &Value, ops: &mut Vec<Op>) {
        match (self.schema().reducer(name), before, after) {
            (Reducer::Append, Some(Value::Array(before)), Value::Array(after))
                if after.starts_with(before) =>
            {
                ops.push(Op::Append(name.to_owned(), after.get(before.len()..).unwrap_or_default().to_vec()));
            }
            (Reducer::Merge, Some(Value::Object(before)), Value::Object(after)) => {
                let put = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
                let put: Map<String, Value> = put.map(|(key, value)| (key.clone(), value.clone())).collect();
                let gone: Vec<String> =
                    before.keys().filter(|key| !after.contains_key(*key)).cloned().collect();
                if !put.is_empty() {
                    ops.push(Op::Merge(name.to_owned(), put));
                }
                if !gone.is_empty() {
                    ops.push(Op::Remove(name.to_owned(), gone));
                }
            }
            _ => ops.push(Op::Set(name.to_owned(), after.clone())),
        }
    }
}
