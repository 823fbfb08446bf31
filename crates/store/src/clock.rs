//! The clock of the library. Stores read an injected clock and never the clock of the process, so tests can control the time.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A time in milliseconds since the Unix epoch.
///
/// Timestamps inform people. The library orders records by their sequence number, never by their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates a timestamp from milliseconds since the Unix epoch.
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// Returns the time that is `by` later. The result is at most the latest time that a timestamp can hold.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `earlier` to this timestamp; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Formats the time as RFC 3339 in UTC: `2026-11-21T09:16:15.473Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: i64 = 86_400_000;
        let (days, ms) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        // Turns a count of days into a date of the proleptic Gregorian calendar: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms",
        // `civil_from_days`. Years begin in March, so that the leap day is the last day of its year.
        let days = days + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(i64::try_from(after.as_millis()).unwrap_or(i64::MAX)),
            Err(before) => {
                Self(i64::try_from(before.duration().as_millis()).map_or(i64::MIN, std::ops::Neg::neg))
            }
        }
    }
}

/// A source of time.
///
/// # To ensure correctness, implementors must
///
/// - never let [`Clock::monotonic`] go backwards; [`Clock::now`] may jump in both directions;
/// - resolve [`Clock::sleep`] no earlier than after the given time on the monotonic clock.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the wall-clock time.
    fn now(&self) -> Timestamp;

    /// Returns the time since a fixed moment in the past. The value never goes backward.
    fn monotonic(&self) -> Duration;

    /// Returns a future that resolves once `duration` has passed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future only cancels the timer.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Awaits `future` for at most `bound`. Returns `None` if the time runs out first; the future is then dropped.
///
/// A future that is ready at once needs no timer. Any length of `bound` is valid; [`Duration::MAX`] means no limit.
///
/// # Cancel safety
///
/// As cancel safe as `future`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ferrata_store::{SystemClock, within};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let clock = SystemClock::new();
/// assert_eq!(within(&clock, Duration::MAX, async { 7 }).await, Some(7));
/// assert_eq!(within(&clock, Duration::from_millis(1), std::future::pending::<()>()).await, None);
/// # });
/// ```
#[doc(hidden)]
pub async fn within<F: Future>(clock: &dyn Clock, bound: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut timer) = (pin!(future), None);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        timer.get_or_insert_with(|| clock.sleep(bound)).as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// The system clock, with the timer of tokio.
#[derive(Clone, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Creates a clock. Its monotonic time starts at zero.
    pub fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this type is the one door to the machine's clock")]
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this type is the one door to the machine's clock")]
        SystemTime::now().into()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        #[expect(clippy::disallowed_methods, reason = "this type is the one door to tokio's timer")]
        Box::pin(tokio::time::sleep(duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_shown_as_a_date() {
        for (ms, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_795_252_574_473, "2026-11-21T09:16:14.473Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::from_unix_ms(ms).to_string(), shown);
        }
        // Every timestamp can be displayed, even the latest.
        assert!(!Timestamp::from_unix_ms(i64::MAX).to_string().is_empty());
        assert!(!Timestamp::from_unix_ms(i64::MIN).to_string().is_empty());
    }
}
