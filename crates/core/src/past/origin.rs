//! Where a run was started by a node of another run, as its labels tell.

use serde::Serialize;

use crate::id::{RunId, RunKey};
use crate::record::parent_link::{BOND, PARENT, ROOT, parent_link};
use crate::store::RunHead;

/// Where a run was started by a node of another run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunOrigin {
    /// The run whose node started it.
    pub parent: RunKey,
    /// The activation that started it, as `node@visit`.
    pub at: String,
    /// What it is called there.
    pub name: String,
    /// What binds it to its parent: `cancel`, `leave` or `detached`.
    pub bond: String,
}

impl RunOrigin {
    /// The label that holds the id of the parent: a listing by it finds the runs that the nodes of a run have started.
    pub const PARENT_LABEL: &str = PARENT;

    /// The label that holds the id of the first run of a run tree: a listing by it finds all runs below that one.
    pub const ROOT_LABEL: &str = ROOT;

    /// Reads where a run was started; none if no node did.
    #[must_use]
    pub fn of(head: &RunHead) -> Option<Self> {
        let link = parent_link(&head.run, &head.facts)?;
        let way = link.way()?;
        // The name of a node may hold a colon, and a visit does not.
        let (at, name) = way.rsplit_once(':')?;
        let bond = head.facts.labels.get(BOND)?.to_owned();
        Some(Self { at: at.to_owned(), name: name.to_owned(), parent: link.parent, bond })
    }

    /// Tells whether the parent waits for the run: a detached one is the first of a run tree of its own.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.bond != "detached"
    }

    /// Tells whether a run is the first of its run tree.
    #[must_use]
    pub fn is_root(head: &RunHead) -> bool {
        Self::of(head).is_none_or(|origin| !origin.is_bound())
    }

    /// Returns the first run of the run tree that a run is in.
    #[must_use]
    pub fn root_of(head: &RunHead) -> RunKey {
        let root = head.facts.labels.get(ROOT).filter(|_| !Self::is_root(head));
        let root = root.and_then(|root| RunId::new(root).ok());
        root.map_or_else(|| head.run.clone(), |root| RunKey::new(head.run.tenant.clone(), root))
    }
}
