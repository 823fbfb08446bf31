//! The origin of a run that a node started, which is stored in the labels of the run.

use serde::Serialize;

use crate::id::{RunId, RunKey};
use crate::record::parent_link::{BOND, PARENT, ROOT, parent_link};
use crate::store::RunHead;

/// The origin of a run that a node of another run started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunOrigin {
    /// The run whose node started this run.
    pub parent: RunKey,
    /// The activation that started this run, as `node@visit`.
    pub at: String,
    /// The name of the run in that activation.
    pub name: String,
    /// The bond to the parent. `cancel` means that the run is cancelled if its activation ends first, `leave` that it continues, and `detached` that
    /// no parent waits for it.
    pub bond: String,
}

impl RunOrigin {
    /// The label that contains the parent's id. A listing with this label returns the child runs of a run.
    #[doc(hidden)]
    pub const PARENT_LABEL: &str = PARENT;

    /// The label that contains the id of the root of a run tree. A listing with this label returns all descendants of the root.
    #[doc(hidden)]
    pub const ROOT_LABEL: &str = ROOT;

    /// Returns the origin of a run, or `None` if no node started it.
    #[must_use]
    pub fn of(head: &RunHead) -> Option<Self> {
        let link = parent_link(&head.run, &head.facts)?;
        let way = link.path_segment()?;
        // A node's name may contain a colon. A visit cannot.
        let (at, name) = way.rsplit_once(':')?;
        let bond = head.facts.labels.get(BOND)?.to_owned();
        Some(Self { at: at.to_owned(), name: name.to_owned(), parent: link.parent, bond })
    }

    /// Returns whether the run is a child of a parent. It is false for a detached run, which is the root of its own run tree.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.bond != "detached"
    }

    /// Returns whether a run is the root of its run tree.
    #[must_use]
    pub fn is_root(head: &RunHead) -> bool {
        Self::of(head).is_none_or(|origin| !origin.is_bound())
    }

    /// Returns the root of the run tree that contains a run.
    #[must_use]
    pub fn root_of(head: &RunHead) -> RunKey {
        let root = head.facts.labels.get(ROOT).filter(|_| !Self::is_root(head));
        let root = root.and_then(|root| RunId::new(root).ok());
        root.map_or_else(|| head.run.clone(), |root| RunKey::new(head.run.tenant.clone(), root))
    }
}
