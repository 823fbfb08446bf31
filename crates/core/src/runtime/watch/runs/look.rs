//! Asking the store which of the selected runs changed: page by page, and seldom for runs that cannot change any more.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::RunKey;
use crate::record::RunStatus;
use crate::runtime::shared::RuntimeInner;
use crate::store::{Cursor, Order, Page, RunHead, RunQuery};

/// How many times longer than looking takes the pause between looks is at least.
const REST: u32 = 10;

/// How many runs one page holds.
const PAGE: u32 = 500;

/// The statuses of runs that may change.
const OPEN: [RunStatus; 4] =
    [RunStatus::InProgress, RunStatus::Interrupted, RunStatus::AwaitingInput, RunStatus::Failed];

/// Whether a run has said its last.
pub(super) fn is_over(status: RunStatus) -> bool {
    !OPEN.contains(&status)
}

/// Looks at one run; `None` if there is none, or if it cannot be read: a listing leaves it out, too.
pub(super) async fn head_of(shared: &RuntimeInner, run: &RunKey) -> Result<Option<RunHead>> {
    match shared.committer.read(|| shared.store.head(run)).await {
        Err(error) if !error.is_retryable() => Ok(None),
        head => head,
    }
}

/// Which runs a look asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollScope {
    /// All, in the order of their creation.
    All,
    /// Those that may change.
    Open,
    /// Those that were created lately: they may have ended since.
    Recent,
}

/// One look at the store.
#[derive(Debug)]
pub(super) struct StorePoll {
    pub(super) walk: PollScope,
    pub(super) began: Timestamp,
    /// How long the store took.
    pub(super) spent: Duration,
    query: RunQuery,
    /// What was listed and not compared yet.
    pub(super) page: VecDeque<RunHead>,
    next: Option<Cursor>,
    /// Whether there is nothing more to list.
    pub(super) is_listed: bool,
}

impl StorePoll {
    /// Prepares a look; `since` bounds a walk that goes by the time of creation.
    pub(super) fn new(shared: &RuntimeInner, query: &RunQuery, walk: PollScope, since: Timestamp) -> Self {
        let mut query = query.clone();
        match walk {
            PollScope::Open => query.statuses = OPEN.to_vec(),
            PollScope::All | PollScope::Recent => {
                query.created_from = Some(query.created_from.map_or(since, |from| from.max(since)));
            }
        }
        let (began, spent) = (shared.clock.now(), Duration::ZERO);
        Self { walk, began, spent, query, page: VecDeque::new(), next: None, is_listed: false }
    }

    /// Goes on with a further walk in the same look.
    pub(super) fn followed_by(
        self,
        shared: &RuntimeInner,
        query: &RunQuery,
        walk: PollScope,
        since: Timestamp,
    ) -> Self {
        Self { began: self.began, spent: self.spent, ..Self::new(shared, query, walk, since) }
    }

    /// Lists no more, and drops what was listed.
    pub(super) fn end(&mut self) {
        self.page.clear();
        self.is_listed = true;
    }

    /// Lists the next page. Dropped, it is listed again.
    pub(super) async fn list(&mut self, shared: &RuntimeInner) -> Result<()> {
        let order = match self.walk {
            PollScope::All => Order::OldestFirst,
            PollScope::Open | PollScope::Recent => Order::Any,
        };
        let began = shared.clock.monotonic();
        let page = Page { cursor: self.next.clone(), ..Page::first(PAGE).with_order(order) };
        let found = shared.committer.read(|| shared.store.runs(&self.query, page.clone())).await?;
        self.spent += shared.clock.monotonic().saturating_sub(began);
        self.page.extend(found.items);
        self.is_listed = found.next.is_none();
        self.next = found.next;
        Ok(())
    }
}

/// One look after another.
#[derive(Debug, Default)]
pub(super) struct PollSchedule {
    pub(super) current: Option<StorePoll>,
    /// Counts them, so that runs show which the last one did not list.
    pub(super) round: u64,
    /// Whether all runs were listed once, so that what may change is known.
    pub(super) knows_all: bool,
    /// When the next is due, and when it may begin if something was missed.
    pub(super) due: Duration,
    pub(super) earliest: Duration,
}

impl PollSchedule {
    pub(super) fn begin(&mut self, look: StorePoll) {
        self.round += 1;
        self.current = Some(look);
    }

    /// Ends one that kept the store busy for so long.
    pub(super) fn end(&mut self, now: Duration, spent: Duration, pause: Duration) {
        self.knows_all = true;
        self.earliest = now.saturating_add(spent * REST);
        self.due = self.earliest.max(now.saturating_add(pause));
    }
}
