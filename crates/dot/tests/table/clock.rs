//! A clock that runs a hundred times as fast as the machine's, so that delays of retries are waited for and cost nothing.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ferrata_core::{Clock, SystemClock, Timestamp};

/// How much faster it runs.
const SPEED: u32 = 100;

#[derive(Clone, Debug)]
pub(crate) struct Quick {
    real: SystemClock,
    begun: Timestamp,
}

impl Default for Quick {
    fn default() -> Self {
        let real = SystemClock::new();
        let begun = real.now();
        Self { real, begun }
    }
}

impl Clock for Quick {
    fn now(&self) -> Timestamp {
        self.begun.plus(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() * SPEED
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.real.sleep(duration / SPEED)
    }
}
