//! Polls the store for changed runs, page by page. It polls ended runs only rarely.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::RunKey;
use crate::record::RunStatus;
use crate::runtime::shared::RuntimeInner;
use crate::store::{Cursor, Order, Page, RunHead, RunQuery};

/// The minimum ratio between the pause and the duration of a poll.
const REST: u32 = 10;

/// The number of runs per page.
const PAGE: u32 = 500;

/// The statuses of runs that may change.
const OPEN: [RunStatus; 4] =
    [RunStatus::InProgress, RunStatus::Interrupted, RunStatus::AwaitingInput, RunStatus::Failed];

/// Returns whether the status is final.
pub(super) fn is_over(status: RunStatus) -> bool {
    !OPEN.contains(&status)
}

/// Reads the head of one run. Returns `None` if the run does not exist or cannot be loaded, because a listing omits such runs too.
pub(super) async fn head_of(shared: &RuntimeInner, run: &RunKey) -> Result<Option<RunHead>> {
    match shared.committer.read(|| shared.store.head(run)).await {
        Err(error) if !error.is_retryable() => Ok(None),
        head => head,
    }
}

/// The runs that a poll lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollScope {
    /// The poll covers all runs, in the order of their creation.
    All,
    /// The poll covers runs that have not ended and so may change.
    Open,
    /// The poll covers runs that were created recently, even if they have ended since.
    Recent,
}

/// One poll of the store.
#[derive(Debug)]
pub(super) struct StorePoll {
    pub(super) walk: PollScope,
    pub(super) began: Timestamp,
    /// The total duration of store calls.
    pub(super) spent: Duration,
    query: RunQuery,
    /// Runs that are listed but not compared.
    pub(super) page: VecDeque<RunHead>,
    next: Option<Cursor>,
    /// Whether the listing is complete.
    pub(super) is_listed: bool,
}

impl StorePoll {
    /// Prepares a poll. `since` is the time from which a walk by creation time starts.
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

    /// Adds a further walk to the poll.
    pub(super) fn followed_by(
        self,
        shared: &RuntimeInner,
        query: &RunQuery,
        walk: PollScope,
        since: Timestamp,
    ) -> Self {
        Self { began: self.began, spent: self.spent, ..Self::new(shared, query, walk, since) }
    }

    /// Stops listing, and drops the listed runs.
    pub(super) fn end(&mut self) {
        self.page.clear();
        self.is_listed = true;
    }

    /// Lists the next page. If the future is dropped, the next call lists it again.
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

/// The schedule of polls.
#[derive(Debug, Default)]
pub(super) struct PollSchedule {
    pub(super) current: Option<StorePoll>,
    /// The number of polls. With it, the watch finds the runs that the last poll did not list.
    pub(super) round: u64,
    /// Whether all runs were listed once, so that the open runs are known.
    pub(super) knows_all: bool,
    /// The time of the next poll, and the earliest time after a missed signal.
    pub(super) due: Duration,
    pub(super) earliest: Duration,
}

impl PollSchedule {
    pub(super) fn begin(&mut self, look: StorePoll) {
        self.round += 1;
        self.current = Some(look);
    }

    /// Ends a poll that took this long.
    pub(super) fn end(&mut self, now: Duration, spent: Duration, pause: Duration) {
        self.knows_all = true;
        self.earliest = now.saturating_add(spent * REST);
        self.due = self.earliest.max(now.saturating_add(pause));
    }
}
