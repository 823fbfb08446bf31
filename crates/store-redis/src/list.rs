//! Lists runs. Reads the smallest index sets that contain all matching runs, and checks each entry against the run itself.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use ferrata_store::index::{EntryCheck, IndexEntry, RunStanding};
use ferrata_store::{
    ExecutorId, Listing, Page, Paged, Result, RunFilter, RunHead, RunKey, RunPlace, RunQuery, Seq, Timestamp,
};
use redis::Value;

use crate::entry::StoredHead;
use crate::error::{RedisCallEffect, RedisStoreError};
use crate::index::{Index, Placement};
use crate::layout::{Member, fixed_places, moving_places, name, place, place_in_time};
use crate::link::RedisCall;
use crate::merge::{Range, RunCandidate, SetMerge};
use crate::reply::{ReplyParts, bytes, text};
use crate::store::RedisInner;

const OPERATION: &str = "store.runs";

/// The maximum number of heads to read at once: enough for a page and some runs that do not match.
const LOOK: usize = 500;

/// The maximum number of index entries that one listing repairs, so that a page never takes long.
const REPAIRS: usize = 200;

impl RedisInner {
    pub(crate) async fn runs(&self, query: &RunQuery, page: &Page) -> Result<Paged<RunHead>> {
        let listing = Listing::of_runs(query, page.order);
        let after = listing.after(page).map_err(|error| error.with_operation(OPERATION))?;
        let listed = self.list(query, page, listing, after).await;
        listed.unwrap_or_else(|fault| Err(fault.into_error(OPERATION, RedisCallEffect::None)))
    }

    /// Lists a page. An error within the result concerns one run.
    async fn list(
        &self,
        query: &RunQuery,
        page: &Page,
        listing: Listing,
        after: Option<RunPlace>,
    ) -> Result<Result<Paged<RunHead>>, RedisStoreError> {
        let index = self.index().await?;
        let began = self.clock.monotonic();
        let now = self.now().await?;
        let after = after.map(|after| format!("{},{}", place_in_time(after.created), name(&after.run)));
        let range = Range::new(page.order, after.as_deref(), query.created_from, query.created_before);
        let mut source = if query.filter == RunFilter::Due {
            SetMerge::listed(self.due(index, now).await?, &range)
        } else {
            let places = self.narrowest(index, query).await?;
            SetMerge::of(
                places.iter().flat_map(|place| index.keys(place).map(|key| (place.clone(), key))),
                &range,
            )
        };
        let wanted = page.max_items();
        let mut items: Vec<RunHead> = Vec::new();
        let (mut repairs, mut unborn) = (Vec::new(), Vec::new());
        // One run more than requested shows whether another page follows.
        while items.len() <= wanted {
            let candidates = source.next(&self.link, (wanted + 1 - items.len()).clamp(16, LOOK)).await?;
            if candidates.is_empty() {
                break;
            }
            for (candidate, head) in self.heads(candidates).await? {
                let run = candidate.member.run();
                let Some(run) = run else { continue };
                match head {
                    Ok(Some((head, is_alive))) if head.said.member == candidate.member.as_str() => {
                        repairs.extend(stale_place(index, &run, &candidate, &head));
                        let head = head.into_run_head(run, is_alive);
                        if query.matches(&head, now) {
                            items.push(head);
                        }
                    }
                    // The run does not exist, or has another generation: the record of the announced entry does not exist yet, or the run was
                    // purged.
                    Ok(_) => unborn.push((run, candidate.member)),
                    Err(fault) if fault.is_of_run() && query.fails_without(&run) => {
                        return Ok(Err(fault.of_run(OPERATION, &run, RedisCallEffect::None)));
                    }
                    Err(fault) if fault.is_of_run() => {
                        tracing::warn!(%run, %fault, "skipped an unreadable run in a listing");
                    }
                    Err(fault) => return Err(fault),
                }
            }
        }
        let waited = self.clock.monotonic().saturating_sub(began);
        repairs.extend(unborn.into_iter().map(|(run, member)| index.lapse(&run, &member, waited)));
        repairs.truncate(REPAIRS);
        for reply in self.link.many(repairs, None).await {
            // The next listing tries again.
            if let Err(fault) = reply {
                tracing::debug!(%fault, "could not update an entry of the index; the next listing repairs it");
            }
        }
        Ok(Ok(listing.cut(page, items)))
    }

    /// Reads the server's clock.
    pub(crate) async fn now(&self) -> Result<Timestamp, RedisStoreError> {
        let reply = self.link.call(RedisCall::plain(&["TIME"], Bytes::new()).without_keys()).await?;
        let mut reply = ReplyParts::of(reply)?;
        let ms = reply.number()?.saturating_mul(1_000).saturating_add(reply.number()? / 1_000);
        Ok(Timestamp::from_unix_ms(i64::try_from(ms).unwrap_or(i64::MAX)))
    }

    /// Returns the index sets that together contain all runs that may match the query. Chooses those with the fewest runs.
    async fn narrowest(&self, index: &Index, query: &RunQuery) -> Result<Vec<String>, RedisStoreError> {
        let mut groups: Vec<Vec<String>> = Vec::new();
        if query.filter == RunFilter::Orphaned {
            groups.push(self.ownerless(index).await?);
        }
        groups.extend(query.owner.map(|owner| vec![place::owner(&owner.to_string())]));
        groups.extend(query.parent.as_ref().map(|parent| vec![place::parent(parent)]));
        groups.extend(query.labels.iter().map(|(key, value)| vec![place::label(key, value)]));
        if !query.statuses.is_empty() {
            let statuses: BTreeSet<String> =
                query.statuses.iter().map(|status| place::status(*status)).collect();
            groups.push(statuses.into_iter().collect());
        }
        groups.extend(query.workflow.as_ref().map(|workflow| vec![place::workflow(workflow)]));
        groups.extend(query.tenant.as_ref().map(|tenant| vec![place::tenant(tenant)]));
        if groups.len() < 2 {
            return Ok(groups.pop().unwrap_or_else(|| vec![place::ALL.to_owned()]));
        }
        let mut calls = Vec::new();
        let mut owners = Vec::new();
        for (group, places) in groups.iter().enumerate() {
            for key in places.iter().flat_map(|place| index.keys(place)) {
                calls.push(RedisCall::plain(&["ZCARD"], key));
                owners.push(group);
            }
        }
        let mut sizes = vec![0_i64; groups.len()];
        for (group, reply) in owners.into_iter().zip(self.link.many(calls, None).await) {
            if let Value::Int(size) = reply? {
                sizes[group] = sizes[group].saturating_add(size);
            }
        }
        let narrowest = (0..groups.len()).min_by_key(|group| sizes[*group]).unwrap_or(0);
        Ok(groups.swap_remove(narrowest))
    }

    /// Returns the index sets of runs that have no owner or whose owner is not alive.
    async fn ownerless(&self, index: &Index) -> Result<Vec<String>, RedisStoreError> {
        let calls = index.keys(place::OWNERS).map(|key| RedisCall::plain(&["SMEMBERS"], key)).collect();
        let mut owners = BTreeSet::new();
        for reply in self.link.many(calls, None).await {
            for owner in ReplyParts::of(reply?)? {
                owners.insert(text(owner)?);
            }
        }
        let known: Vec<ExecutorId> = owners.iter().filter_map(|owner| owner.parse().ok()).collect();
        let alive = self.alive(&known).await?;
        let is_away =
            |owner: &&String| owner.parse().is_ok_and(|id| !alive.get(&id).copied().unwrap_or(false));
        let mut places: Vec<String> =
            owners.iter().filter(is_away).map(|owner| place::owner(owner)).collect();
        places.push(place::owner(place::NOBODY));
        Ok(places)
    }

    /// Returns the executors whose heartbeats have not expired.
    pub(crate) async fn alive(
        &self,
        executors: &[ExecutorId],
    ) -> Result<HashMap<ExecutorId, bool>, RedisStoreError> {
        let calls =
            executors.iter().map(|id| RedisCall::plain(&["EXISTS"], self.layout.executor(id))).collect();
        let replies = self.link.many(calls, None).await;
        executors.iter().zip(replies).map(|(id, reply)| Ok((*id, reply? == Value::Int(1)))).collect()
    }

    /// Returns the runs whose wake-up time has come, according to the index.
    async fn due(&self, index: &Index, now: Timestamp) -> Result<Vec<RunCandidate>, RedisStoreError> {
        // Scores are floating-point numbers. One more millisecond makes up for their rounding; the head decides.
        let until = now.unix_ms().saturating_add(1).to_string();
        let call = |key| RedisCall::plain(&["ZRANGE"], key).arg("-inf").arg(until.clone()).arg("BYSCORE");
        let mut found = Vec::new();
        for reply in self.link.many(index.keys(place::DUE).map(call).collect(), None).await {
            for member in ReplyParts::of(reply?)? {
                let member = Member::parse(&bytes(member)?);
                found.extend(member.map(|member| RunCandidate { member, place: place::DUE.to_owned() }));
            }
        }
        Ok(found)
    }

    /// Reads the heads of candidates, and whether their owners are alive.
    async fn heads(
        &self,
        candidates: Vec<RunCandidate>,
    ) -> Result<Vec<(RunCandidate, Result<Option<(StoredHead, bool)>, RedisStoreError>)>, RedisStoreError>
    {
        let runs: Vec<RunKey> = candidates.iter().filter_map(|candidate| candidate.member.run()).collect();
        let replies = self.link.many(runs.iter().map(|run| self.head_call(run)).collect(), None).await;
        let heads: Vec<_> =
            replies.into_iter().zip(&runs).map(|(reply, run)| StoredHead::read(run, reply?)).collect();
        let owner_of =
            |head: &Result<Option<StoredHead>, RedisStoreError>| head.as_ref().ok()?.as_ref()?.last.owner;
        let owners: BTreeSet<ExecutorId> = heads.iter().filter_map(owner_of).collect();
        let alive = self.alive(&owners.into_iter().collect::<Vec<_>>()).await?;
        let is_alive =
            |head: &StoredHead| head.last.owner.is_some_and(|owner| alive.get(&owner) == Some(&true));
        let heads = heads.into_iter().map(|head| {
            head.map(|head| {
                head.map(|head| {
                    let is_alive = is_alive(&head);
                    (head, is_alive)
                })
            })
        });
        Ok(candidates.into_iter().zip(heads).collect())
    }
}

/// Returns the call that removes a run from an index set that it has left.
fn stale_place(
    index: &Index,
    run: &RunKey,
    candidate: &RunCandidate,
    head: &StoredHead,
) -> Option<RedisCall> {
    let (moving, fixed) = (RunStanding::after(&head.last), fixed_places(run, &head.said.facts));
    let shown = ListedPlace { candidate, fixed: &fixed };
    match shown.check(Some((&candidate.member, head.last.seq, &moving))) {
        EntryCheck::Stale => {
            let placement =
                Placement { run, member: &candidate.member, seq: head.last.seq, fixed: &fixed, moving };
            Some(index.settle_call(&placement))
        }
        EntryCheck::Stands | EntryCheck::Ahead | EntryCheck::Unborn => None,
    }
}

/// An index set in which an existing generation of a run was found.
struct ListedPlace<'a> {
    candidate: &'a RunCandidate,
    fixed: &'a [String],
}

impl IndexEntry for ListedPlace<'_> {
    type Generation = Member;

    fn generation(&self) -> &Member {
        &self.candidate.member
    }

    /// The catalog in the index has the record and compares it.
    fn announced_with(&self) -> Option<Seq> {
        None
    }

    fn holds(&self, standing: &RunStanding) -> bool {
        self.fixed.contains(&self.candidate.place)
            || moving_places(standing).any(|(place, _)| place == self.candidate.place)
    }
}
