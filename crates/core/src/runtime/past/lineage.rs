//! Where a run comes from: its forks, back to the run that was started.

use std::collections::BTreeSet;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{RunKey, Seq};
use crate::record::RunStatus;
use crate::runtime::load::missing;
use crate::store::CheckpointStore;

/// A run in a line of forks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ancestor {
    /// The run.
    pub run: RunKey,
    /// Where it was forked off the one before it; none for the first.
    pub forked_at: Option<Seq>,
    /// How it stands; none if it has been purged.
    pub status: Option<RunStatus>,
}

/// Lists a run and where it comes from, the oldest first.
pub(crate) async fn lineage(store: &dyn CheckpointStore, run: &RunKey) -> Result<Vec<Ancestor>> {
    let (mut line, mut seen) = (Vec::new(), BTreeSet::new());
    let mut next = Some(run.clone());
    while let Some(run) = next {
        if !seen.insert(run.clone()) {
            let message = "the run is its own ancestor: its id, or one it comes from, was purged and used again by a fork";
            return Err(Error::new(ErrorKind::Corrupt, message).with_run(&run));
        }
        let Some(head) = store.head(&run).await? else {
            if line.is_empty() {
                return Err(missing(&run));
            }
            line.push(Ancestor { run, forked_at: None, status: None });
            break;
        };
        let parent = head.facts.parent;
        let forked_at = parent.as_ref().map(|parent| parent.at.seq);
        line.push(Ancestor { run, forked_at, status: Some(head.status) });
        next = parent.map(|parent| parent.run);
    }
    line.reverse();
    Ok(line)
}
