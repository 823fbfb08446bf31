//! Runs an order-sensitive test on a single-threaded runtime, and repeatedly on one with four threads.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use tokio::runtime::Builder;

/// Number of runs on several threads. A wrong order appeared in half of the runs.
const TIMES: usize = 20;

/// Runs a test on each runtime flavor.
pub(crate) fn on_each_runtime(test: impl AsyncFn()) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    for _ in 0..TIMES {
        Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap().block_on(test());
    }
}
