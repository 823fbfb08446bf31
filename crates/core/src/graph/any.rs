//! A graph without the type of its state: what an edit and a fork ask of it.

use std::sync::Arc;

use super::plan::Plan;
use super::typed::Graph;
use crate::error::Result;
use crate::id::{Fingerprint, WorkflowName};
use crate::state::{Channels, Patch, Schema, State};

/// What is asked of a [`Graph`], whatever the type of its state.
pub(crate) trait AnyGraph: Send + Sync {
    fn plan(&self) -> &Arc<Plan>;

    /// Returns what the facts of a run say of its graph: workflow, version and fingerprint.
    fn identity(&self) -> (WorkflowName, String, Fingerprint);

    /// Returns the channels of the state's type, and its version.
    fn schema(&self) -> &Schema;

    /// Turns channels of a version into those of the state's type.
    ///
    /// # Errors
    ///
    /// As [`Graph::migrated`].
    fn migrated(&self, stored: &Channels, version: u32) -> Result<Channels>;

    /// Turns a change of channels of a version into one of what they are migrated to.
    ///
    /// # Errors
    ///
    /// As [`Graph::migrated_patch`].
    fn migrated_patch(&self, stored: &Channels, version: u32, patch: &Patch) -> Result<Patch>;

    /// Reads channels as the state's type, and returns them as it writes them.
    ///
    /// # Errors
    ///
    /// As [`State::from_channels`] and [`State::to_channels_json`].
    fn rewritten(&self, channels: Channels) -> Result<Channels>;
}

impl<S: State> AnyGraph for Graph<S> {
    fn plan(&self) -> &Arc<Plan> {
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
