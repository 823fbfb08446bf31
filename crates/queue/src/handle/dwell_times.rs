//! How long a process has observed an entry unchanged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata_core::{Clock, Timestamp};

/// Number of entries at which old entries are removed, and the age of an old entry.
const MANY: usize = 4_096;
const KEPT: Duration = Duration::from_secs(3_600);

/// How long this process has observed each entry unchanged, by its monotonic clock. Timestamps of other processes are never compared with local
/// time: with a wrong clock, a slot that was just granted would look abandoned.
#[derive(Clone, Debug)]
pub(super) struct DwellTimes {
    clock: Arc<dyn Clock>,
    first: Arc<Mutex<HashMap<(String, Timestamp), Duration>>>,
}

impl DwellTimes {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, first: Arc::default() }
    }

    /// Records that entry `id` still has the version `at`. Returns whether this process has seen the entry with this version for longer than `than`.
    pub(super) fn for_longer(&self, id: &str, at: Timestamp, than: Duration) -> bool {
        let now = self.clock.monotonic();
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.len() > MANY {
            first.retain(|_, first| now.saturating_sub(*first) < KEPT);
        }
        now.saturating_sub(*first.entry((id.to_owned(), at)).or_insert(now)) > than
    }
}
