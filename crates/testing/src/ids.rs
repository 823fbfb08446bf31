//! Ids that are the same in every run of a test.

use std::sync::atomic::{AtomicU64, Ordering};

use ferrata_store::{IdSource, Timestamp};
use uuid::Uuid;

/// Ids counted up from a seed: the n-th id of a seed is always the same.
///
/// The seed stands in the third and fourth group, the count in the last, so that they can be told apart in a failure. Sources
/// that live in one store need different seeds below 2²⁶; two of the same seed give the same ids, as no two processes may.
///
/// ```
/// use ferrata_testing::SeqIds;
/// use ferrata_store::{IdSource, Timestamp};
///
/// let ids = SeqIds::new(7);
/// assert_eq!(ids.next(Timestamp::from_unix_ms(0)).to_string(), "00000000-0000-7000-8007-000000000001");
/// assert_eq!(ids.next(Timestamp::from_unix_ms(0)).to_string(), "00000000-0000-7000-8007-000000000002");
/// ```
#[derive(Debug)]
pub struct SeqIds {
    seed: u64,
    count: AtomicU64,
}

impl SeqIds {
    /// Makes a source whose first id holds the count 1.
    pub fn new(seed: u64) -> Self {
        Self { seed, count: AtomicU64::new(0) }
    }
}

impl IdSource for SeqIds {
    fn next(&self, now: Timestamp) -> Uuid {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        // Version and variant overwrite the upper bits of the first and the third of these ten bytes. What is left of the first
        // four, 12 and 14 bits, holds the seed; the other six hold the count, which no test exhausts.
        let [.., upper, lower] = (self.seed >> 14 & 0xFFF).to_be_bytes();
        let [.., third, fourth] = (self.seed & 0x3FFF).to_be_bytes();
        let [_, _, c0, c1, c2, c3, c4, c5] = count.to_be_bytes();
        let random = [upper, lower, third, fourth, c0, c1, c2, c3, c4, c5];
        let ms = u64::try_from(now.unix_ms()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid()
    }
}
