//! Ids that are the same in every execution of a test.

use std::sync::atomic::{AtomicU64, Ordering};

use ferrata_store::{IdSource, Timestamp};
use uuid::Uuid;

/// Ids that count up from a seed. The n-th id of a seed is always the same.
///
/// The seed is in the third and fourth group of the id, and the count in the last group, so both are easy to recognize in a failure. Sources for
/// the same store need different seeds below 2²⁶: two sources with the same seed produce the same ids, which processes must never do.
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
    /// Creates a source. The count in its first id is 1.
    pub fn new(seed: u64) -> Self {
        Self { seed, count: AtomicU64::new(0) }
    }
}

impl IdSource for SeqIds {
    fn next(&self, now: Timestamp) -> Uuid {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        // Version and variant overwrite the upper bits of the first and the third of these ten bytes. The remaining bits of the first four bytes,
        // 12 and 14, hold the seed. The other six bytes hold the count, which no test exhausts.
        let [.., upper, lower] = (self.seed >> 14 & 0xFFF).to_be_bytes();
        let [.., third, fourth] = (self.seed & 0x3FFF).to_be_bytes();
        let [_, _, c0, c1, c2, c3, c4, c5] = count.to_be_bytes();
        let random = [upper, lower, third, fourth, c0, c1, c2, c3, c4, c5];
        let ms = u64::try_from(now.unix_ms()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid()
    }
}
