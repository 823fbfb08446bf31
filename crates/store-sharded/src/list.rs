//! Lists the runs of all shards in one order.
//!
//! The cursor is the position of the last returned run, and holds no state of a shard. The next page asks each shard again from the millisecond of
//! that run on, and skips the runs that were already returned. So a cursor stays valid when the process restarts or a shard is added.

use std::collections::VecDeque;
use std::time::Duration;

use crate::join_all::join_all;
use crate::shard::Shard;
use crate::shard_mark::is_mark;
use crate::store::ShardedStore;
use ferrata_store::{
    Clock, Error, ErrorKind, Listing, Order, Page, Paged, Result, RunFilter, RunHead, RunPlace, RunQuery,
    Timestamp, within,
};

/// The unread part of one shard's listing.
struct ShardFeed<'a> {
    index: usize,
    shard: &'a Shard,
    query: &'a RunQuery,
    page: Page,
    heads: VecDeque<RunHead>,
    is_over: bool,
    /// The timeout for the shard; `None` means no timeout.
    patience: Option<Duration>,
}

impl ShardedStore {
    pub(crate) async fn list(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let listing = Listing::of_runs(query, page.order);
        let after = listing.after(&page).map_err(|error| error.with_operation("store.runs"))?;
        let mut query = query.clone();
        if let Some(RunPlace { created, .. }) = &after {
            match page.order {
                Order::OldestFirst => query.created_from = query.created_from.max(Some(*created)),
                // At the latest possible time there is no upper bound.
                Order::NewestFirst | Order::Any => {
                    if let Some(end) = created.unix_ms().checked_add(1).map(Timestamp::from_unix_ms) {
                        query.created_before =
                            Some(query.created_before.map_or(end, |before| before.min(end)));
                    }
                }
            }
        }
        // All shards must use the same order. Newest first is cheap in every store.
        let order = if page.order == Order::Any { Order::NewestFirst } else { page.order };
        let wanted = page.max_items();
        // Request twice an even share of the page, so that one page of each shard is mostly enough. Request one more run to learn whether more
        // follow.
        let share = (wanted * 2).div_ceil(self.shards.len()).min(wanted) + 1;
        let share = u32::try_from(share).unwrap_or(Page::MAX);
        let asks = |shard: &Shard| match query.filter {
            // Recovery must not wait for a silent shard.
            RunFilter::Orphaned | RunFilter::Due => shard.listing_timeout().map(Some),
            _ => Some(None),
        };
        let asked: Vec<_> =
            self.shards.iter().enumerate().map(|(index, shard)| (index, shard, asks(shard))).collect();
        let mut feeds: Vec<ShardFeed<'_>> = asked
            .into_iter()
            .filter_map(|(index, shard, patience)| Some((index, shard, patience?)))
            .map(|(index, shard, patience)| ShardFeed {
                index,
                shard,
                query: &query,
                page: Page::first(share).with_order(order),
                heads: VecDeque::new(),
                is_over: false,
                patience,
            })
            .collect();
        if feeds.is_empty() {
            let message = "no shard answered which runs need a process; will retry";
            return Err(Error::new(ErrorKind::Unavailable, message).with_operation("store.runs"));
        }
        let mut items = Vec::new();
        while items.len() <= wanted {
            self.fill(&mut feeds).await?;
            let first = |feed: &&mut ShardFeed<'_>| feed.heads.front().map(RunPlace::of);
            let waiting = feeds.iter_mut().filter(|feed| !feed.heads.is_empty());
            let next = match page.order {
                Order::OldestFirst => waiting.min_by_key(first),
                Order::NewestFirst | Order::Any => waiting.max_by_key(first),
            };
            let Some((feed, head)) = next.and_then(|feed| Some((feed.index, feed.heads.pop_front()?))) else {
                break;
            };
            let is_returned = after.as_ref().is_some_and(|after| match page.order {
                Order::OldestFirst => RunPlace::of(&head) <= *after,
                Order::NewestFirst | Order::Any => RunPlace::of(&head) >= *after,
            });
            if !is_returned && self.is_of_users(feed, &head) {
                items.push(head);
            }
        }
        Ok(listing.cut(&page, items))
    }

    /// Requests the next page of every shard whose page is used up, concurrently.
    async fn fill(&self, feeds: &mut [ShardFeed<'_>]) -> Result<()> {
        let empty = feeds.iter_mut().filter(|feed| feed.heads.is_empty() && !feed.is_over);
        let clock = &*self.clock;
        let failures: Vec<Error> =
            join_all(empty.map(|feed| feed.fill(clock))).await.into_iter().filter_map(Result::err).collect();
        let is_all = failures.len() == feeds.len();
        for error in failures {
            // Omit a silent shard: recovery repeats its listing soon, and must not miss the runs of all other shards.
            let is_left_out = feeds.first().is_some_and(|feed| {
                matches!(feed.query.filter, RunFilter::Orphaned | RunFilter::Due) && !is_all
            });
            if !is_left_out {
                return Err(error);
            }
            tracing::warn!(%error, "skipped a shard in the listing of runs that need a process");
        }
        Ok(())
    }

    fn is_of_users(&self, shard: usize, head: &RunHead) -> bool {
        if is_mark(head) {
            return false;
        }
        let is_found = self.map.places(&head.run).shards.contains(&shard);
        if !is_found {
            let shard = &self.shards[shard].name;
            tracing::warn!(run = %head.run, shard, "skipped a run that is on the wrong shard; check that the map has all generations");
        }
        is_found
    }
}

impl ShardFeed<'_> {
    async fn fill(&mut self, clock: &dyn Clock) -> Result<()> {
        // A page may be empty although it is not the last page.
        while self.heads.is_empty() && !self.is_over {
            let call = self.shard.store.runs(self.query, self.page.clone());
            let listed = match self.patience {
                None => call.await,
                Some(patience) => {
                    let answer = within(clock, patience, call).await;
                    self.shard.record_answer(answer.is_some());
                    answer.unwrap_or_else(|| {
                        let message = format!("the store did not answer a listing within {patience:?}");
                        Err(Error::new(ErrorKind::Unavailable, message).with_operation("store.runs"))
                    })
                }
            };
            let Paged { items, next } = listed.map_err(|error| {
                self.is_over = true;
                self.shard.name_error(error)
            })?;
            self.heads = items.into();
            self.is_over = next.is_none();
            self.page.cursor = next;
        }
        Ok(())
    }
}
