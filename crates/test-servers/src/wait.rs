//! Waiting for what another process does: ask again and again until it is so, or the time is up.

use std::time::{Duration, Instant};

/// How often a condition is asked; what is waited for takes tens of milliseconds.
const PAUSE: Duration = Duration::from_millis(5);

/// The time that other processes live in.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes are waited for, which no injected clock drives"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Asks until `ready` answers, for at most `time`.
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
