//! How the time is divided among the proofs, and how many cases fit into the share of one.

use std::time::Duration;

/// Returns the share of the remaining time of a proof. `weights` are those of the proof and of all proofs after it.
///
/// A proof that took longer or shorter than its share changes the shares of all proofs after it.
pub(super) fn share(remaining: Duration, weights: &[u32]) -> Duration {
    let all: u32 = weights.iter().sum();
    weights.first().map_or(Duration::ZERO, |own| remaining * *own / all.max(1))
}

/// How many times the first batch a larger one has at least. Tests check that everything occurred if they have enough cases, and with only a few
/// cases more than enough, a rare event may be missing by chance.
const STEP: u64 = 16;

/// Returns the number of cases that fill the rest of a share, or `None` if so little is left that the proof is done.
///
/// `first_batch` is too small for checks that everything occurred.
pub(super) fn next_batch(share: Duration, took: Duration, cases: u64, first_batch: u64) -> Option<u64> {
    let left = share.saturating_sub(took).as_millis();
    let next = u64::try_from(left * u128::from(cases) / took.as_millis().max(1)).unwrap_or(u64::MAX);
    // A smaller batch would cost more for its start than it finds.
    let next = (next >= first_batch.div_ceil(2)).then_some(next)?;
    Some(if next < first_batch.saturating_mul(STEP) { next.min(first_batch) } else { next })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn share_follows_weights_and_time_that_is_left() {
        assert_eq!(share(SECOND * 60, &[1, 2, 3]), SECOND * 10);
        assert_eq!(share(SECOND * 60, &[3]), SECOND * 60);
        assert_eq!(share(Duration::ZERO, &[3, 1]), Duration::ZERO);
        assert_eq!(share(SECOND, &[]), Duration::ZERO);
    }

    #[test]
    fn batch_fills_rest_of_share_at_measured_pace() {
        assert_eq!(next_batch(SECOND * 100, SECOND * 20, 50, 50), Some(50));
        assert_eq!(next_batch(SECOND * 100, SECOND * 4, 50, 50), Some(1_200));
        assert_eq!(next_batch(SECOND * 100, SECOND * 60, 50, 50), Some(33));
        // The first batch took the whole share, or nearly.
        assert_eq!(next_batch(SECOND * 10, SECOND * 20, 50, 50), None);
        assert_eq!(next_batch(SECOND * 10, SECOND * 9, 50, 50), None);
        assert_eq!(next_batch(SECOND, Duration::ZERO, 5, 5), Some(5_000));
    }
}
