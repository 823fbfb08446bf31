//! For how long a process has seen something as it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata_core::{Clock, Timestamp};

/// From how many entries on old ones are forgotten, and how old those are.
const MANY: usize = 4_096;
const KEPT: Duration = Duration::from_secs(3_600);

/// Since when this process sees an entry of a queue as it is, by a clock that never steps. What another process has written of the time is
/// not compared with the time here: each clock may be wrong, and a place would be given away that has just been given.
#[derive(Clone, Debug)]
pub(super) struct DwellTimes {
    clock: Arc<dyn Clock>,
    first: Arc<Mutex<HashMap<(String, Timestamp), Duration>>>,
}

impl DwellTimes {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, first: Arc::default() }
    }

    /// Notes that the entry is as it was written at that moment, and tells whether it has been so for longer than this.
    pub(super) fn for_longer(&self, id: &str, at: Timestamp, than: Duration) -> bool {
        let now = self.clock.monotonic();
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.len() > MANY {
            first.retain(|_, first| now.saturating_sub(*first) < KEPT);
        }
        now.saturating_sub(*first.entry((id.to_owned(), at)).or_insert(now)) > than
    }
}
