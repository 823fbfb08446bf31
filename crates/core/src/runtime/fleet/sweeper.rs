//! Sweeps the store by a retention policy, repeatedly, until the runtime ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::Result;
use crate::kernel::commands::RuntimePhase;
use crate::kernel::inner::RuntimeInner;
use crate::past::RetentionPolicy;
use crate::past::sweep::{self, Purge, SweepLimits, SweepReport};

/// The number of runs, one page, after which the sweeper checks whether the runtime has ended.
const PART: u32 = 100;

/// The maximum number of attempts per part, and the first delay, which doubles.
const TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The shortest interval between two sweeps.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// The options of a [sweeper](crate::runtime::RuntimeBuilder::sweeper): its retention policy, its interval and its limits.
///
/// ```
/// use std::time::Duration;
///
/// use ferrata_core::record::RunStatus;
/// use ferrata_core::runtime::{RetentionPolicy, SweeperOptions};
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// let policy = RetentionPolicy::keep_all().purge_after(RunStatus::Completed, 30 * DAY);
/// let options = SweeperOptions::new(policy).with_interval(DAY / 24);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SweeperOptions {
    policy: RetentionPolicy,
    interval: Duration,
    limits: SweepLimits,
}

impl SweeperOptions {
    /// Creates options for hourly sweeps by `policy`, with the limits of [`SweepLimits::gentle`].
    pub fn new(policy: RetentionPolicy) -> Self {
        Self { policy, interval: Duration::from_secs(3_600), limits: SweepLimits::gentle() }
    }

    /// Sets the time between the end of a sweep and the start of the next sweep. The default is an hour, the minimum a second.
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(SHORTEST_INTERVAL);
        self
    }

    /// Sets how many runs a sweep processes at the same time ([`at_once`](SweepLimits::at_once)) and how long it pauses
    /// ([`nice_ratio`](SweepLimits::nice_ratio)). The other limits have no effect, because a sweep covers all runs.
    pub fn with_limits(mut self, limits: SweepLimits) -> Self {
        self.limits = limits;
        self
    }
}

impl SweeperOptions {
    /// Checks the limits.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the nice ratio is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        sweep::check_ratio(self.limits.nice_ratio)
    }
}

/// Sweeps one part of the store's runs.
///
/// # Errors
///
/// Returns the errors of [`Runtime::sweep`](super::super::Runtime::sweep).
pub(crate) async fn sweep_part(
    shared: &Arc<RuntimeInner>,
    policy: &RetentionPolicy,
    limits: SweepLimits,
    dry: bool,
) -> Result<SweepReport> {
    let purger = Arc::clone(shared);
    let purge: &Purge = &move |head| {
        let (shared, run, head) = (Arc::clone(&purger), head.run.clone(), head.head());
        Box::pin(async move { shared.purge(&run, Some(head)).await })
    };
    let report = sweep::sweep((&*shared.store, purge), policy, limits, &*shared.clock, dry).await?;
    if !dry {
        let ended_at = || report.next.is_none().then(|| shared.clock.now());
        shared.telemetry().swept(report.pruned, report.purged, report.failed.len() as u64, ended_at);
    }
    Ok(report)
}

/// Sweeps the store repeatedly until the runtime ends.
pub(crate) async fn keep_swept(shared: Weak<RuntimeInner>, options: SweeperOptions) {
    let mut pause = match shared.upgrade() {
        Some(shared) => first_pause(&shared, options.interval),
        None => return,
    };
    while wait(&shared, pause).await {
        if !sweep_all(&shared, &options).await {
            return;
        }
        pause = options.interval;
    }
}

/// Returns a random part of the interval as the first pause, so that processes which start at the same time do not sweep at the same time.
fn first_pause(shared: &RuntimeInner, interval: Duration) -> Duration {
    let (high, low) = shared.executor.as_uuid().as_u64_pair();
    let dice = ((high ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32;
    // A fraction of 2^24, which exceeds `dice`.
    (interval / (1 << 24)).saturating_mul(dice)
}

/// Waits for a pause. Returns whether the runtime still exists.
async fn wait(shared: &Weak<RuntimeInner>, pause: Duration) -> bool {
    let Some(strong) = shared.upgrade() else { return false };
    let (clock, mut stop) = (Arc::clone(&strong.clock), strong.registry.watch_stop());
    drop(strong);
    tokio::select! {
        // Biased, because simulations must be deterministic.
        biased;
        _ = stop.wait_for(|stop| stop.phase != RuntimePhase::Open) => false,
        () = clock.sleep(pause) => true,
    }
}

/// Sweeps all runs, part by part. Returns whether the runtime still exists.
async fn sweep_all(shared: &Weak<RuntimeInner>, options: &SweeperOptions) -> bool {
    let (mut cursor, mut failed, mut total) = (None, 0, SweepReport::default());
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(strong) = shared.upgrade().filter(|shared| !shared.is_closing()) else { return false };
        let mut limits = options.limits.clone().with_runs(PART);
        limits.cursor = cursor.clone();
        match sweep_part(&strong, &options.policy, limits, false).await {
            Ok(report) => {
                cursor = total.add(report);
                (failed, pause) = (0, FIRST_PAUSE);
                if cursor.is_none() {
                    report_sweep(&total);
                    return true;
                }
            }
            Err(error) => {
                failed += 1;
                tracing::warn!(%error, failed, "cannot sweep the store; will retry");
                drop(strong);
                if failed >= TRIES {
                    // The next sweep starts over with the oldest run.
                    return true;
                }
                if !wait(shared, pause).await {
                    return false;
                }
                pause *= 2;
            }
        }
    }
}

fn report_sweep(total: &SweepReport) {
    let SweepReport { runs, pruned, purged, records, bytes, failed, .. } = total;
    tracing::info!(runs, pruned, purged, records, bytes, "swept the store");
    if let Some((run, error)) = failed.first() {
        let count = failed.len();
        tracing::warn!(count, first = %run, %error, "cannot sweep some runs; the next sweep will retry");
    }
}
