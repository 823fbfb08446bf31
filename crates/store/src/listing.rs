//! The cursors of all stores: which listing one belongs to, and after which entry it goes on.

use std::fmt::Display;

use super::query::{Cursor, Order, RunHead, RunQuery};
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
    ///
    /// <!-- held by: listing::a_cursor_comes_back_in_its_own_listing_only -->
    pub fn place(self, cursor: &Cursor) -> Result<&str> {
        let (listing, place) = cursor.as_str().split_once('.').ok_or_else(Self::foreign)?;
        let own = listing.parse().is_ok_and(|listing: Fingerprint| listing == self.0);
        own.then_some(place).ok_or_else(Self::foreign)
    }

    /// Returns the error for a cursor that is not of the listing it is given to.
    pub fn foreign() -> Error {
        Error::new(ErrorKind::Invalid, "the cursor is not of this listing; start at its first page")
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
    ///
    /// <!-- held by: listing::a_cursor_comes_back_in_its_own_listing_only -->
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_in_its_own_listing_only() {
        let run = RunKey::new(TenantId::new("t:.-_").unwrap(), RunId::new("r:1.2").unwrap());
        let listing = Listing::of_runs(&RunQuery::default(), Order::NewestFirst);
        let place = RunPlace { created: Timestamp::from_unix_ms(-5), run: run.clone() };
        let cursor = place.cursor(listing);
        assert_eq!(RunPlace::read(listing, &cursor).unwrap(), place);
        let mut query = RunQuery::default();
        query.labels.push(("a".into(), "b".into()));
        for other in [
            Listing::of_runs(&query, Order::NewestFirst),
            Listing::of_runs(&RunQuery::default(), Order::OldestFirst),
            Listing::of_history(&run, Order::NewestFirst),
        ] {
            assert_eq!(RunPlace::read(other, &cursor).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn other_text_is_refused() {
        let listing = Listing::of_runs(&RunQuery::default(), Order::NewestFirst);
        for place in ["", ".", "x", "1", "1.", "1.a", "1.a/", "1./a", "1.../a", "1.a/..", "x.a/b"] {
            assert!(RunPlace::read(listing, &listing.cursor(place)).is_err(), "{place}");
            assert!(RunPlace::read(listing, &Cursor::new(place)).is_err(), "{place}");
        }
    }
}
