//! The clock of the machine. Its monotonic time is the same in all processes of the machine.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use ferrata_store::{Clock, SystemClock, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// The system clock, with the time since the start of the machine as its monotonic time. Processes can compare these times, whatever their wall
/// clocks show.
#[derive(Debug)]
pub(crate) struct MachineClock(SystemClock);

impl MachineClock {
    pub(crate) fn new() -> Self {
        Self(SystemClock::new())
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        let time = clock_gettime(ClockId::Monotonic);
        // Both values are at least zero, and a second has no more nanoseconds than fit.
        let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.sleep(duration)
    }
}
