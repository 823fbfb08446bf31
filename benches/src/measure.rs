//! Measures a workload and its bare reference in turn, round after round, so that other load of the machine affects both.

use std::time::{Duration, Instant};

use anyhow::Result;

/// The minimum, median and maximum of several measurements.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Computes the spread of measurements. Without measurements, all three values are NaN.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        Self { median: f64::midpoint(at(last / 2), at(last.div_ceil(2))), min: at(0), max: at(last) }
    }

    /// Creates the spread of a single measurement.
    pub(crate) fn one(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }
}

/// A workload and its reference: the cost of one unit of each in microseconds, and their difference in each round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) ours: Spread,
    pub(crate) theirs: Spread,
    /// The workload's cost divided by the reference's cost, by round.
    pub(crate) ratio: Spread,
    /// The workload's cost minus the reference's cost, by round.
    pub(crate) extra: Spread,
}

impl Pair {
    /// Computes a pair from rounds. Each round has the time of the workload and the time of the reference.
    pub(crate) fn of(figures: &[(f64, f64)]) -> Self {
        Self {
            ours: Spread::of(figures.iter().map(|(ours, _)| *ours)),
            theirs: Spread::of(figures.iter().map(|(_, theirs)| *theirs)),
            ratio: Spread::of(figures.iter().map(|(ours, theirs)| ours / theirs)),
            extra: Spread::of(figures.iter().map(|(ours, theirs)| ours - theirs)),
        }
    }
}

/// Returns the current time.
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures the machine")]
    Instant::now()
}

/// The number of rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// The number of rounds before the counted ones, to warm up.
    pub(crate) warm: u32,
    pub(crate) counted: u32,
}

impl Rounds {
    /// Creates `counted` rounds after one round that does not count.
    pub(crate) fn warm(counted: u32) -> Self {
        Self { warm: 1, counted }
    }

    /// Creates `counted` rounds without a warm-up, for workloads that take minutes.
    pub(crate) fn cold(counted: u32) -> Self {
        Self { warm: 0, counted }
    }
}

/// Measures two workloads in turn.
///
/// The order changes from round to round. `units` is the number of reported units in one call of each workload.
pub(crate) async fn in_turn(
    rounds: Rounds,
    units: [f64; 2],
    mut ours: impl AsyncFnMut() -> Result<()>,
    mut theirs: impl AsyncFnMut() -> Result<()>,
) -> Result<Pair> {
    let mut figures = Vec::new();
    for round in 0..rounds.warm + rounds.counted {
        let (mine, other);
        if round % 2 == 0 {
            mine = timed(&mut ours).await?;
            other = timed(&mut theirs).await?;
        } else {
            other = timed(&mut theirs).await?;
            mine = timed(&mut ours).await?;
        }
        if round >= rounds.warm {
            figures.push((micros(mine) / units[0], micros(other) / units[1]));
        }
    }
    Ok(Pair::of(&figures))
}

async fn timed(work: &mut impl AsyncFnMut() -> Result<()>) -> Result<Duration> {
    let begun = now();
    work().await?;
    Ok(begun.elapsed())
}

/// Returns a duration in microseconds.
pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert!(Spread::of([]).median.is_nan());
    }

    #[tokio::test]
    async fn each_round_measures_both_and_the_first_does_not_count() {
        let calls = std::cell::RefCell::new(String::new());
        let call = |name| calls.borrow_mut().push(name);
        let pair = in_turn(
            Rounds::warm(2),
            [1.0, 1.0],
            async || {
                call('o');
                Ok(())
            },
            async || {
                call('t');
                Ok(())
            },
        );
        let pair = pair.await.unwrap();
        assert_eq!(calls.into_inner(), "ottoot");
        assert!(pair.ratio.min <= pair.ratio.median && pair.ratio.median <= pair.ratio.max);
    }
}
