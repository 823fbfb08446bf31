//! Decides which records become bases. A base is a record with the full state of the run.
//!
//! A record becomes a base when the log since the last base is larger than [`BASE_FLOOR`], and larger than [`BASE_FACTOR`] (`F`) times a base of the
//! current state. To check this, the code encodes a base. Checks are rare: the next check follows `F * B` bytes after a base of `B` bytes, and `(F +
//! 1) * m` bytes after a check in which the encoded base had `m` bytes. For any state:
//!
//! - All bases take at most `1 / F` of the size of the records. Each base follows at least `F` times its size of records.
//! - Checks encode at most twice the bytes that the run writes, because at least `m` bytes of records are written between two checks, where the first
//!   check found at most `F * m` bytes.
//! - A load reads at most `2 + F` times the size at the last check, and [`BASE_FLOOR`]. The last base has at most `m` bytes, because the check came
//!   above `F` times its size. At most `(F + 1) * m` bytes follow it.
//!
//! If the code compared the log with the size of the last base instead, it would write the full state of a growing run again and again.

use crate::engine::fold::ReplayedRun;

/// The cost of reading and folding one record in addition to its bytes, in bytes.
pub(super) const RECORD_COST: u64 = 64;

/// The number of times its own size that a base waits for. See the module for the consequences.
pub(super) const BASE_FACTOR: u64 = 4;

/// Smaller logs are read whole: a base would save nothing.
pub(super) const BASE_FLOOR: u64 = 16 * 1024;

/// The bytes written since the last base, and the size at which to check for the next one.
///
/// A check costs as much as encoding a base. It therefore waits until the log exceeds the last base, or the size found at the last check. Its cost
/// is then proportional to the bytes written meanwhile.
#[derive(Debug)]
pub(super) struct Bases {
    since: u64,
    look_above: u64,
}

impl Bases {
    /// Starts without a base. The first record always is one.
    pub(super) fn new() -> Self {
        Self { since: 0, look_above: u64::MAX }
    }

    /// Continues after a load. The results of checks are not stored, so the first eligible record checks again.
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

    /// Postpones the next check until the log grows by the same amount: the state was too large for a base.
    pub(super) fn postpone_check(&mut self) {
        self.look_above = self.look_above.max(self.since.saturating_mul(2));
    }

    /// Records a written base.
    pub(super) fn wrote_base(&mut self, bytes: u64) {
        (self.since, self.look_above) = (0, BASE_FLOOR.max(BASE_FACTOR * bytes));
    }

    /// Records a written record that is not a base.
    pub(super) fn record_written(&mut self, bytes: u64) {
        self.since += bytes + RECORD_COST;
    }
}
