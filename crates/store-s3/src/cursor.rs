//! A place in a history.

use ferrata_store::{Cursor, Listing, Result, Seq};

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeqPlace(pub(crate) Seq);

impl SeqPlace {
    pub(crate) fn cursor(self, listing: Listing) -> Cursor {
        listing.cursor(self.0)
    }

    pub(crate) fn read(listing: Listing, cursor: &Cursor) -> Result<Self> {
        let number = listing.place(cursor)?.parse().map_err(|_| Listing::foreign())?;
        Ok(Self(Seq::new(number)))
    }
}

#[cfg(test)]
mod tests {
    use ferrata_store::{Order, RunId, RunKey, TenantId};

    use super::*;

    #[test]
    fn only_the_cursor_of_the_listing_is_read() {
        let run = RunKey::new(TenantId::new("t:.-_").unwrap(), RunId::new("r:1.2").unwrap());
        let listing = Listing::of_history(&run, Order::NewestFirst);
        let place = SeqPlace(Seq::new(7));
        let cursor = place.cursor(listing);
        assert_eq!(SeqPlace::read(listing, &cursor).unwrap(), place);
        assert!(SeqPlace::read(Listing::of_history(&run, Order::OldestFirst), &cursor).is_err());
        for place in ["", "-1", "1.", ".1", "x", "18446744073709551616"] {
            assert!(SeqPlace::read(listing, &listing.cursor(place)).is_err(), "{place}");
        }
    }
}
