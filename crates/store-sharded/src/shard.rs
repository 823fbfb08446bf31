//! One shard: its store, its name for errors, and the heartbeats that it missed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{
    CheckpointStore, Clock, Error, ErrorKind, ExecutorId, HeadRef, Result, RunAppend, RunHead, RunKey, within,
};

/// The part of a heartbeat's lifetime that a shard may take to answer it: one sixth. It is less than the quarter after which the runtime cancels a
/// heartbeat, and longer than a healthy store needs.
const SHARE: u32 = 6;

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn CheckpointStore>,
    /// The executors whose last heartbeat did not reach this shard, each with the lifetime of that heartbeat.
    missed: Mutex<HashMap<ExecutorId, Duration>>,
    slow: Mutex<SlowShardCounter>,
}

/// Counts the recovery listings that the shard did not answer in time.
#[derive(Debug, Default)]
struct SlowShardCounter {
    times: u32,
    /// The number of listings that skip this shard before the next attempt.
    pass: u32,
}

/// How long a recovery listing waits for a shard the first time, and how often this time doubles after failures. The runtime cancels a whole
/// listing after a minute.
const FIRST_LISTING: Duration = Duration::from_secs(5);
const DOUBLINGS: u32 = 3;

/// The maximum number of listings that skip a silent shard. Listings run every second, and only one in this number waits for the silent shard.
const MOST_PASSES: u32 = 32;

impl Shard {
    pub(crate) fn new(name: String, store: Arc<dyn CheckpointStore>) -> Self {
        Self { name, store, missed: Mutex::default(), slow: Mutex::default() }
    }

    /// Adds the name of this shard to an error of its store.
    pub(crate) fn name_error(&self, error: Error) -> Error {
        error.with_place(format_args!("shard `{}`", self.name))
    }

    pub(crate) async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.store.head(run).await.map_err(|error| self.name_error(error))
    }

    /// Appends a batch, after it has sent the missed heartbeats of the batch's owners. An owner that looks dead in this shard must not append.
    pub(crate) async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let lost = self.catch_up(&batch).await;
        let mut results: Vec<Option<Result<HeadRef>>> = Vec::with_capacity(batch.len());
        let mut passed = Vec::with_capacity(batch.len());
        for append in batch {
            match owner(&append).and_then(|owner| lost.get(&owner)) {
                Some(error) => {
                    let message = format!(
                        "shard `{}`: appends are refused until the heartbeat of the run's owner reaches this shard",
                        self.name
                    );
                    let error = Error::new(ErrorKind::Unavailable, message).with_source(error.clone());
                    results.push(Some(Err(error.with_operation("store.append").with_run(&append.run))));
                }
                None => {
                    results.push(None);
                    passed.push(append);
                }
            }
        }
        let done = if passed.is_empty() { Vec::new() } else { self.store.append(passed).await };
        let mut done = done.into_iter().map(|result| result.map_err(|error| self.name_error(error)));
        let missing = || {
            self.name_error(Error::new(
                ErrorKind::Indeterminate,
                "the shard's store returned too few results; retry with the same records",
            ))
        };
        results
            .into_iter()
            .map(|held| held.unwrap_or_else(|| done.next().unwrap_or_else(|| Err(missing()))))
            .collect()
    }

    /// Sends a heartbeat. Waits for the answer for only a part of the heartbeat's lifetime, so that the other shards do not miss theirs.
    ///
    /// A heartbeat without an answer counts as missed, even if the caller stops waiting first.
    pub(crate) async fn heartbeat(
        &self,
        executor: &ExecutorId,
        ttl: Duration,
        clock: &dyn Clock,
    ) -> Result<()> {
        if ttl.is_zero() {
            // An executor that has ended will append nothing more.
            self.lock_missed().remove(executor);
            return self.store.heartbeat(executor, ttl).await.map_err(|error| self.name_error(error));
        }
        let bound = ttl / SHARE;
        let mut beat = ShardHeartbeat { shard: self, executor, ttl, is_there: false };
        let answer = within(clock, bound, self.store.heartbeat(executor, ttl)).await;
        let result = answer.unwrap_or_else(|| {
            let message = format!("the store did not answer a heartbeat within {bound:?}");
            Err(Error::new(ErrorKind::Indeterminate, message).with_operation("store.heartbeat"))
        });
        beat.is_there = result.is_ok();
        result.map_err(|error| self.name_error(error))
    }

    /// Sends the missed heartbeats of the appending owners. Returns the owners whose heartbeat failed again, with the errors.
    async fn catch_up(&self, batch: &[RunAppend]) -> HashMap<ExecutorId, Error> {
        let owed: Vec<(ExecutorId, Duration)> = {
            let missed = self.lock_missed();
            if missed.is_empty() {
                return HashMap::new();
            }
            let owners: HashSet<ExecutorId> = batch.iter().filter_map(owner).collect();
            owners.into_iter().filter_map(|owner| Some((owner, *missed.get(&owner)?))).collect()
        };
        let mut lost = HashMap::new();
        for (executor, ttl) in owed {
            let mut beat = ShardHeartbeat { shard: self, executor: &executor, ttl, is_there: false };
            match self.store.heartbeat(&executor, ttl).await {
                Ok(()) => beat.is_there = true,
                Err(error) => drop(lost.insert(executor, self.name_error(error))),
            }
        }
        lost
    }

    /// Returns how long a recovery listing waits for this shard. Returns `None` if the listing skips the shard, because the shard was silent
    /// before.
    pub(crate) fn listing_timeout(&self) -> Option<Duration> {
        let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        if slow.pass > 0 {
            slow.pass -= 1;
            return None;
        }
        Some(FIRST_LISTING.saturating_mul(1 << slow.times.min(DOUBLINGS)))
    }

    /// Records whether the shard answered in time.
    pub(crate) fn record_answer(&self, in_time: bool) {
        let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        let times = if in_time { 0 } else { slow.times.saturating_add(1) };
        let pass = if in_time { 0 } else { (1_u32 << times.min(10)).min(MOST_PASSES) };
        *slow = SlowShardCounter { times, pass };
    }

    fn lock_missed(&self) -> MutexGuard<'_, HashMap<ExecutorId, Duration>> {
        // Locked for a lookup, never across an await.
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A heartbeat on its way to a shard. Dropping it records the heartbeat as missed, unless the shard has confirmed it.
struct ShardHeartbeat<'a> {
    shard: &'a Shard,
    executor: &'a ExecutorId,
    ttl: Duration,
    is_there: bool,
}

impl Drop for ShardHeartbeat<'_> {
    fn drop(&mut self) {
        let mut missed = self.shard.lock_missed();
        match self.is_there {
            true => missed.remove(self.executor),
            false => missed.insert(*self.executor, self.ttl),
        };
    }
}

/// Returns the owner of the run after the append.
fn owner(append: &RunAppend) -> Option<ExecutorId> {
    append.records.last().and_then(|record| record.header.owner)
}
