//! Signs of activity during long work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the signs of activity of an attempt. The graph's `stall_timeout` ends an attempt without such signs. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct ActivityCounter(Arc<AtomicU64>);

impl ActivityCounter {
    /// Records a sign of activity: the work read, wrote or did something.
    pub fn record_activity(&self) {
        // Only a change matters, and no other memory depends on it.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of recorded signs.
    pub fn activity_count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
