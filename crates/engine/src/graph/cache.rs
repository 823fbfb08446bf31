//! The policy that decides how long a process keeps the results of a node.

use std::time::Duration;

/// The policy of the cache of a node: the maximum age and the maximum number of its results.
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
    /// The maximum age of a result that may be reused, by the clock of the runtime. It must be more than zero.
    pub max_age: Duration,
    /// The maximum number of results, at least 1. The default is 1,000. When the cache is full, the oldest result is removed, whatever its size is.
    pub entries: usize,
}

impl CachePolicy {
    /// Creates a policy with this maximum age and at most 1,000 results.
    pub const fn with_max_age(max_age: Duration) -> Self {
        Self { max_age, entries: 1_000 }
    }

    /// Sets the maximum number of results.
    #[must_use]
    pub const fn with_max_entries(mut self, entries: usize) -> Self {
        self.entries = entries;
        self
    }
}
