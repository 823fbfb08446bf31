//! Sweeping the store by a policy, as long as there is a runtime.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::Result;
use crate::past::RetentionPolicy;
use crate::past::sweep::{self, Purge, SweepLimits, SweepReport};
use crate::runtime::RuntimeBuilder;
use crate::runtime::shared::{Phase, Shared};

/// How many runs a sweeper deals with before it looks whether its runtime ends: one page.
const PART: u32 = 100;

/// How often a part is tried before the sweep ends, and the first pause, which doubles.
const TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The shortest interval between two sweeps.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// What a [sweeper](RuntimeBuilder::sweeper) removes, and at which pace.
///
/// ```
/// use std::time::Duration;
///
/// use ferrata_core::record::RunStatus;
/// use ferrata_core::runtime::{RetentionPolicy, SweeperOptions};
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// let policy = RetentionPolicy::keep_all().purge_after(RunStatus::Completed, 30 * DAY);
/// let options = SweeperOptions::new(policy).interval(DAY / 24);
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
    /// Sweeps by `policy` once an hour, as [`SweepLimits::gentle`] limits it.
    pub fn new(policy: RetentionPolicy) -> Self {
        Self { policy, interval: Duration::from_secs(3_600), limits: SweepLimits::gentle() }
    }

    /// Sets how much time passes between the end of a sweep and the next one; an hour unless set, and at least a second.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(SHORTEST_INTERVAL);
        self
    }

    /// Sets how many runs a sweep deals with at the same time and how long it rests: [`at_once`](SweepLimits::at_once) and
    /// [`nice_ratio`](SweepLimits::nice_ratio). A sweep goes through all runs, so the other limits have no effect.
    pub fn limits(mut self, limits: SweepLimits) -> Self {
        self.limits = limits;
        self
    }
}

impl RuntimeBuilder {
    /// Sweeps the store by a policy, again and again, until the runtime ends: prunes and removes runs as [`Runtime::sweep`](super::super::Runtime::sweep)
    /// does, over all its parts.
    ///
    /// The first sweep begins within the first interval, at a time that differs from process to process. Several processes may sweep one store: each run
    /// is removed once. Each process reads all runs, so set an interval that suits their number, or switch the sweeper on in one process.
    ///
    /// A run that cannot be dealt with holds up no other, and is tried again by the next sweep. The metrics `ferrata.sweep.runs` and
    /// `ferrata.sweep.time` tell what was done.
    ///
    /// [`build`](Self::build) fails with [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the nice ratio of the limits is out of range.
    ///
    /// <!-- held by: sweepers::sweeper_removes_all_ended_runs, sweepers::several_sweepers_share_store -->
    #[must_use]
    pub fn sweeper(mut self, options: SweeperOptions) -> Self {
        self.sweeper = Some(options);
        self
    }
}

impl SweeperOptions {
    /// Checks the limits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid): the nice ratio is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        sweep::check_ratio(self.limits.nice_ratio)
    }
}

/// Deals with a part of the store's runs.
///
/// # Errors
///
/// As [`Runtime::sweep`](super::super::Runtime::sweep).
pub(crate) async fn sweep_part(
    shared: &Arc<Shared>,
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

/// Sweeps the store as long as there is a runtime.
pub(crate) async fn keep_swept(shared: Weak<Shared>, options: SweeperOptions) {
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

/// A part of the interval, other for each process: a fleet that starts at once does not sweep at once.
fn first_pause(shared: &Shared, interval: Duration) -> Duration {
    let (high, low) = shared.executor.as_uuid().as_u64_pair();
    let dice = ((high ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32;
    // A fraction of 2^24, which `dice` is below.
    (interval / (1 << 24)).saturating_mul(dice)
}

/// Waits for so long. Returns whether the runtime goes on.
async fn wait(shared: &Weak<Shared>, pause: Duration) -> bool {
    let Some(strong) = shared.upgrade() else { return false };
    let (clock, mut stop) = (Arc::clone(&strong.clock), strong.registry.watch_stop());
    drop(strong);
    tokio::select! {
        // In this order, so that a simulation takes the same course each time.
        biased;
        _ = stop.wait_for(|stop| stop.phase != Phase::Open) => false,
        () = clock.sleep(pause) => true,
    }
}

/// Sweeps all runs, part by part. Returns whether the runtime goes on.
async fn sweep_all(shared: &Weak<Shared>, options: &SweeperOptions) -> bool {
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
                tracing::warn!(%error, failed, "cannot sweep the store; trying again");
                drop(strong);
                if failed >= TRIES {
                    // The next sweep begins with the oldest run.
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
        tracing::warn!(count, first = %run, %error, "runs could not be swept; the next sweep tries them again");
    }
}
