//! Keeping a run's directory up to its log while the run goes on.

use std::time::Duration;

use ferrata::{Clock, RunKey, Runtime, SystemClock};
use ferrata_dot::run_dir::RunDirectory;
use tokio::sync::{Notify, watch};

/// The least time between two writes: what people and programs that look at files do not notice.
const PAUSE: Duration = Duration::from_millis(50);

/// How many times as long as a write took the pause after it is, so that a long run does not write its history all the time.
const SHARE: u32 = 10;

/// Writes the views whenever something was recorded, until `over` is true; then once more.
///
/// # Errors
///
/// That of the last write. One before it is made good by it.
pub(super) async fn keep(
    mut directory: RunDirectory,
    runtime: &Runtime,
    run: &RunKey,
    recorded: &Notify,
    mut over: watch::Receiver<bool>,
) -> ferrata::Result<()> {
    let clock = SystemClock::new();
    loop {
        tokio::select! {
            () = recorded.notified() => {}
            _ = over.wait_for(|over| *over) => break,
        }
        let began = clock.monotonic();
        if let Err(error) = directory.refresh(runtime, run).await {
            tracing::debug!(%error, "the directory of the run was not written; it will be again");
        }
        let took = clock.monotonic().saturating_sub(began);
        tokio::select! {
            () = clock.sleep(PAUSE.max(took * SHARE)) => {}
            _ = over.wait_for(|over| *over) => break,
        }
    }
    directory.refresh(runtime, run).await
}
