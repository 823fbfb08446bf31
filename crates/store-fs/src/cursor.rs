//! A place in a history, with a hint where its line begins.

use ferrata_store::{Cursor, Listing, Result, Seq};

/// A record, and where its line begins, as a hint that saves looking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    pub(crate) seq: Seq,
    pub(crate) at: u64,
}

impl RecordPlace {
    pub(crate) fn cursor(self, listing: Listing) -> Cursor {
        listing.cursor(format_args!("{}.{}", self.seq, self.at))
    }

    pub(crate) fn read(listing: Listing, cursor: &Cursor) -> Result<Self> {
        let parse = |text: &str| {
            let (seq, at) = text.split_once('.')?;
            Some(Self { seq: Seq::new(seq.parse().ok()?), at: at.parse().ok()? })
        };
        parse(listing.place(cursor)?).ok_or_else(Listing::foreign)
    }
}

#[cfg(test)]
mod tests {
    use ferrata_store::{Order, RunId, RunKey, TenantId};

    use super::*;

    fn listing(order: Order) -> Listing {
        let run = RunKey::new(TenantId::new("t:.-_").unwrap(), RunId::new("r:1.2").unwrap());
        Listing::of_history(&run, order)
    }

    #[test]
    fn a_cursor_comes_back_in_its_own_listing_only() {
        let place = RecordPlace { seq: Seq::new(7), at: 1_234 };
        let cursor = place.cursor(listing(Order::NewestFirst));
        assert_eq!(RecordPlace::read(listing(Order::NewestFirst), &cursor).unwrap(), place);
        assert!(RecordPlace::read(listing(Order::OldestFirst), &cursor).is_err());
    }

    #[test]
    fn other_text_is_refused() {
        let listing = listing(Order::NewestFirst);
        for place in ["", "1", "1.", ".1", "-1.1", "1.x"] {
            assert!(RecordPlace::read(listing, &listing.cursor(place)).is_err(), "{place}");
        }
    }
}
