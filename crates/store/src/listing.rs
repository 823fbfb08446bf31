//! The cursors of all stores: which listing one belongs to, and after which entry it goes on.

use std::fmt::Display;

use super::query::{Cursor, Order, Page, Paged, RunHead, RunQuery};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, RunId, RunKey, TenantId};

/// A listing, as its cursors name it; one of another listing is refused.
///
/// ```
/// use ferrata_store::{Listing, Order, RunQuery};
///
/// let listing = Listing::of_runs(&RunQuery::default(), Order::NewestFirst);
/// let cursor = listing.cursor("after this");
/// assert_eq!(listing.place(&cursor)?, "after this");
/// assert!(Listing::of_runs(&RunQuery::default(), Order::OldestFirst).place(&cursor).is_err());
/// # Ok::<(), ferrata_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing(Fingerprint);

impl Listing {
    /// The history of a run.
    pub fn of_history(run: &RunKey, order: Order) -> Self {
        Self(Fingerprint::of(format!("history {run} {order:?}").as_bytes()))
    }

    /// The runs that a query finds.
    pub fn of_runs(query: &RunQuery, order: Order) -> Self {
        Self(Fingerprint::of(format!("runs {query:?} {order:?}").as_bytes()))
    }

    /// Makes a cursor of a place, in a store's own words.
    pub fn cursor(self, place: impl Display) -> Cursor {
        Cursor::new(format!("{}.{place}", self.0))
    }

    /// Returns the place that a cursor of this listing names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is of another listing, or no cursor at all.
    pub fn place(self, cursor: &Cursor) -> Result<&str> {
        let (listing, place) = cursor.as_str().split_once('.').ok_or_else(Self::foreign)?;
        let own = listing.parse().is_ok_and(|listing: Fingerprint| listing == self.0);
        own.then_some(place).ok_or_else(Self::foreign)
    }

    /// Returns the place after which a page begins; `None` for the first page.
    ///
    /// # Errors
    ///
    /// As [`place`](Self::place).
    pub fn after(self, page: &Page) -> Result<Option<RunPlace>> {
        page.cursor.as_ref().map(|cursor| RunPlace::read(self, cursor)).transpose()
    }

    /// Makes a page of the runs that follow its place, in its order: of at least [`Page::len`] and one more, if there are so many. The
    /// one more tells that another page follows.
    pub fn cut(self, page: &Page, mut heads: Vec<RunHead>) -> Paged<RunHead> {
        let is_more = heads.len() > page.len();
        heads.truncate(page.len());
        let next = heads.last().filter(|_| is_more).map(|last| RunPlace::of(last).cursor(self));
        Paged { items: heads, next }
    }

    /// Returns the error for a cursor of another listing.
    pub fn foreign() -> Error {
        Error::new(ErrorKind::Invalid, "the cursor belongs to another listing; start at the first page")
    }
}

/// A place among runs, in the order in which stores list them: by the time of their creation, then by tenant, then by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPlace {
    /// When the run was created.
    pub created: Timestamp,
    /// The run.
    pub run: RunKey,
}

impl RunPlace {
    /// Returns the place of a run.
    pub fn of(head: &RunHead) -> Self {
        Self { created: head.facts.created, run: head.run.clone() }
    }

    /// Returns the cursor that goes on after it.
    pub fn cursor(&self, listing: Listing) -> Cursor {
        listing.cursor(format_args!("{}.{}", self.created.unix_ms(), self.run))
    }

    /// Reads what [`cursor`](Self::cursor) made.
    ///
    /// # Errors
    ///
    /// As [`Listing::place`].
    pub fn read(listing: Listing, cursor: &Cursor) -> Result<Self> {
        let parse = |text: &str| {
            let (created, run) = text.split_once('.')?;
            let (tenant, run) = run.split_once('/')?;
            let created = Timestamp::from_unix_ms(created.parse().ok()?);
            let run = RunKey::new(TenantId::new(tenant).ok()?, RunId::new(run).ok()?);
            Some(Self { created, run })
        };
        parse(listing.place(cursor)?).ok_or_else(Listing::foreign)
    }
}

/// Lists a page of the runs that match a query at the store's time `now`, out of all runs of the store, in any order: an implementation of
/// [`runs`](super::CheckpointStore::runs) for a store that can iterate over its heads.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] for a cursor of another listing.
///
/// # Examples
///
/// ```
/// use ferrata_store::{Order, Page, Paged, Result, RunHead, RunQuery, SystemClock, Clock as _, page};
///
/// fn runs(heads: &[RunHead], query: &RunQuery, asked: &Page) -> Result<Paged<RunHead>> {
///     page(query, asked, SystemClock::new().now(), heads.iter().cloned())
/// }
/// assert!(runs(&[], &RunQuery::default(), &Page::first(10))?.next.is_none());
/// # Ok::<(), ferrata_store::Error>(())
/// ```
pub fn page(
    query: &RunQuery,
    page: &Page,
    now: Timestamp,
    heads: impl IntoIterator<Item = RunHead>,
) -> Result<Paged<RunHead>> {
    let listing = Listing::of_runs(query, page.order);
    let after = listing.after(page)?;
    let is_next = |place: &RunPlace| match (&after, page.order) {
        (None, _) => true,
        (Some(after), Order::NewestFirst) => place < after,
        (Some(after), Order::OldestFirst | Order::Any) => place > after,
    };
    let meets = |head: &RunHead| query.matches(head, now) && is_next(&RunPlace::of(head));
    let mut heads: Vec<RunHead> = heads.into_iter().filter(meets).collect();
    heads.sort_by_cached_key(RunPlace::of);
    if page.order == Order::NewestFirst {
        heads.reverse();
    }
    Ok(listing.cut(page, heads))
}
