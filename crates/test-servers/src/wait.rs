//! Waiting for what another process does: ask again and again until it is so, or the time is up.

use std::time::{Duration, Instant};

/// How often a condition is asked; what is waited for takes tens of milliseconds.
const PAUSE: Duration = Duration::from_millis(5);

/// Asks until `ready` answers, for at most `time`.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is waited for, which no injected clock drives"
)]
pub(crate) fn until<T>(time: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
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
