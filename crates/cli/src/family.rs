//! Who started whom: the family of a run, as the labels of its members say.

use std::collections::BTreeMap;

use ferrata::store::{Order, Page, RunHead, RunQuery};
use ferrata::{CheckpointStore, RunId, RunKey, Timestamp};
use serde::Serialize;

use crate::failure::Failure;

/// The labels by which a child says where it belongs; applications cannot set them.
const PARENT: &str = "ferrata.parent";
const ROOT: &str = "ferrata.root";
const CHILD: &str = "ferrata.child";
const BOND: &str = "ferrata.bond";

/// What begins the labels that the library sets.
pub(crate) const OWN: &str = "ferrata.";

/// Where a run was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Origin {
    /// The run whose node started it.
    pub(crate) parent: RunKey,
    /// The activation, as `node@visit`.
    pub(crate) at: String,
    /// What it is called there.
    pub(crate) name: String,
    /// Whether it ends with that: `cancel`, `leave` or `detached`.
    pub(crate) bond: String,
}

impl Origin {
    /// Reads where a run was started; none if no node did.
    pub(crate) fn of(head: &RunHead) -> Option<Self> {
        let label = |key: &str| head.facts.labels.get(key);
        let parent = RunId::new(label(PARENT)?).ok()?;
        // The life of the parent, the node, the visit and the name.
        let mut parts = label(CHILD)?.splitn(4, ':').skip(1);
        let (node, visit, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            parent: RunKey::new(head.run.tenant.clone(), parent),
            at: format!("{node}@{visit}"),
            name: name.to_owned(),
            bond: label(BOND)?.to_owned(),
        })
    }

    /// Whether a parent waits for the run: one that is detached is the first of a family of its own.
    pub(crate) fn is_bound(&self) -> bool {
        self.bond != "detached"
    }

    /// Tells the place as people read it.
    pub(crate) fn place(&self) -> String {
        format!("{} {}", self.at, self.name)
    }
}

/// Whether a run is the first of its family.
pub(crate) fn is_root(head: &RunHead) -> bool {
    Origin::of(head).is_none_or(|origin| !origin.is_bound())
}

/// Returns the first run of the family.
pub(crate) fn root(head: &RunHead) -> RunKey {
    let root = head.facts.labels.get(ROOT).filter(|_| !is_root(head)).and_then(|root| RunId::new(root).ok());
    root.map_or_else(|| head.run.clone(), |root| RunKey::new(head.run.tenant.clone(), root))
}

/// How much later than its child the clock of another machine may say that a parent was started.
const SKEW_MS: i64 = 24 * 3_600_000;

/// Lists the runs below `head` that have the label, the oldest first.
async fn labelled(
    store: &dyn CheckpointStore,
    head: &RunHead,
    key: &str,
    of: &RunKey,
) -> Result<Vec<RunHead>, Failure> {
    let mut query = RunQuery::default();
    query.tenant = Some(head.run.tenant.clone());
    query.labels = vec![(key.to_owned(), of.run.to_string())];
    // A child is younger than its parent. A store that has no index of labels reads no older heads than it has to.
    query.created_from = Some(Timestamp::from_unix_ms(head.facts.created.unix_ms().saturating_sub(SKEW_MS)));
    let mut page = Page::first(Page::MAX).with_order(Order::NewestFirst);
    let mut found = Vec::new();
    loop {
        let listed = store.runs(&query, page).await?;
        found.extend(listed.items);
        match listed.next {
            Some(next) => page = Page::first(Page::MAX).with_cursor(next),
            None => break,
        }
    }
    found.reverse();
    Ok(found)
}

/// Lists the runs that nodes of a run have started, the oldest first, also those that are detached.
pub(crate) async fn children(store: &dyn CheckpointStore, head: &RunHead) -> Result<Vec<RunHead>, Failure> {
    labelled(store, head, PARENT, &head.run).await
}

/// A run and those below it.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) head: RunHead,
    pub(crate) children: Vec<Self>,
}

impl Family {
    /// Reads the part of a family that begins with a run.
    pub(crate) async fn below(store: &dyn CheckpointStore, head: RunHead) -> Result<Self, Failure> {
        let mut of: BTreeMap<RunKey, Vec<RunHead>> = BTreeMap::new();
        for member in labelled(store, &head, ROOT, &root(&head)).await? {
            if let Some(origin) = Origin::of(&member).filter(Origin::is_bound) {
                of.entry(origin.parent).or_default().push(member);
            }
        }
        Ok(Self::collect(head, &mut of))
    }

    /// Counts the runs below that have not ended, and that a pause or a cancellation of the first reaches.
    pub(crate) fn bound(&self) -> usize {
        let is_bound = |child: &&Self| Origin::of(&child.head).is_some_and(|origin| origin.bond == "cancel");
        let going = |child: &&Self| !child.head.status.is_finished();
        self.children.iter().filter(is_bound).filter(going).map(|child| 1 + child.bound()).sum()
    }

    /// Takes from the list what it uses, so that labels which go in a circle end it.
    fn collect(head: RunHead, of: &mut BTreeMap<RunKey, Vec<RunHead>>) -> Self {
        let own = of.remove(&head.run).unwrap_or_default();
        Self { children: own.into_iter().map(|child| Self::collect(child, of)).collect(), head }
    }
}
