//! Loads a run from the store with the user's state type.

use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::error::Result;
use crate::graph::Graph;
use crate::id::RunKey;
use crate::state::State;
use crate::store::{At, CheckpointStore};

/// A run as stored.
pub(crate) struct LoadedRun<S> {
    pub(crate) folded: ReplayedRun,
    pub(crate) state: S,
}

pub(crate) async fn load<S: State>(
    store: &dyn CheckpointStore,
    graph: &Graph<S>,
    run: &RunKey,
) -> Result<LoadedRun<S>> {
    let records = store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
    let folded = fold(run, &records, Some(graph.plan()))?;
    let state = graph
        .migrated(&folded.channels, folded.version)
        .and_then(|channels| S::from_channels(channels, graph.schema()))
        .map_err(|error| error.with_run(run))?;
    Ok(LoadedRun { folded, state })
}
