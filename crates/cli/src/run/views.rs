//! Keeps the directory of a run up to date while the run is active.

use std::time::Duration;

use ferrata::{Clock, RunKey, Runtime, SystemClock};
use ferrata_dot::run_dir::RunDirectory;
use tokio::sync::{Notify, watch};

/// Minimum time between two updates. The time is too short for readers of the files to notice.
const PAUSE: Duration = Duration::from_millis(50);

/// Minimum ratio of the pause to the duration of the last update, so that a long run does not spend all its time on writing its history.
const SHARE: u32 = 10;

/// Updates the files after each record, until `over` becomes true. Then updates them a last time.
///
/// # Errors
///
/// Returns the error of the last update. A later update repairs what an earlier one failed to write.
pub(super) async fn keep_views_current(
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
            tracing::debug!(%error, "cannot write the directory of the run; will retry");
        }
        let took = clock.monotonic().saturating_sub(began);
        tokio::select! {
            () = clock.sleep(PAUSE.max(took * SHARE)) => {}
            _ = over.wait_for(|over| *over) => break,
        }
    }
    directory.refresh(runtime, run).await
}
