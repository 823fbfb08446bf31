//! Who started whom: the run tree that a run is in, as the labels of its runs tell.

use std::collections::BTreeMap;

use ferrata::runtime::RunOrigin;
use ferrata::store::{Order, Page, RunHead, RunQuery};
use ferrata::{CheckpointStore, RunKey, Timestamp};

use crate::failure::Failure;

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
    labelled(store, head, RunOrigin::PARENT_LABEL, &head.run).await
}

/// A run and those below it.
#[derive(Debug)]
pub(crate) struct RunTree {
    pub(crate) head: RunHead,
    pub(crate) children: Vec<Self>,
}

impl RunTree {
    /// Reads the part of a family that begins with a run.
    pub(crate) async fn below(store: &dyn CheckpointStore, head: RunHead) -> Result<Self, Failure> {
        let mut of: BTreeMap<RunKey, Vec<RunHead>> = BTreeMap::new();
        for member in labelled(store, &head, RunOrigin::ROOT_LABEL, &RunOrigin::root_of(&head)).await? {
            if let Some(origin) = RunOrigin::of(&member).filter(RunOrigin::is_bound) {
                of.entry(origin.parent).or_default().push(member);
            }
        }
        Ok(Self::collect(head, &mut of))
    }

    /// Counts the runs below that have not ended, and that a pause or a cancellation of the first reaches.
    pub(crate) fn bound(&self) -> usize {
        let is_bound =
            |child: &&Self| RunOrigin::of(&child.head).is_some_and(|origin| origin.bond == "cancel");
        let going = |child: &&Self| !child.head.status.is_finished();
        self.children.iter().filter(is_bound).filter(going).map(|child| 1 + child.bound()).sum()
    }

    /// Takes from the list what it uses, so that labels which go in a circle end it.
    fn collect(head: RunHead, of: &mut BTreeMap<RunKey, Vec<RunHead>>) -> Self {
        let own = of.remove(&head.run).unwrap_or_default();
        Self { children: own.into_iter().map(|child| Self::collect(child, of)).collect(), head }
    }
}
