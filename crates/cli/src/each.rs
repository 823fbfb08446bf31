//! One thing done for many runs: several at a time, and told in the order in which the runs were given.

use futures_util::stream::{self, Stream, StreamExt as _};

/// For how many runs at a time: enough that a store's round trips overlap, and no more than its pool of connections serves at once.
const AT_ONCE: usize = 16;

/// Begins the work for the next item as soon as one of those at work is done, and returns what came of each in the order of the items.
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

    /// They were done one after the other: a thousand runs took a thousand round trips.
    ///
    /// Guarantees: CLI-11.
    #[tokio::test]
    async fn sixteen_are_at_work_and_their_results_are_in_order() {
        let items: Vec<usize> = (0..AT_ONCE * 3).collect();
        let (at_work, most, all) = (Cell::new(0), Cell::new(0), Barrier::new(AT_ONCE));
        let work = async |item: &usize| {
            at_work.set(at_work.get() + 1);
            most.set(most.get().max(at_work.get()));
            // Goes on when so many are here, which is never if fewer are at work at once.
            all.wait().await;
            // And the later ones end first.
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
