//! A graph whose state type is erased. Edits and forks of runs use it, because they do not know the type.

use std::sync::Arc;

use super::typed::Graph;
use crate::error::Result;
use crate::graph::plan::GraphPlan;
use crate::id::{Fingerprint, WorkflowName};
use crate::state::{Channels, Patch, Schema, State};

/// The operations of a [`Graph`] that do not depend on the type of its state.
pub(crate) trait AnyGraph: Send + Sync {
    fn plan(&self) -> &Arc<GraphPlan>;

    /// Returns the name of the workflow, its version and the fingerprint of the graph, which a run records.
    fn identity(&self) -> (WorkflowName, String, Fingerprint);

    /// Returns the channels and the version of the state's type.
    fn schema(&self) -> &Schema;

    /// Migrates stored channels from `version` to the current version of the state's type.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Graph::migrated`].
    fn migrated(&self, stored: &Channels, version: u32) -> Result<Channels>;

    /// Migrates a change of stored channels from `version` to the current version of the state's type.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Graph::migrated_patch`].
    fn migrated_patch(&self, stored: &Channels, version: u32, patch: &Patch) -> Result<Patch>;

    /// Decodes channels as the state's type, encodes the state again, and returns the result.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`State::from_channels`] and [`State::to_channels_json`].
    fn rewritten(&self, channels: Channels) -> Result<Channels>;
}

impl<S: State> AnyGraph for Graph<S> {
    fn plan(&self) -> &Arc<GraphPlan> {
        self.plan()
    }

    fn identity(&self) -> (WorkflowName, String, Fingerprint) {
        (self.name().clone(), self.version().to_owned(), self.fingerprint())
    }

    fn schema(&self) -> &Schema {
        self.schema()
    }

    fn migrated(&self, stored: &Channels, version: u32) -> Result<Channels> {
        self.migrated(stored, version)
    }

    fn migrated_patch(&self, stored: &Channels, version: u32, patch: &Patch) -> Result<Patch> {
        self.migrated_patch(stored, version, patch)
    }

    fn rewritten(&self, channels: Channels) -> Result<Channels> {
        let state = S::from_channels(channels, self.schema())?;
        Channels::from_json(state.to_channels_json()?.get())
    }
}
