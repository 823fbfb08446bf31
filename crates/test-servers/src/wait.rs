//! Waits for another process: polls until a condition holds, or the time is over.

use std::time::{Duration, Instant};

/// The interval between polls. Typical waits take some tens of milliseconds.
const PAUSE: Duration = Duration::from_millis(5);

/// Uses real time, because other processes run in real time.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes are waited for, which no injected clock drives"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Polls until `ready` returns a value, for at most `time`.
#[expect(clippy::disallowed_methods, reason = "another process cannot be waited for but by looking again")]
pub(crate) fn until<T>(time: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let start = now();
    loop {
        if let Some(answer) = ready() {
            return Some(answer);
        }
        if start.elapsed() >= time {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}
