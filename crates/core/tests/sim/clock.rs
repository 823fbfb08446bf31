//! The clock of one machine: its wall time is wrong by minutes and steps, and its monotonic time has its own origin.

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ferrata_core::{Clock, Timestamp};
use ferrata_testing::ManualClock;

#[derive(Debug)]
pub(crate) struct SkewedClock {
    truth: ManualClock,
    off_ms: AtomicI64,
    began: Duration,
}

impl SkewedClock {
    pub(crate) fn new(truth: ManualClock, off_ms: i64, began: Duration) -> Self {
        Self { truth, off_ms: AtomicI64::new(off_ms), began }
    }

    /// Steps the wall time, as a time server does. The monotonic time is unaffected.
    pub(crate) fn step(&self, off_ms: i64) {
        self.off_ms.store(off_ms, Ordering::Relaxed);
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.truth.now().unix_ms() + self.off_ms.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.truth.monotonic() + self.began
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.truth.sleep(duration)
    }
}
