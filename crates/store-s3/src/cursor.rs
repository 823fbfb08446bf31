//! The text of cursors: which listing one belongs to, and after which entry it goes on.

use ferrata_core::store::{Cursor, Order, RunQuery};
use ferrata_core::{Fingerprint, RunId, RunKey, Seq, TenantId, Timestamp};

use crate::error::Fault;

/// A listing: cursors of another are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listing(Fingerprint);

impl Listing {
    pub(crate) fn of_history(run: &RunKey, order: Order) -> Self {
        Self(Fingerprint::of(format!("history {run} {order:?}").as_bytes()))
    }

    pub(crate) fn of_runs(query: &RunQuery, order: Order) -> Self {
        Self(Fingerprint::of(format!("runs {query:?} {order:?}").as_bytes()))
    }

    fn cursor(self, place: impl std::fmt::Display) -> Cursor {
        Cursor::new(format!("{}.{place}", self.0))
    }

    fn place(self, cursor: &Cursor) -> Result<&str, Fault> {
        let (listing, place) = cursor.as_str().split_once('.').ok_or(Fault::Cursor)?;
        if listing.parse().is_ok_and(|listing: Fingerprint| listing == self.0) {
            Ok(place)
        } else {
            Err(Fault::Cursor)
        }
    }
}

/// A place in a history: a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeqPlace(pub(crate) Seq);

impl SeqPlace {
    pub(crate) fn cursor(self, listing: Listing) -> Cursor {
        listing.cursor(self.0)
    }

    pub(crate) fn read(listing: Listing, cursor: &Cursor) -> Result<Self, Fault> {
        let number = listing.place(cursor)?.parse().map_err(|_| Fault::Cursor)?;
        Ok(Self(Seq::new(number)))
    }
}

/// A place among runs, which are ordered by the time of their creation, then by tenant, then by id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunPlace {
    pub(crate) created: Timestamp,
    pub(crate) run: RunKey,
}

impl RunPlace {
    pub(crate) fn cursor(&self, listing: Listing) -> Cursor {
        listing.cursor(format_args!("{}.{}", self.created.unix_ms(), self.run))
    }

    pub(crate) fn read(listing: Listing, cursor: &Cursor) -> Result<Self, Fault> {
        let (created, run) = listing.place(cursor)?.split_once('.').ok_or(Fault::Cursor)?;
        let (tenant, run) = run.split_once('/').ok_or(Fault::Cursor)?;
        let created = created.parse().map_err(|_| Fault::Cursor)?;
        let tenant = TenantId::new(tenant).map_err(|_| Fault::Cursor)?;
        let run = RunId::new(run).map_err(|_| Fault::Cursor)?;
        Ok(Self { created: Timestamp::from_unix_ms(created), run: RunKey::new(tenant, run) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_in_its_own_listing_only() {
        let run = RunKey::new(TenantId::new("t:.-_").unwrap(), RunId::new("r:1.2").unwrap());
        let listing = Listing::of_history(&run, Order::NewestFirst);
        let place = SeqPlace(Seq::new(7));
        let cursor = place.cursor(listing);
        assert_eq!(SeqPlace::read(listing, &cursor).unwrap(), place);
        let other = Listing::of_history(&run, Order::OldestFirst);
        assert!(SeqPlace::read(other, &cursor).is_err());

        let listing = Listing::of_runs(&RunQuery::default(), Order::NewestFirst);
        let place = RunPlace { created: Timestamp::from_unix_ms(-5), run };
        let cursor = place.cursor(listing);
        assert_eq!(RunPlace::read(listing, &cursor).unwrap(), place);
        let mut query = RunQuery::default();
        query.labels.push(("a".into(), "b".into()));
        assert!(RunPlace::read(Listing::of_runs(&query, Order::NewestFirst), &cursor).is_err());
    }

    #[test]
    fn other_text_is_refused() {
        let listing = Listing::of_runs(&RunQuery::default(), Order::NewestFirst);
        for place in ["", ".", "x", "1", "1.", "1.a", "1.a/", "1./a", "1.../a", "1.a/..", "x.a/b"] {
            assert!(RunPlace::read(listing, &listing.cursor(place)).is_err(), "{place}");
            assert!(RunPlace::read(listing, &Cursor::new(place)).is_err(), "{place}");
        }
        for place in ["", "-1", "1.", ".1", "x", "18446744073709551616"] {
            assert!(SeqPlace::read(listing, &listing.cursor(place)).is_err(), "{place}");
        }
    }
}
