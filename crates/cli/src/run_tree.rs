//! The tree of a run: the run and its descendants, which are found by their labels.

use std::collections::BTreeMap;

use ferrata::runtime::RunOrigin;
use ferrata::store::{Order, Page, RunHead, RunQuery};
use ferrata::{CheckpointStore, RunKey, Timestamp};

use crate::failure::CommandFailure;

/// Maximum clock skew in milliseconds: the time by which a parent may seem to have started later than its child.
const SKEW_MS: i64 = 24 * 3_600_000;

/// Lists the runs below `head` that have this label, oldest first.
async fn labelled(
    store: &dyn CheckpointStore,
    head: &RunHead,
    key: &str,
    of: &RunKey,
) -> Result<Vec<RunHead>, CommandFailure> {
    let mut query = RunQuery::default();
    query.tenant = Some(head.run.tenant.clone());
    query.labels = vec![(key.to_owned(), of.run.to_string())];
    // A child is younger than its parent. With this condition, a store without an index of labels does not read older heads than necessary.
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

/// Lists the runs that the nodes of a run have started, including detached runs. The oldest comes first.
pub(crate) async fn children(
    store: &dyn CheckpointStore,
    head: &RunHead,
) -> Result<Vec<RunHead>, CommandFailure> {
    labelled(store, head, RunOrigin::PARENT_LABEL, &head.run).await
}

/// A run and its descendants.
#[derive(Debug)]
pub(crate) struct RunTree {
    pub(crate) head: RunHead,
    pub(crate) children: Vec<Self>,
}

impl RunTree {
    /// Reads a run and its descendants.
    pub(crate) async fn below(store: &dyn CheckpointStore, head: RunHead) -> Result<Self, CommandFailure> {
        let mut of: BTreeMap<RunKey, Vec<RunHead>> = BTreeMap::new();
        for member in labelled(store, &head, RunOrigin::ROOT_LABEL, &RunOrigin::root_of(&head)).await? {
            if let Some(origin) = RunOrigin::of(&member).filter(RunOrigin::is_bound) {
                of.entry(origin.parent).or_default().push(member);
            }
        }
        Ok(Self::collect(head, &mut of))
    }

    /// Counts the unfinished descendants that a pause or a cancellation of the run also reaches.
    pub(crate) fn bound(&self) -> usize {
        let is_bound =
            |child: &&Self| RunOrigin::of(&child.head).is_some_and(|origin| origin.bond == "cancel");
        let going = |child: &&Self| !child.head.status.is_finished();
        self.children.iter().filter(is_bound).filter(going).map(|child| 1 + child.bound()).sum()
    }

    /// Removes each run from the list when it is used, so that labels in a circle cannot cause an endless recursion.
    fn collect(head: RunHead, of: &mut BTreeMap<RunKey, Vec<RunHead>>) -> Self {
        let own = of.remove(&head.run).unwrap_or_default();
        Self { children: own.into_iter().map(|child| Self::collect(child, of)).collect(), head }
    }
}
