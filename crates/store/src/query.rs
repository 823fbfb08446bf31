//! The terms of store calls: positions, filters, pages, and the returned heads.

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

/// The part of a run that a store knows without reading its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunHead {
    /// The run.
    pub run: RunKey,
    /// The position of its last record.
    pub seq: Seq,
    /// The id of its last record.
    pub id: RecordId,
    /// The position of the oldest record kept: 0 unless the run was pruned.
    pub first: Seq,
    /// Kind of the last record.
    pub kind: RecordKind,
    /// The run's status.
    pub status: RunStatus,
    /// How often it has been claimed.
    pub epoch: Epoch,
    /// Who owns it.
    pub owner: Option<ExecutorId>,
    /// Whether that owner's heartbeat had not expired, by the store's clock, when the store answered.
    pub owner_alive: bool,
    /// When it is to be woken.
    pub wake_at: Option<Timestamp>,
    /// Time of the last record, by the writer's clock.
    pub updated: Timestamp,
    /// Facts from the run's start.
    pub facts: RunFacts,
}

impl RunHead {
    /// Creates the head of `run` after `last`, with `first` as the oldest stored record.
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

    /// Returns whether the run was started and no executor has claimed it yet: it waits for capacity. A run that lost or released its executor has
    /// been claimed, so it does not count.
    pub fn is_queued(&self) -> bool {
        self.epoch == Epoch::NEVER && self.status == RunStatus::InProgress
    }

    /// Returns whether the run is finished and has something left to deliver.
    pub fn is_delivering(&self) -> bool {
        self.status.is_finished() && self.wake_at.is_some()
    }

    /// Returns position and id, as the next append must expect them.
    pub fn head(&self) -> HeadRef {
        HeadRef { seq: self.seq, id: self.id }
    }
}

/// Which runs to list: those that meet every condition given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunQuery {
    /// Only runs of this tenant.
    pub tenant: Option<TenantId>,
    /// Only runs of this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only runs for this user. No store is bound to keep an index of users: a listing may read as many runs as the other
    /// conditions leave.
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
    /// Whether an unreadable run fails the listing instead of being omitted; false by default. For a caller that removes data that no listed run
    /// needs.
    pub complete: bool,
}

/// Which runs need an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunFilter {
    /// No condition.
    #[default]
    Any,
    /// In progress, without a wake-up time, and its owner's heartbeat has expired by the store's clock, or it has no owner.
    Orphaned,
    /// Its wake-up time has come by the store's clock, and it has no owner whose heartbeat is alive. A finished run is woken, too: for
    /// what it still has to deliver.
    Due,
}

impl RunQuery {
    /// Returns whether `head` meets the query at the store's time `now`.
    ///
    /// For stores that filter in process, and the yardstick for those that let a server do it.
    pub fn matches(&self, head: &RunHead, now: Timestamp) -> bool {
        self.meets_facts(&head.run, &head.facts)
            && self.meets_standing(&RunStanding::of(head), head.owner_alive, now)
    }

    /// Returns whether the listing fails if this run is unreadable, instead of omitting it.
    ///
    /// For authors of stores, which ask it for such a run.
    pub fn fails_without(&self, run: &RunKey) -> bool {
        self.complete && self.tenant.as_ref().is_none_or(|tenant| *tenant == run.tenant)
    }

    /// Returns whether a run with these facts may match the query, judged by its immutable parts.
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

    /// Returns whether a run that stands so may meet the query at the store's time `now`: as far as what its last record says goes.
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

/// In which order a listing of runs goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest first.
    #[default]
    NewestFirst,
    /// The oldest first.
    OldestFirst,
    /// One of the two, whichever costs the store less; the same one for all pages of a listing.
    Any,
}

/// Which part of a listing to return.
///
/// Runs are ordered by their time of creation, then tenant, then run id. None of these ever changes, so paging with a cursor
/// sees every run that exists throughout exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// At most how many entries to return, 1,000 at most; stores return fewer when asked for more.
    pub limit: NonZeroU32,
    /// Where to go on, from the page before; absent for the first page.
    pub cursor: Option<Cursor>,
    /// In which order.
    pub order: Order,
}

impl Page {
    /// Maximum number of entries in one page, whatever the request.
    pub const MAX: u32 = 1_000;

    /// The first page of at most `limit` entries, newest first; a limit of 0 counts as 1.
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

    /// Goes on from the page before.
    #[must_use]
    pub fn with_cursor(mut self, cursor: Cursor) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// Returns the number of entries that a store is to return at most.
    pub fn len(&self) -> usize {
        self.limit.get().min(Self::MAX) as usize
    }

    /// Always false: a page holds at least one entry.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Default for Page {
    /// The first 50 entries, newest first.
    fn default() -> Self {
        Self::first(50)
    }
}

/// Where a listing goes on. Opaque: only the store that made it reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(String);

impl Cursor {
    /// Wraps a store's own text.
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
    /// The entries, in the order asked for.
    pub items: Vec<T>,
    /// Where to go on; absent when this was the last page.
    pub next: Option<Cursor>,
}
