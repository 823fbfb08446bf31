//! Lists runs. The index provides candidates, and each run's own log decides whether the run matches.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use ferrata_store::index::{EntryCheck, IndexEntry as _, RunStanding};
use ferrata_store::{
    ExecutorId, Listing, Order, Page, Paged, RunFilter, RunHead, RunKey, RunPlace, RunQuery, Timestamp,
};

use crate::bounded_join::{self, Task};
use crate::bucket::ServerTime;
use crate::entry::IndexKey;
use crate::error::S3StoreError;
use crate::inner::S3Inner;
use crate::layout::Tree;
use crate::view::RunLookup;

/// How long an index entry stays after the log has moved on, by the server's clock. It is longer than any listing takes, so a listing cannot miss
/// both the old and the new entry.
const SETTLED: ServerTime = 10 * 60 * 1_000;

/// How long an entry without a run stays. It is longer than a start can take between writing the entry and writing the log.
const ABANDONED: ServerTime = 60 * 60 * 1_000;

/// A run with its index entries.
#[derive(Clone, Debug)]
struct IndexedRun {
    place: RunPlace,
    entries: Vec<(String, IndexKey, ServerTime)>,
}

/// A range of the index, newest runs first. The window has all entries of its runs.
#[derive(Debug, Default)]
struct Window {
    candidates: Vec<IndexedRun>,
    now: Option<ServerTime>,
}

/// Reads the index range by range, from the newest runs on.
struct Windows<'a> {
    inner: &'a S3Inner,
    trees: &'a [Tree],
    /// The time of creation at which the next range begins. A range continues to older runs.
    from: Option<Timestamp>,
    /// The time of creation at which the reading ends. Older runs are not needed.
    until: Option<Timestamp>,
    is_over: bool,
}

/// The entries of one half of the index in a range.
struct IndexRange {
    entries: Vec<(Timestamp, RunKey, String, IndexKey, ServerTime)>,
    /// The time of creation down to which the range has all entries, not including that time; `None` at the end of the index.
    upto: Option<Timestamp>,
    now: Option<ServerTime>,
}

/// A query and its results so far.
struct ListInquiry<'a> {
    query: &'a RunQuery,
    alive: Mutex<HashMap<ExecutorId, bool>>,
    /// The server's refusal of an object of a run, and whether the server returned any other object.
    refused: Option<S3StoreError>,
    is_any_read: bool,
}

/// The result of reading a run from the index.
enum LookupResult {
    /// The run's head, if it matches the query and is readable.
    At(Option<Box<RunHead>>),
    /// The server has no object of the run.
    Absent,
    /// The server refuses an object of the run.
    Refused(S3StoreError),
}

impl Windows<'_> {
    async fn next(&mut self) -> Result<Option<Window>, S3StoreError> {
        if self.is_over || self.from.zip(self.until).is_some_and(|(from, until)| from < until) {
            return Ok(None);
        }
        let mut stretches = Vec::new();
        // Read the active half first: a run that ends meanwhile gets its new entry before it loses the old one.
        for tree in self.trees {
            stretches.push(self.inner.read_range(*tree, self.from).await?);
        }
        let upto = stretches.iter().filter_map(|stretch| stretch.upto).max();
        let now = stretches.iter().filter_map(|stretch| stretch.now).min();
        let mut found: BTreeMap<(Timestamp, RunKey), Vec<_>> = BTreeMap::new();
        for (created, run, key, entry, modified) in stretches.into_iter().flat_map(|s| s.entries) {
            let is_seen = upto.is_none_or(|upto| created > upto);
            if is_seen && self.until.is_none_or(|until| created >= until) {
                found.entry((created, run)).or_default().push((key, entry, modified));
            }
        }
        match upto {
            Some(upto) => self.from = Some(upto),
            None => self.is_over = true,
        }
        let candidates = found
            .into_iter()
            .rev()
            .map(|((created, run), entries)| IndexedRun { place: RunPlace { created, run }, entries })
            .collect();
        Ok(Some(Window { candidates, now }))
    }
}

impl S3Inner {
    /// Lists the runs that match the query.
    pub(crate) async fn runs(&self, query: &RunQuery, page: &Page) -> Result<Paged<RunHead>, S3StoreError> {
        let listing = Listing::of_runs(query, page.order);
        let after = listing.after(page).map_err(|_| S3StoreError::Cursor)?;
        let mut inquiry = ListInquiry { query, alive: Mutex::default(), refused: None, is_any_read: false };
        let wanted = page.max_items() + 1;
        let items = match page.order {
            Order::NewestFirst | Order::Any => self.newest(&mut inquiry, after, wanted).await?,
            Order::OldestFirst => self.oldest(&mut inquiry, after, wanted).await?,
        };
        match inquiry.refused {
            // The server refused every object that this listing needed, so the cause is not a single run.
            Some(refused) if !inquiry.is_any_read => Err(refused),
            _ => Ok(listing.cut(page, items)),
        }
    }

    async fn newest(
        &self,
        inquiry: &mut ListInquiry<'_>,
        after: Option<RunPlace>,
        wanted: usize,
    ) -> Result<Vec<RunHead>, S3StoreError> {
        let trees = inquiry.trees();
        let mut windows = self.windows(inquiry, &trees, after.as_ref().map(|after| after.created));
        let mut found = Vec::new();
        while let Some(window) = windows.next().await? {
            let mut meant = self.filter_candidates(inquiry, window.candidates, window.now).await?;
            meant.retain(|candidate| after.as_ref().is_none_or(|after| candidate.place < *after));
            self.check(inquiry, meant, window.now, wanted, &mut found).await?;
            if found.len() >= wanted {
                break;
            }
        }
        Ok(found)
    }

    /// Goes through the whole index up to the cursor, because the server lists in one direction only. Keeps the runs that come next.
    async fn oldest(
        &self,
        inquiry: &mut ListInquiry<'_>,
        mut after: Option<RunPlace>,
        wanted: usize,
    ) -> Result<Vec<RunHead>, S3StoreError> {
        let trees = inquiry.trees();
        let most = wanted + self.options.parallel.get();
        let mut found = Vec::new();
        loop {
            let mut windows = self.windows(inquiry, &trees, None);
            windows.until = windows.until.max(after.as_ref().map(|after| after.created));
            let (mut next, mut now, mut is_all) = (Vec::new(), None, true);
            while let Some(window) = windows.next().await? {
                now = window.now;
                let mut meant = self.filter_candidates(inquiry, window.candidates, window.now).await?;
                meant.retain(|candidate| after.as_ref().is_none_or(|after| candidate.place > *after));
                // Each window is older than the previous one.
                meant.reverse();
                meant.append(&mut next);
                is_all &= meant.len() <= most;
                meant.truncate(most);
                next = meant;
            }
            after = next.last().map(|candidate| candidate.place.clone());
            self.check(inquiry, next, now, wanted, &mut found).await?;
            if is_all || found.len() >= wanted {
                return Ok(found);
            }
        }
    }

    fn windows<'a>(
        &'a self,
        inquiry: &ListInquiry<'_>,
        trees: &'a [Tree],
        from: Option<Timestamp>,
    ) -> Windows<'a> {
        let query = inquiry.query;
        let before = query.created_before.map(|before| before.unix_ms().checked_sub(1));
        let is_over = before == Some(None);
        let before = before.flatten().map(Timestamp::from_unix_ms);
        let from = match (from, before) {
            (Some(from), Some(before)) => Some(from.min(before)),
            (from, before) => from.or(before),
        };
        Windows { inner: self, trees, from, until: query.created_from, is_over }
    }

    /// Reads one half of the index from the runs created at `from` on, at least down to the next time of creation.
    async fn read_range(&self, tree: Tree, from: Option<Timestamp>) -> Result<IndexRange, S3StoreError> {
        let prefix = self.layout.tree(tree);
        // Without its slash, the prefix sorts before all entries of that time, and after those of any later time.
        let mut after = from.map(|from| self.layout.created(tree, from).trim_end_matches('/').to_owned());
        let mut entries: Vec<(Timestamp, RunKey, String, IndexKey, ServerTime)> = Vec::new();
        loop {
            let listed = self.bucket.list(&prefix, after.as_deref(), 1_000).await?;
            let more = listed.value.more;
            after = listed.value.items.last().map(|item| item.key.clone()).or(after);
            for item in listed.value.items {
                match self.layout.entry_of(tree, &item.key) {
                    Some((created, run, entry)) => {
                        entries.push((created, run, item.key, entry, item.modified))
                    }
                    None => {
                        tracing::debug!(key = item.key, "skipped an object that is not an entry of the index")
                    }
                }
            }
            let upto = entries.last().filter(|_| more).map(|(created, ..)| *created);
            let is_enough = entries.first().map(|(created, ..)| *created) != upto;
            if !more || (is_enough && upto.is_some()) {
                return Ok(IndexRange { entries, upto, now: listed.at });
            }
        }
    }

    /// Removes the runs that cannot match the query in any state. At least one of a run's entries is up to date.
    async fn filter_candidates(
        &self,
        inquiry: &ListInquiry<'_>,
        candidates: Vec<IndexedRun>,
        now: Option<ServerTime>,
    ) -> Result<Vec<IndexedRun>, S3StoreError> {
        let mut owners: Vec<ExecutorId> = Vec::new();
        if inquiry.query.filter != RunFilter::Any {
            let states = candidates.iter().flat_map(|candidate| &candidate.entries);
            owners = states.filter_map(|(_, entry, _)| entry.standing.owner).collect();
            owners.sort_unstable();
            owners.dedup();
        }
        let tasks = owners.into_iter().map(|owner| Box::pin(self.alive(inquiry, owner)) as Task<'_, _>);
        bounded_join::all(tasks.collect(), self.options.parallel.get()).await?;
        let may_meet = |candidate: &IndexedRun| {
            self.may_match_facts(inquiry.query, candidate)
                && candidate.entries.iter().any(|(_, entry, _)| inquiry.may_meet(&entry.standing, now))
        };
        Ok(candidates.into_iter().filter(may_meet).collect())
    }

    /// Returns whether the run's facts may match the query. Facts never change, so cached facts of the same generation are correct.
    fn may_match_facts(&self, query: &RunQuery, candidate: &IndexedRun) -> bool {
        let run = &candidate.place.run;
        let is_about_facts = query.workflow.is_some()
            || query.user.is_some()
            || query.parent.is_some()
            || !query.labels.is_empty();
        let generation = candidate.entries.iter().map(|(_, entry, _)| entry.generation).max();
        let known = if is_about_facts { self.cache.get(run) } else { None };
        let facts = known
            .filter(|seen| Some(seen.place.generation) == generation)
            .and_then(|seen| seen.facts.clone());
        match facts {
            Some(facts) => query.meets_facts(run, &facts),
            None => query.tenant.as_ref().is_none_or(|tenant| *tenant == run.tenant),
        }
    }

    /// Reads the heads of candidates in order, and adds those that match the query until there are enough.
    ///
    /// If the server refuses the object of a run, this method omits the run and records the refusal.
    async fn check(
        &self,
        inquiry: &mut ListInquiry<'_>,
        candidates: Vec<IndexedRun>,
        now: Option<ServerTime>,
        wanted: usize,
        found: &mut Vec<RunHead>,
    ) -> Result<(), S3StoreError> {
        let parallel = self.options.parallel.get();
        let mut rest = candidates.as_slice();
        // Most candidates match most queries, so the first batch reads only as many as requested. If few candidates match, the batches grow.
        let mut count = (wanted - found.len()).min(parallel);
        while !rest.is_empty() {
            let (now_read, later) = rest.split_at(count.min(rest.len()));
            (rest, count) = (later, (count * 2).min(parallel));
            let tasks = now_read
                .iter()
                .map(|candidate| Box::pin(self.head_of_candidate(&*inquiry, candidate, now)) as Task<'_, _>);
            for read in bounded_join::all(tasks.collect(), parallel).await? {
                match read {
                    LookupResult::At(head) => {
                        inquiry.is_any_read = true;
                        found.extend(head.map(|head| *head));
                    }
                    LookupResult::Absent => {}
                    LookupResult::Refused(fault) => inquiry.refused = Some(fault),
                }
            }
            if found.len() >= wanted {
                found.truncate(wanted);
                break;
            }
        }
        Ok(())
    }

    /// Reads the head of a run that has index entries.
    async fn head_of_candidate(
        &self,
        inquiry: &ListInquiry<'_>,
        candidate: &IndexedRun,
        now: Option<ServerTime>,
    ) -> Result<LookupResult, S3StoreError> {
        let run = &candidate.place.run;
        let log = match self.open(run).await {
            Ok(log) => log,
            Err(error) if error.is_of_run() || error.may_be_of_run() => {
                if inquiry.query.fails_without(run) {
                    return Err(S3StoreError::Checked(error.of_run("store.runs", run)));
                }
                tracing::warn!(%run, %error, "skipped an unreadable run in a listing");
                return Ok(if error.is_of_run() {
                    LookupResult::At(None)
                } else {
                    LookupResult::Refused(error)
                });
            }
            Err(fault) => return Err(fault),
        };
        let Some(log) = log else {
            let is_marked = self.clear_absent(candidate, now).await?;
            return Ok(if is_marked { LookupResult::At(None) } else { LookupResult::Absent });
        };
        let alive = match log.seen.last.owner {
            Some(owner) => self.alive(inquiry, owner).await?,
            None => false,
        };
        let head = log.run_head(run, alive);
        let is_here = head.facts.created == candidate.place.created;
        if now.is_some_and(|now| log.seen.modified < now.saturating_sub(SETTLED)) {
            let (generation, standing) = (log.generation(), log.seen.standing());
            let stale = candidate.entries.iter().filter(|(_, entry, _)| {
                match entry.check(Some((&generation, head.seq, &standing))) {
                    EntryCheck::Stale => true,
                    EntryCheck::Stands => entry.seq <= head.seq && !is_here,
                    EntryCheck::Ahead | EntryCheck::Unborn => false,
                }
            });
            self.drop_entries(&stale.map(|(key, ..)| key.clone()).collect::<Vec<_>>()).await;
        }
        let now = Timestamp::from_unix_ms(now.unwrap_or(i64::MIN));
        Ok(LookupResult::At((is_here && inquiry.query.matches(&head, now)).then(|| Box::new(head))))
    }

    /// Removes the entries of a run that does not exist any more, or never existed. Returns whether the server has a mark of its end.
    async fn clear_absent(
        &self,
        candidate: &IndexedRun,
        now: Option<ServerTime>,
    ) -> Result<bool, S3StoreError> {
        let Some(now) = now else { return Ok(false) };
        let RunLookup::Absent { generation, ended, .. } = self.look_up(&candidate.place.run).await? else {
            return Ok(false);
        };
        let is_settled = ended.is_some_and(|ended| ended < now.saturating_sub(SETTLED));
        let stale = candidate.entries.iter().filter(|(_, entry, modified)| {
            is_settled && entry.generation < generation || *modified < now.saturating_sub(ABANDONED)
        });
        self.drop_entries(&stale.map(|(key, ..)| key.clone()).collect::<Vec<_>>()).await;
        Ok(ended.is_some())
    }

    /// Returns whether an executor is alive. Asks the server at most once per listing.
    async fn alive(&self, inquiry: &ListInquiry<'_>, owner: ExecutorId) -> Result<bool, S3StoreError> {
        // A panic leaves the map valid. No caller holds the lock across an await.
        let known = inquiry.alive.lock().unwrap_or_else(PoisonError::into_inner).get(&owner).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let alive = self.is_alive(&owner).await?;
        inquiry.alive.lock().unwrap_or_else(PoisonError::into_inner).insert(owner, alive);
        Ok(alive)
    }
}

impl ListInquiry<'_> {
    /// Returns the halves of the index that may contain matches.
    fn trees(&self) -> Vec<Tree> {
        let RunQuery { statuses, filter, .. } = self.query;
        let may_be_finished = statuses.is_empty() || statuses.iter().any(|status| status.is_finished());
        // A finished run with undelivered messages is in the active half, which recovery lists.
        let mut trees = vec![Tree::Live];
        if may_be_finished && *filter == RunFilter::Any {
            trees.push(Tree::Done);
        }
        trees
    }

    /// Returns whether a run in this state may match the query.
    fn may_meet(&self, standing: &RunStanding, now: Option<ServerTime>) -> bool {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        let is_alive = standing.owner.is_some_and(|owner| alive.get(&owner).copied().unwrap_or(false));
        self.query.meets_standing(standing, is_alive, Timestamp::from_unix_ms(now.unwrap_or(i64::MAX)))
    }
}
