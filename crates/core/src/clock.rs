//! Time as the library sees it: one injected clock, so that tests can drive it and no store reads the process clock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A moment in milliseconds since the Unix epoch.
///
/// Timestamps inform people; nothing is ever ordered by them (records are ordered by their sequence number).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Makes a timestamp from milliseconds since the Unix epoch.
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Returns milliseconds since the Unix epoch.
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// Returns this moment moved forward by `by`, saturating at the end of time.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `earlier` to this moment, zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
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

/// Where time comes from.
///
/// # To ensure correctness, implementors must
///
/// - never let [`Clock::monotonic`] go backwards; [`Clock::now`] may jump in both directions;
/// - resolve [`Clock::sleep`] no earlier than after the given time on the monotonic clock.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the wall-clock time.
    fn now(&self) -> Timestamp;

    /// Returns the time since some fixed moment in the past; never goes backwards.
    fn monotonic(&self) -> Duration;

    /// Returns a future that resolves once `duration` has passed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future only forgets the sleep.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The clock of the machine and of tokio's timer.
#[derive(Clone, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Makes a clock whose monotonic time starts at zero now.
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
