//! Tests of an order on a single-threaded runtime, and repeatedly on one with four threads.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use tokio::runtime::Builder;

/// How often a test runs on several threads: a wrong order showed in half of the runs.
const TIMES: usize = 20;

/// Runs a test on each.
pub(crate) fn on_each_runtime(test: impl AsyncFn()) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    for _ in 0..TIMES {
        Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap().block_on(test());
    }
}
