//! A run of a workflow that another definition has: it is waited for, and never started or driven here.

use ferrata_core::graph::Graph;
use ferrata_core::state::{Channels, PatchWriter, Schema, State};
use ferrata_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A state that is neither read nor written, so that no run can be started or taken up with it.
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

/// Makes what stands for a workflow whose code is not here.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the name is none.
pub(crate) fn graph(workflow: &str) -> Result<Graph<OpaqueState>> {
    Graph::builder(workflow).node("unread", async |_cx, s| Ok(s)).entry("unread").build().map_err(|error| {
        Error::new(ErrorKind::Invalid, "the run of a tick has an invalid workflow name").with_source(error)
    })
}
