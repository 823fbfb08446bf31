//! Compares the input of a repeated start with the stored input, if the stored input has another state version.

use super::start_extras::EncodedExtras;
use crate::error::{ErrorKind, Result};
use crate::graph::Graph;
use crate::id::{Fingerprint, RunKey, Seq};
use crate::kernel::inner::RuntimeInner;
use crate::record::body::{RecordEvent, StartRecord};
use crate::record::codec;
use crate::state::{Channels, State};
use crate::store::At;

/// Returns whether the stored input of a run, migrated to the graph's state, has this fingerprint. False if the first record was pruned, or a
/// newer version of the state type wrote it.
///
/// # Errors
///
/// Returns the errors of the store, [`ErrorKind::Corrupt`] if the first record is damaged, and [`ErrorKind::Unsupported`] if it has a newer version.
pub(super) async fn has_same_input<S: State>(
    shared: &RuntimeInner,
    graph: &Graph<S>,
    run: &RunKey,
    print: Fingerprint,
) -> Result<bool> {
    let records = match shared.store.load(run, At::Seq(Seq::new(0))).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        records => records?,
    };
    let Some(first) = records.as_deref().and_then(<[_]>::first) else { return Ok(false) };
    first.verify(run)?;
    let body = codec::decode(run, first)?;
    let (RecordEvent::Start(StartRecord { config, messages, .. }), Some(base)) = (body.event, body.base)
    else {
        return Ok(false);
    };
    let stored = Channels::from_json(base.state.get())?;
    let migrated = graph
        .migrated(&stored, base.version)
        .and_then(|channels| S::from_channels(channels, graph.schema()))
        .and_then(|input| input.to_channels_json());
    // Only a newer program, or none, can migrate it: this program treats it as a different input.
    let Ok(input) = migrated else { return Ok(false) };
    Ok(EncodedExtras { config, messages }.print(&input)? == print)
}
