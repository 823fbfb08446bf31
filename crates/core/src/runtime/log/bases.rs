//! Decides which records become bases.
//!
//! A record becomes a base when the log since the last base outweighs [`BASE_FACTOR`] (`F`) bases of the present state, and [`BASE_FLOOR`].
//! A check of that encodes a base. Checks are rare: the next one follows a base of `B` bytes after `F * B` bytes, and a check that
//! found `m` bytes after `(F + 1) * m` bytes. For any state:
//!
//! - All bases take at most `1 / F` of the records. Each base has `F` times its size of records in front of it.
//! - Checks encode at most twice what the run writes. Between two checks lie at least `m` bytes: the first saw at most `F * m`.
//! - A load reads at most `2 + F` times the size at the last check, and [`BASE_FLOOR`]. The last base has at most `m` bytes, because the check
//!   came above `F` times its size. At most `(F + 1) * m` bytes follow it.
//!
//! A comparison with the size of the last base would copy a growing state again and again.

use crate::engine::fold::ReplayedRun;

/// What reading and folding one record costs beside its bytes, in bytes.
pub(super) const RECORD_COST: u64 = 64;

/// How many times its own size a base waits for. The module says what follows.
pub(super) const BASE_FACTOR: u64 = 4;

/// Smaller logs than this are read whole: a base would save nothing.
pub(super) const BASE_FLOOR: u64 = 16 * 1024;

/// What was written since the last base, and when to look next whether another is due.
///
/// To look takes as long as to write a base without storing it. So it waits until the last base, or what was found at the last
/// look, is outweighed: then that time is in proportion to what was written meanwhile.
#[derive(Debug)]
pub(super) struct Bases {
    since: u64,
    look_above: u64,
}

impl Bases {
    /// Begins with no base; the first record is one in any case.
    pub(super) fn new() -> Self {
        Self { since: 0, look_above: u64::MAX }
    }

    /// Goes on after what was loaded. What was found at looks is not stored: the next record that may, looks anew.
    pub(super) fn after(folded: &ReplayedRun) -> Self {
        let mut bases = Self::new();
        bases.wrote_base(folded.base_bytes);
        bases.since = folded.since_bytes + RECORD_COST * folded.since_records;
        bases
    }

    /// Whether it is time to see what a base would weigh.
    pub(super) fn is_time_to_look(&self) -> bool {
        self.since > self.look_above
    }

    /// Tells whether a base is due that would weigh so much.
    pub(super) fn is_due(&mut self, weight: u64) -> bool {
        if self.since > BASE_FACTOR * weight {
            return true;
        }
        // F + 1, not F: a state growing by a quarter of what is written would be encoded at every record.
        self.look_above = BASE_FLOOR.max((BASE_FACTOR + 1) * weight);
        false
    }

    /// Looks again when as much more was written: the state was too large for a base.
    pub(super) fn put_off(&mut self) {
        self.look_above = self.look_above.max(self.since.saturating_mul(2));
    }

    /// Takes in that a base was written.
    pub(super) fn wrote_base(&mut self, bytes: u64) {
        (self.since, self.look_above) = (0, BASE_FLOOR.max(BASE_FACTOR * bytes));
    }

    /// Takes in that a record was written that is none.
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.since += bytes + RECORD_COST;
    }
}
