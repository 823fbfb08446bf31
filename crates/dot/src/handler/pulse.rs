//! Signs of life of work that takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the signs of life of an attempt; the graph's `stall_timeout` ends an attempt that gives none. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct ActivityCounter(Arc<AtomicU64>);

impl ActivityCounter {
    /// Shows that the work goes on: something was read, said or done.
    pub fn beat(&self) {
        // Only that it changes counts, and no other memory depends on it.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many signs there were.
    pub fn beats(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
