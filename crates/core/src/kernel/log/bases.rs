//! Decides which records become bases. A base is a record with the full state of the run.
//!
//! A record becomes a base when the log since the last base is larger than [`BASE_FLOOR`], and larger than [`BASE_FACTOR`] (`F`) times a base of the
//! current state. To check this, the code encodes a base. Checks are rare: the next check follows `F * B` bytes after a base of `B` bytes, and
//! `(F + 1) * m` bytes after a check in which the encoded base had `m` bytes. For any state:
//!
//! - All bases take at most `1 / F` of the size of the records. Each base follows at least `F` times its size of records.
//! - Checks encode at most twice the bytes that the run writes. The reason: if a check found at most `F * m` bytes, at least `m` bytes of records
//!   follow before the next check.
//! - A load reads at most `2 + F` times the size at the last check, and [`BASE_FLOOR`]. The last base has at most `m` bytes, because the check came
//!   above `F` times its size. At most `(F + 1) * m` bytes follow it.
//!
//! If the code compared the log with the size of the last base instead, it would write the full state of a growing run again and again.

use crate::engine::fold::ReplayedRun;

/// The additional cost of reading and replaying one record, expressed in bytes.
pub(super) const RECORD_COST: u64 = 64;

/// A base is appended when the log since the last base is larger than this number times the size of the new base. The module describes the
/// consequences.
pub(super) const BASE_FACTOR: u64 = 4;

/// A log that is smaller than this has no further base, because reading it from the start costs little.
pub(super) const BASE_FLOOR: u64 = 16 * 1024;

/// The number of bytes that were appended since the last base, and the log size at which the code next checks whether a base is due.
///
/// A check costs as much as encoding a base. So the next check waits until the log has grown by an amount in proportion to the size of the last base,
/// or to the size that the last check found. The cost of the checks is then in proportion to the bytes that were appended.
#[derive(Debug)]
pub(super) struct Bases {
    since: u64,
    look_above: u64,
}

impl Bases {
    /// Creates the state of a new log, which has no base. The first record is always a base.
    pub(super) fn new() -> Self {
        Self { since: 0, look_above: u64::MAX }
    }

    /// Creates the state of a loaded log. The results of checks are not stored, so the first record for which a check may be due is checked again.
    pub(super) fn after(folded: &ReplayedRun) -> Self {
        let mut bases = Self::new();
        bases.wrote_base(folded.base_bytes);
        bases.since = folded.since_bytes + RECORD_COST * folded.since_records;
        bases
    }

    /// Returns whether to check the size of a base.
    pub(super) fn is_check_due(&self) -> bool {
        self.since > self.look_above
    }

    /// Returns whether a base of this size is due.
    pub(super) fn is_due(&mut self, weight: u64) -> bool {
        if self.since > BASE_FACTOR * weight {
            return true;
        }
        // F + 1, not F: a state that grows by a quarter of each write would be encoded at every record.
        self.look_above = BASE_FLOOR.max((BASE_FACTOR + 1) * weight);
        false
    }

    /// Postpones the next check until the log has grown by the same amount again, because the state was too large for a base.
    pub(super) fn postpone_check(&mut self) {
        self.look_above = self.look_above.max(self.since.saturating_mul(2));
    }

    /// Notes that a base of this size was appended.
    pub(super) fn wrote_base(&mut self, bytes: u64) {
        (self.since, self.look_above) = (0, BASE_FLOOR.max(BASE_FACTOR * bytes));
    }

    /// Notes that a record of this size was appended that is not a base.
    pub(super) fn record_written(&mut self, bytes: u64) {
        self.since += bytes + RECORD_COST;
    }
}
