//! Performs an operation on many runs concurrently, and reports results in the order of the runs.

use futures_util::stream::{self, Stream, StreamExt as _};

/// Number of concurrent operations. The number is large enough to use a store's round trips well, and within the store's pool of connections.
const AT_ONCE: usize = 16;

/// Starts the next operation as soon as a running one ends, and returns all results in the order of the items.
pub(crate) fn each<'a, T, F: Future + 'a>(
    items: &'a [T],
    work: impl FnMut(&'a T) -> F + 'a,
) -> impl Stream<Item = F::Output> + 'a {
    stream::iter(items.iter().map(work)).buffered(AT_ONCE)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::sync::Barrier;

    use super::*;

    /// Operations overlap. One after the other, a thousand runs would take a thousand round trips.
    ///
    /// Guarantees: CLI-11.
    #[tokio::test]
    async fn sixteen_operations_overlap_with_ordered_results() {
        let items: Vec<usize> = (0..AT_ONCE * 3).collect();
        let (at_work, most, all) = (Cell::new(0), Cell::new(0), Barrier::new(AT_ONCE));
        let work = async |item: &usize| {
            at_work.set(at_work.get() + 1);
            most.set(most.get().max(at_work.get()));
            // The wait ends once this many operations run concurrently. With fewer, it never ends.
            all.wait().await;
            // Let the later operations end first.
            for _ in 0..AT_ONCE - item % AT_ONCE {
                tokio::task::yield_now().await;
            }
            at_work.set(at_work.get() - 1);
            *item
        };
        let done = each(&items, work).collect::<Vec<_>>();
        #[expect(clippy::disallowed_methods, reason = "the deadline of a test that would otherwise hang")]
        let done = tokio::time::timeout(Duration::from_secs(20), done).await.unwrap();
        assert_eq!((done, most.get()), (items, AT_ONCE));
    }
}
