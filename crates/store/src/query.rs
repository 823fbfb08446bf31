//! Arguments and results of store calls: positions, filters, pages, and heads of runs.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{Epoch, ExecutorId, HeadRef, RecordId, RunKey, Seq, TenantId, WorkflowName};
use crate::index::RunStanding;
use crate::record::{RecordKind, RunFacts, RunStatus};

/// A position in a run's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The head.
    #[default]
    Latest,
    /// The record with this number.
    Seq(Seq),
    /// The record with this id.
    Record(RecordId),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Latest => f.write_str("the latest record"),
            Self::Seq(seq) => write!(f, "record {seq}"),
            Self::Record(id) => write!(f, "record {id}"),
        }
    }
}

/// The head of a run with its facts: the part of a run that a store knows without reading the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunHead {
    /// The run.
    pub run: RunKey,
    /// The position of its last record.
    pub seq: Seq,
    /// The id of its last record.
    pub id: RecordId,
    /// The position of the oldest stored record: 0 unless the run was pruned.
    pub first: Seq,
    /// Kind of the last record.
    pub kind: RecordKind,
    /// The run's status.
    pub status: RunStatus,
    /// The number of times that executors have claimed the run.
    pub epoch: Epoch,
    /// The owner of the run.
    pub owner: Option<ExecutorId>,
    /// Whether the owner's heartbeat had not expired, by the store's clock, when the store answered.
    pub owner_alive: bool,
    /// The time at which the run is to be woken.
    pub wake_at: Option<Timestamp>,
    /// Time of the last record, by the writer's clock.
    pub updated: Timestamp,
    /// The facts from the run's start.
    pub facts: RunFacts,
}

impl RunHead {
    /// Creates the head of `run` after the record `last`. `first` is the oldest stored record.
    pub fn after(
        run: RunKey,
        first: Seq,
        last: &crate::record::RecordHeader,
        owner_alive: bool,
        facts: RunFacts,
    ) -> Self {
        Self {
            run,
            seq: last.seq,
            id: last.id,
            first,
            kind: last.kind,
            status: last.status,
            epoch: last.epoch,
            owner: last.owner,
            owner_alive,
            wake_at: last.wake_at,
            updated: last.at,
            facts,
        }
    }

    /// Returns whether the run was started but never claimed, because it waits for capacity. A run whose executor died or released it has been
    /// claimed, so it does not count.
    pub fn is_queued(&self) -> bool {
        self.epoch == Epoch::NEVER && self.status == RunStatus::InProgress
    }

    /// Returns whether the run is finished and still has outbox messages or other deliveries to make.
    pub fn is_delivering(&self) -> bool {
        self.status.is_finished() && self.wake_at.is_some()
    }

    /// Returns the position and the id of the head, which the next append must expect.
    pub fn head(&self) -> HeadRef {
        HeadRef { seq: self.seq, id: self.id }
    }
}

/// A filter for listings of runs. A run matches if it meets every given condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunQuery {
    /// Only runs of this tenant.
    pub tenant: Option<TenantId>,
    /// Only runs of this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only runs for this user. A store need not have an index of users: a listing may read every run that meets the other conditions.
    pub user: Option<String>,
    /// Only runs in one of these statuses; empty means any.
    pub statuses: Vec<RunStatus>,
    /// Only runs with all of these labels.
    pub labels: Vec<(String, String)>,
    /// Only runs created at this time or later.
    pub created_from: Option<Timestamp>,
    /// Only runs created before this time.
    pub created_before: Option<Timestamp>,
    /// Only direct forks of this run.
    pub parent: Option<RunKey>,
    /// Only runs that this executor owns.
    pub owner: Option<ExecutorId>,
    /// Only runs that need an owner.
    pub filter: RunFilter,
    /// If true, an unreadable run fails the listing; if false, the listing omits it. The default is false. Set it in a caller that deletes data
    /// which no listed run needs.
    pub complete: bool,
}

/// A condition for runs that need an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunFilter {
    /// No condition.
    #[default]
    Any,
    /// The run is in progress and has no wake-up time. It has no owner, or its owner's heartbeat has expired by the store's clock.
    Orphaned,
    /// The run's wake-up time has come by the store's clock, and no owner with a live heartbeat has it. This includes finished runs, which wake up
    /// for deliveries that they still have to make.
    Due,
}

impl RunQuery {
    /// Returns whether `head` meets the query at the store's time `now`.
    ///
    /// Stores that filter in the process call this method. Stores that filter in a server must give the same result.
    pub fn matches(&self, head: &RunHead, now: Timestamp) -> bool {
        self.meets_facts(&head.run, &head.facts)
            && self.meets_standing(&RunStanding::of(head), head.owner_alive, now)
    }

    /// Returns whether the listing must fail if this run is unreadable, instead of omitting the run.
    ///
    /// A store calls this method for each unreadable run.
    pub fn fails_without(&self, run: &RunKey) -> bool {
        self.complete && self.tenant.as_ref().is_none_or(|tenant| *tenant == run.tenant)
    }

    /// Returns whether a run with these immutable facts may match the query.
    #[doc(hidden)]
    pub fn meets_facts(&self, run: &RunKey, facts: &RunFacts) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == run.tenant)
            && self.workflow.as_ref().is_none_or(|workflow| *workflow == facts.workflow)
            && self.user.as_ref().is_none_or(|user| facts.user.as_ref() == Some(user))
            && self.labels.iter().all(|(key, value)| facts.labels.get(key) == Some(value))
            && self.created_from.is_none_or(|from| facts.created >= from)
            && self.created_before.is_none_or(|before| facts.created < before)
            && self
                .parent
                .as_ref()
                .is_none_or(|parent| facts.parent.as_ref().is_some_and(|p| p.run == *parent))
    }

    /// Returns whether a run with these head fields may match the query at the store's time `now`. Checks only the conditions that the fields of
    /// the last record decide.
    #[doc(hidden)]
    pub fn meets_standing(&self, standing: &RunStanding, owner_alive: bool, now: Timestamp) -> bool {
        let RunStanding { status, owner, wake_at } = *standing;
        (self.statuses.is_empty() || self.statuses.contains(&status))
            && self.owner.is_none_or(|asked| owner == Some(asked))
            && match self.filter {
                RunFilter::Any => true,
                RunFilter::Orphaned => status == RunStatus::InProgress && wake_at.is_none() && !owner_alive,
                RunFilter::Due => wake_at.is_some_and(|wake| wake <= now) && !owner_alive,
            }
    }
}

/// The order of a listing of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Newest first.
    #[default]
    NewestFirst,
    /// Oldest first.
    OldestFirst,
    /// The order that costs the store less. It is the same for all pages of a listing.
    Any,
}

/// The part of a listing to return.
///
/// Runs are ordered by time of creation, then tenant, then run id. These values never change, so paging with a cursor returns each run that exists
/// during the whole listing exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The maximum number of entries to return. A store returns at most 1,000, even if the limit is higher.
    pub limit: NonZeroU32,
    /// The cursor of the previous page; `None` for the first page.
    pub cursor: Option<Cursor>,
    /// The order of the listing.
    pub order: Order,
}

impl Page {
    /// Maximum number of entries in one page.
    pub const MAX: u32 = 1_000;

    /// Requests the first page of at most `limit` entries, newest first. A limit of 0 counts as 1.
    pub fn first(limit: u32) -> Self {
        Self {
            limit: NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN),
            cursor: None,
            order: Order::default(),
        }
    }

    /// Sets the order.
    #[must_use]
    pub fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets the cursor of the previous page, after which this page continues.
    #[must_use]
    pub fn with_cursor(mut self, cursor: Cursor) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// Returns the maximum number of entries that a store returns.
    pub fn max_items(&self) -> usize {
        self.limit.get().min(Self::MAX) as usize
    }
}

impl Default for Page {
    /// Requests the first 50 entries, newest first.
    fn default() -> Self {
        Self::first(50)
    }
}

/// A position in a listing, from which the next page continues. It is opaque: only the store that made it can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(String);

impl Cursor {
    /// Wraps the text of a store.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged<T> {
    /// The entries, in the requested order.
    pub items: Vec<T>,
    /// The cursor for the next page; `None` if this is the last page.
    pub next: Option<Cursor>,
}
