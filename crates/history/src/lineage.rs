//! The lineage of a run: the chain of runs from which it was forked, back to the run that was started.

use std::collections::BTreeSet;

use crate::details::pairs;
use crate::engine::fold::missing;
use crate::error::{ErrorKind, Result};
use crate::id::{NodeName, RunKey, Seq};
use crate::record::body::RecordEvent;
use crate::record::{RunStatus, codec};
use crate::store::{At, CheckpointStore, RunHead};

/// A run in a chain of forks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ancestor {
    /// The key of the run.
    pub run: RunKey,
    /// The record at which this run was forked from the previous one. `None` for the first run.
    pub forked_at: Option<Seq>,
    /// The status of the run. `None` if the run was purged, if another run now has its id, or if it is unreadable.
    pub status: Option<RunStatus>,
}

/// Lists a run and its ancestors, the oldest first.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if there is no such run, and the errors of the store.
pub async fn lineage(store: &dyn CheckpointStore, run: &RunKey) -> Result<Vec<Ancestor>> {
    let mut head = store.head(run).await?.ok_or_else(|| missing(run))?;
    let (mut line, mut seen) = (Vec::new(), BTreeSet::from([run.clone()]));
    while let Some(parent) = &head.facts.parent {
        line.push(Ancestor {
            run: head.run.clone(),
            forked_at: Some(parent.at.seq),
            status: Some(head.status),
        });
        let run = parent.run.clone();
        let there = match store.head(&run).await {
            // A fork can be read without its source. The line ends with a run of unknown status.
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => None,
            there => there?,
        };
        let source = match there {
            Some(there) if seen.insert(run.clone()) && is_source(store, &there, &head).await? => there,
            // The ancestor was purged. The run with its id is a different one.
            _ => {
                line.push(Ancestor { run, forked_at: None, status: None });
                line.reverse();
                return Ok(line);
            }
        };
        head = source;
    }
    line.push(Ancestor { run: head.run, forked_at: None, status: Some(head.status) });
    line.reverse();
    Ok(line)
}

/// Maximum number of forks to follow back for the graph of a run.
const FORKS: usize = 16;

/// Reads the edges of the graph that a fork inherited. Returns `None` if the first run of the lineage is missing or unreadable. This is not an error,
/// because the log of a fork is complete without its source.
pub(crate) async fn inherited_edges(
    store: &dyn CheckpointStore,
    fork: &RunKey,
) -> Result<Option<Vec<(NodeName, NodeName)>>> {
    match source_edges(store, fork).await {
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => Ok(None),
        found => found,
    }
}

/// Reads the edges from the first record of the oldest run of a lineage.
async fn source_edges(
    store: &dyn CheckpointStore,
    fork: &RunKey,
) -> Result<Option<Vec<(NodeName, NodeName)>>> {
    let Some(mut head) = store.head(fork).await? else { return Ok(None) };
    for _ in 0..FORKS {
        let Some(parent) = &head.facts.parent else { return Ok(None) };
        let source = match store.head(&parent.run).await? {
            Some(there) if is_source(store, &there, &head).await? => there,
            _ => return Ok(None),
        };
        let first = match store.load(&source.run, At::Seq(Seq::new(0))).await {
            Ok(records) => records.and_then(|mut records| records.pop()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some(first) = first else { return Ok(None) };
        if let RecordEvent::Start(started) = codec::decode(&source.run, &first)?.event {
            return Ok(Some(pairs(&started.edges)));
        }
        head = source;
    }
    Ok(None)
}

/// Returns whether a run is the source of a fork, and not a later run with the same id.
async fn is_source(store: &dyn CheckpointStore, there: &RunHead, fork: &RunHead) -> Result<bool> {
    let Some(parent) = &fork.facts.parent else { return Ok(false) };
    // No stored record decides this, but a source is older than its fork.
    let may_be = there.facts.created <= fork.facts.created;
    if parent.at.seq < there.first {
        return Ok(may_be);
    }
    match store.load(&there.run, At::Record(parent.at.id)).await {
        Ok(loaded) => Ok(loaded.is_some()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => Ok(may_be),
        Err(error) => Err(error),
    }
}
