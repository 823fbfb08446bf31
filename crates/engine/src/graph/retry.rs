//! Retry policies, which decide whether another attempt follows a failed attempt.

use std::time::Duration;

/// The maximum delay of every preset. It is a compromise: it is long for a user who waits, and short for a service that recovers.
const CAP: Duration = Duration::from_secs(60);

/// The jitter of every preset. Delays are between half and one and a half times the delay without jitter.
const JITTER: f64 = 0.5;

/// A retry policy: the maximum number of attempts of an activation, and the delay after each failed attempt.
///
/// The delay after the `n`-th failed attempt is `delay * factor^(n-1)`. The delay is then changed at random by the jitter, and limited to the cap.
/// The random part is computed from a seed, so after a crash the resumed run waits as long as the run would have waited without the crash.
///
/// | preset | attempts | first delay | factor |
/// |---|---|---|---|
/// | [`none`](Self::none), the default | 1 | | |
/// | [`standard`](Self::standard) | 5 | 200 ms | 2 |
/// | [`aggressive`](Self::aggressive) | 5 | 500 ms | 2 |
/// | [`linear`](Self::linear) | 3 | 500 ms | 1 |
/// | [`patient`](Self::patient) | 3 | 2 s | 3 |
///
/// All presets have a jitter of 0.5 and a cap of 60 s.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ferrata_core::graph::RetryPolicy;
///
/// let policy = RetryPolicy::standard().with_attempts(3).with_jitter(0.0);
/// assert_eq!(policy.delay(1, 7), Duration::from_millis(200));
/// assert_eq!(policy.delay(2, 7), Duration::from_millis(400));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    attempts: u32,
    delay: Duration,
    factor: f64,
    cap: Duration,
    jitter: f64,
}

impl RetryPolicy {
    /// Returns the policy with one attempt, so the first failure is final.
    pub const fn none() -> Self {
        Self::preset(1, Duration::ZERO, 1.0)
    }

    /// Returns the policy with five attempts. The first delay is 200 ms and doubles each time. It is for occasional failures.
    pub const fn standard() -> Self {
        Self::preset(5, Duration::from_millis(200), 2.0)
    }

    /// Returns the policy with five attempts. The first delay is 500 ms and doubles each time. It is for services that need seconds to recover.
    pub const fn aggressive() -> Self {
        Self::preset(5, Duration::from_millis(500), 2.0)
    }

    /// Returns the policy with three attempts and a delay of 500 ms after each failure.
    pub const fn linear() -> Self {
        Self::preset(3, Duration::from_millis(500), 1.0)
    }

    /// Returns the policy with three attempts. The first delay is 2 s and triples each time. It is for services that must not be overloaded.
    pub const fn patient() -> Self {
        Self::preset(3, Duration::from_secs(2), 3.0)
    }

    const fn preset(attempts: u32, delay: Duration, factor: f64) -> Self {
        Self { attempts, delay, factor, cap: CAP, jitter: JITTER }
    }

    /// Sets the maximum number of attempts, including the first, at least 1.
    ///
    /// With more attempts, an activation can succeed after a longer outage. With fewer attempts, a permanent failure is reported sooner.
    #[must_use]
    pub const fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the delay after the first failed attempt. With zero, the next attempt starts at once.
    #[must_use]
    pub const fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the factor by which each further delay is multiplied, at least 1. With 1, the delay stays the same.
    #[must_use]
    pub const fn with_factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Sets the maximum delay. The default is 60 s.
    #[must_use]
    pub const fn with_cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Sets how much delays vary at random, as a fraction of the delay between 0 and 1. The default is 0.5.
    ///
    /// With 0.5, a delay of 1 s becomes a delay between 0.5 s and 1.5 s. If many runs fail at the same time, the jitter spreads their retries over
    /// time. With 0, delays are exact.
    #[must_use]
    pub const fn with_jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// Returns the maximum number of attempts, including the first.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the delay after the attempt with number `attempt_failed` (the first is 1).
    ///
    /// For the same policy, attempt and seed, the delay is the same in every process and on every machine. The delay has whole milliseconds, like
    /// timers.
    pub fn delay(&self, attempt_failed: u32, seed: u64) -> Duration {
        if self.delay.is_zero() {
            return Duration::ZERO;
        }
        let spread = 1.0 + self.jitter * (2.0 * fraction(seed, attempt_failed) - 1.0);
        let seconds =
            self.delay.as_secs_f64() * power(self.factor, attempt_failed.saturating_sub(1)) * spread;
        // A value that does not fit into a duration, is infinite or is NaN exceeds the cap.
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(self.cap).min(self.cap);
        u64::try_from(delay.as_micros().div_ceil(1000)).map_or(delay, Duration::from_millis).min(self.cap)
    }

    /// Returns the problem of the policy and its remedy, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.attempts == 0 {
            return Some("retries with 0 attempts; use at least 1, the first attempt counts".into());
        }
        if !(self.factor >= 1.0 && self.factor.is_finite()) {
            return Some(format!("retries with a factor of {}; use at least 1", self.factor));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Some(format!("retries with a jitter of {}; use 0 to 1", self.jitter));
        }
        None
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::none()
    }
}

/// Computes a power by squaring. Unlike `f64::powi`, it gives the same bits on every machine.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// Mixes seed and attempt into a number from 0 to 1 (SplitMix64's finisher), uniform and the same on every machine.
fn fraction(seed: u64, attempt: u32) -> f64 {
    let mut z = seed.wrapping_add(u64::from(attempt).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    // The upper 32 bits are enough for a delay, and convert exactly.
    f64::from((z >> 32) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delays(policy: RetryPolicy) -> Vec<u128> {
        (1..policy.attempts()).map(|n| policy.with_jitter(0.0).delay(n, 0).as_millis()).collect()
    }

    #[test]
    fn presets_have_the_documented_delays() {
        assert_eq!(delays(RetryPolicy::none()), []);
        assert_eq!(delays(RetryPolicy::standard()), [200, 400, 800, 1600]);
        assert_eq!(delays(RetryPolicy::aggressive()), [500, 1000, 2000, 4000]);
        assert_eq!(delays(RetryPolicy::linear()), [500, 500]);
        assert_eq!(delays(RetryPolicy::patient()), [2000, 6000]);
    }

    #[test]
    fn the_seed_decides_the_jitter() {
        let policy = RetryPolicy::standard();
        assert_eq!(policy.delay(2, 42), policy.delay(2, 42));
        let distinct: std::collections::BTreeSet<_> = (0..100).map(|seed| policy.delay(2, seed)).collect();
        assert!(distinct.len() > 50, "{distinct:?}");
        // Stored runs depend on these numbers, so they must not change between releases.
        assert_eq!([policy.delay(1, 1), policy.delay(2, 1)], [214, 499].map(Duration::from_millis));
    }

    #[test]
    fn the_cap_holds_after_jitter_however_many_attempts() {
        let policy = RetryPolicy::patient().with_attempts(u32::MAX);
        assert!((0..100).all(|seed| policy.delay(4, seed) <= CAP));
        assert_eq!(policy.delay(u32::MAX, 3), CAP);
        assert_eq!(policy.with_delay(Duration::ZERO).delay(u32::MAX, 3), Duration::ZERO);
        assert_eq!(policy.with_factor(f64::NAN).delay(2, 3), CAP);
    }

    #[test]
    fn each_mistake_is_named_with_its_remedy() {
        let policy = RetryPolicy::standard();
        assert_eq!(policy.problem(), None);
        assert_eq!(
            policy.with_attempts(0).problem().unwrap(),
            "retries with 0 attempts; use at least 1, the first attempt counts"
        );
        assert_eq!(
            policy.with_factor(0.5).problem().unwrap(),
            "retries with a factor of 0.5; use at least 1"
        );
        assert_eq!(
            policy.with_factor(f64::NAN).problem().unwrap(),
            "retries with a factor of NaN; use at least 1"
        );
        assert_eq!(policy.with_jitter(1.5).problem().unwrap(), "retries with a jitter of 1.5; use 0 to 1");
    }

    proptest! {
        #[test]
        fn jitter_stays_within_its_fraction(attempt in 1..8_u32, seed: u64, jitter in 0.0..=1.0) {
            let policy = RetryPolicy::standard().with_jitter(jitter).with_cap(Duration::MAX);
            let plain = 0.2 * 2_f64.powi(i32::try_from(attempt).unwrap() - 1);
            let got = policy.delay(attempt, seed).as_secs_f64();
            // One millisecond of tolerance, because delays are rounded up to whole milliseconds.
            prop_assert!(got >= plain * (1.0 - jitter) - 1e-9 && got <= plain * (1.0 + jitter) + 0.001, "{got}");
        }
    }
}
