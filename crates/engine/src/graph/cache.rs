//! How long a process keeps the results of a node.

use std::time::Duration;

/// The lifetime and the number of results of a cached node.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ferrata_core::graph::CachePolicy;
///
/// let policy = CachePolicy::with_max_age(Duration::from_secs(600)).with_max_entries(50);
/// assert_eq!(policy.entries, 50);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CachePolicy {
    /// The maximum age of a reused result, by the clock of the runtime; more than zero.
    pub life: Duration,
    /// The maximum number of results, at least 1. The default is 1,000. The oldest result is evicted first, whatever the sizes are.
    pub entries: usize,
}

impl CachePolicy {
    /// Creates a policy of up to 1,000 results with this maximum age.
    pub const fn with_max_age(life: Duration) -> Self {
        Self { life, entries: 1_000 }
    }

    /// Sets the maximum number of results.
    #[must_use]
    pub const fn with_max_entries(mut self, entries: usize) -> Self {
        self.entries = entries;
        self
    }
}
