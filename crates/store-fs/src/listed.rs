//! Remembers what listings have read of each log, so that a listing reads only the logs that changed since.
//!
//! A [`FileStamp`] identifies the content of a log that no call keeps open. The file system may give two changes within one tick of its clock the same
//! time. Therefore a stamp counts only if the file was unchanged for [`SETTLED`] before the read, as in git's index ("racily clean" entries).

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{RecordHeader, RunKey, Timestamp};

use crate::disk::FileIdent;
use crate::line::Opening;

/// The time without a change after which the stamp of a file identifies its content. It is far above the tick of a file system's clock.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);

/// The maximum number of remembered logs. Each takes about a kilobyte.
const MOST: usize = 32_768;

/// The identity, the length and the time of the last change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    ident: FileIdent,
    len: u64,
    /// Seconds and nanoseconds since 1970.
    changed: (i64, i64),
}

impl FileStamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            ident: FileIdent::of(metadata),
            len: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns whether the file has not changed for some time.
    fn is_settled(&self, now: Timestamp, settled: Duration) -> bool {
        let (seconds, nanos) = self.changed;
        let changed_ms = seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000);
        let settled_ms = i64::try_from(settled.as_millis()).unwrap_or(i64::MAX);
        changed_ms.saturating_add(settled_ms) <= now.unix_ms()
    }
}

/// The start facts and the last record of a log.
#[derive(Clone, Debug)]
pub(crate) struct ListedLog {
    pub(crate) opening: Arc<Opening>,
    pub(crate) head: RecordHeader,
}

/// The logs that listings have read.
#[derive(Debug)]
pub(crate) struct ListedLogs {
    settled: Duration,
    most: usize,
    kept: Mutex<KeptLogs>,
}

#[derive(Debug, Default)]
struct KeptLogs {
    logs: HashMap<RunKey, KeptLog>,
    /// The number of listings that have begun.
    listings: u64,
}

#[derive(Debug)]
struct KeptLog {
    stamp: FileStamp,
    log: ListedLog,
    /// The last listing that used the entry.
    used: u64,
}

impl ListedLogs {
    pub(crate) fn new(settled: Duration) -> Self {
        Self { settled, most: MOST, kept: Mutex::default() }
    }

    /// Limits the number of remembered logs, and trusts stamps of files that have just changed.
    #[cfg(test)]
    pub(crate) fn with_limits(most: usize, settled: Duration) -> Self {
        Self { settled, most, kept: Mutex::default() }
    }

    /// Returns the number of remembered logs.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().logs.len()
    }

    /// Counts the begin of a listing.
    pub(crate) fn begin_listing(&self) {
        self.lock().listings += 1;
    }

    /// Returns what a listing has read of a run's log, if the file still has this stamp.
    pub(crate) fn get(&self, run: &RunKey, stamp: FileStamp) -> Option<ListedLog> {
        let KeptLogs { logs, listings } = &mut *self.lock();
        let kept = logs.get_mut(run).filter(|kept| kept.stamp == stamp)?;
        kept.used = *listings;
        Some(kept.log.clone())
    }

    /// Remembers what a listing has read of a run's log. `stamp` is of the file before the read, and `now` the time before it.
    ///
    /// If there are too many logs, the call forgets those that neither this listing nor the one before has used, for example because the run was
    /// purged. If there are still too many, the call remembers nothing. A listing goes through all logs, so to forget another one would not help.
    pub(crate) fn remember(&self, run: &RunKey, stamp: FileStamp, now: Timestamp, log: ListedLog) {
        if !stamp.is_settled(now, self.settled) {
            return;
        }
        let KeptLogs { logs, listings } = &mut *self.lock();
        if logs.len() >= self.most && !logs.contains_key(run) {
            logs.retain(|_, kept| kept.used + 1 >= *listings);
        }
        if logs.len() < self.most || logs.contains_key(run) {
            logs.insert(run.clone(), KeptLog { stamp, log, used: *listings });
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptLogs> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
