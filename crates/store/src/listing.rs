//! The cursors of all stores. A cursor contains its listing and the entry after which the listing continues.

use std::fmt::Display;

use super::query::{Cursor, Order, Page, Paged, RunHead, RunQuery};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, RunId, RunKey, TenantId};

/// The identity of a listing, which is part of its cursors. A listing refuses a cursor of another listing.
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
    /// Returns the listing of the history of a run.
    #[doc(hidden)]
    pub fn of_history(run: &RunKey, order: Order) -> Self {
        Self(Fingerprint::of(format!("history {run} {order:?}").as_bytes()))
    }

    /// Returns the listing of the runs that match a query.
    pub fn of_runs(query: &RunQuery, order: Order) -> Self {
        Self(Fingerprint::of(format!("runs {query:?} {order:?}").as_bytes()))
    }

    /// Creates a cursor for a position. `place` is the position in a form that only the store reads.
    pub fn cursor(self, place: impl Display) -> Cursor {
        Cursor::new(format!("{}.{place}", self.0))
    }

    /// Returns the position in a cursor of this listing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the cursor belongs to another listing, or is not a cursor.
    pub fn place(self, cursor: &Cursor) -> Result<&str> {
        let (listing, place) = cursor.as_str().split_once('.').ok_or_else(Self::foreign)?;
        let own = listing.parse().is_ok_and(|listing: Fingerprint| listing == self.0);
        own.then_some(place).ok_or_else(Self::foreign)
    }

    /// Returns the position after which a page begins; `None` for the first page.
    ///
    /// # Errors
    ///
    /// The errors of [`place`](Self::place).
    pub fn after(self, page: &Page) -> Result<Option<RunPlace>> {
        page.cursor.as_ref().map(|cursor| RunPlace::read(self, cursor)).transpose()
    }

    /// Creates a page from the runs after the page's position, in the page's order. If more runs exist, `heads` must have at least one more than
    /// [`Page::max_items`]: the extra run shows that another page follows.
    pub fn cut(self, page: &Page, mut heads: Vec<RunHead>) -> Paged<RunHead> {
        let is_more = heads.len() > page.max_items();
        heads.truncate(page.max_items());
        let next = heads.last().filter(|_| is_more).map(|last| RunPlace::of(last).cursor(self));
        Paged { items: heads, next }
    }

    /// Returns the error for a cursor of another listing.
    #[doc(hidden)]
    pub fn foreign() -> Error {
        Error::new(ErrorKind::Invalid, "the cursor belongs to another listing; start at the first page")
    }
}

/// The position of a run in listings. Stores list runs by time of creation, then tenant, then id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPlace {
    /// The time at which the run was created.
    pub created: Timestamp,
    /// The run.
    pub run: RunKey,
}

impl RunPlace {
    /// Returns the position of a run.
    pub fn of(head: &RunHead) -> Self {
        Self { created: head.facts.created, run: head.run.clone() }
    }

    /// Returns the cursor that continues after this position.
    pub fn cursor(&self, listing: Listing) -> Cursor {
        listing.cursor(format_args!("{}.{}", self.created.unix_ms(), self.run))
    }

    /// Decodes a cursor that [`cursor`](Self::cursor) made.
    ///
    /// # Errors
    ///
    /// The errors of [`Listing::place`].
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

/// Lists one page of the runs that match a query at the store's time `now`. The input is all runs of the store, in any order. A store that can
/// iterate over its heads can implement [`runs`](super::CheckpointStore::runs) with it.
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
