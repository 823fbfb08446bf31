//! A graph for a run whose workflow this process does not serve. The schedule waits for such a run, but never starts or drives it.

use ferrata_core::graph::Graph;
use ferrata_core::state::{Channels, PatchWriter, Schema, State};
use ferrata_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A state that can be neither read nor written, so that no run can be started or claimed with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpaqueState;

impl State for OpaqueState {
    type Update = ();

    fn schema() -> Schema {
        Schema::default()
    }

    fn diff(_before: &Self, _after: Self) -> Result<()> {
        Err(refusal_error())
    }

    fn apply(&mut self, _update: &(), _patch: &mut PatchWriter) -> Result<()> {
        Err(refusal_error())
    }

    fn to_channels_json(&self) -> Result<Box<RawValue>> {
        Err(refusal_error())
    }

    fn from_channels(_channels: Channels, _schema: &Schema) -> Result<Self> {
        Err(refusal_error())
    }
}

fn refusal_error() -> Error {
    let message =
        "the definition of the schedule has another workflow; serve the run with the code that started it";
    Error::new(ErrorKind::Unsupported, message)
}

/// Creates a graph that stands for a workflow whose code this process does not have.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if `workflow` is not a valid workflow name.
pub(crate) fn graph(workflow: &str) -> Result<Graph<OpaqueState>> {
    Graph::builder(workflow).node("unread", async |_cx, s| Ok(s)).entry("unread").build().map_err(|error| {
        Error::new(ErrorKind::Invalid, "the run of a tick has an invalid workflow name").with_source(error)
    })
}
