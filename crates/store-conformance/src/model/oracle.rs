//! The model: the correct answer of a store to each call. It is simple, not fast, and shares no code with the memory store.

use std::collections::{BTreeMap, BTreeSet};

use ferrata_store::{
    Anchor, At, ErrorKind, ExecutorId, HeadRef, HeaderRange, Order, PruneCut, Record, RecordHeader,
    RunAppend, RunFacts, RunFilter, RunHead, RunKey, RunQuery, RunStatus, Seq, Timestamp, check_append,
};

use super::calls::{CallAnswer, CallRefusal, ModelCall};

/// The state of the model: all runs, and the living executors. Heartbeats of the test last an hour or end at once, so the model needs no clock.
#[derive(Debug, Default)]
pub(super) struct ModelOracle {
    runs: BTreeMap<RunKey, RunGeneration>,
    alive: BTreeSet<ExecutorId>,
}

/// One generation of a run: all records ever written to it, and what prunes changed.
#[derive(Debug)]
pub(super) struct RunGeneration {
    facts: RunFacts,
    pub(super) written: Vec<Record>,
    /// The records that prunes turned into bases, by number.
    rebased: BTreeMap<usize, Record>,
    pub(super) first: usize,
}

impl RunGeneration {
    /// Returns the current record.
    pub(super) fn record(&self, seq: usize) -> &Record {
        self.rebased.get(&seq).unwrap_or(&self.written[seq])
    }

    pub(super) fn head(&self) -> HeadRef {
        self.record(self.written.len() - 1).header.head()
    }

    fn kept(&self) -> impl Iterator<Item = &Record> {
        (self.first..self.written.len()).map(|seq| self.record(seq))
    }
}

impl ModelOracle {
    /// Answers a call, and applies its effect to the model.
    pub(super) fn answer(&mut self, call: &ModelCall) -> CallAnswer {
        match call {
            ModelCall::Setup => CallAnswer::Done(Ok(())),
            ModelCall::Append(batch) => CallAnswer::Heads(self.append(batch)),
            ModelCall::Load(run, at) => CallAnswer::Records(self.load(run, *at)),
            ModelCall::Headers(run, range, is_walk) => {
                CallAnswer::Headers(self.headers(run, *range, *is_walk))
            }
            ModelCall::Head(run) => CallAnswer::Head(Ok(self.head(run))),
            ModelCall::Runs(query, order, _) => CallAnswer::Runs(Ok(self.list(query, *order))),
            ModelCall::Prune(run, cut) => CallAnswer::Removed(self.prune(run, cut)),
            ModelCall::Purge(run, expected) => CallAnswer::Removed(self.purge(run, *expected)),
            ModelCall::Heartbeat(executor, ttl) => {
                if ttl.is_zero() {
                    self.alive.remove(executor);
                } else {
                    self.alive.insert(*executor);
                }
                CallAnswer::Done(Ok(()))
            }
        }
    }

    pub(super) fn generation(&self, run: &RunKey) -> Option<&RunGeneration> {
        self.runs.get(run)
    }

    fn append(&mut self, batch: &[RunAppend]) -> Vec<Result<HeadRef, CallRefusal>> {
        let mut named = BTreeSet::new();
        batch
            .iter()
            .map(|entry| match named.insert(&entry.run) {
                true => self.append_one(entry),
                false => Err(CallRefusal::of(ErrorKind::Invalid)),
            })
            .collect()
    }

    fn append_one(&mut self, entry: &RunAppend) -> Result<HeadRef, CallRefusal> {
        check_append(entry)?;
        let actual = self.runs.get(&entry.run).map(RunGeneration::head);
        let last = entry.records.last().map(|record| record.header.head());
        if actual == entry.expected {
            if let Some(generation) = self.runs.get_mut(&entry.run) {
                generation.written.extend(entry.records.iter().cloned());
            } else {
                let generation = RunGeneration {
                    facts: entry.facts.clone().expect("a start has facts"),
                    written: entry.records.clone(),
                    rebased: BTreeMap::new(),
                    first: 0,
                };
                self.runs.insert(entry.run.clone(), generation);
            }
            return Ok(last.expect("an append has records"));
        }
        match self.runs.get(&entry.run) {
            // A written record counts as written, even if it was pruned since.
            Some(generation) if generation.written.ends_with(&entry.records) => Ok(generation.head()),
            _ => Err(CallRefusal { actual: Some(actual), ..CallRefusal::of(ErrorKind::Conflict) }),
        }
    }

    fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>, CallRefusal> {
        let Some(generation) = self.runs.get(run) else { return Ok(None) };
        let is_meant = |record: &&Record| match at {
            At::Latest => record.header.head() == generation.head(),
            At::Seq(seq) => record.header.seq == seq,
            At::Record(id) => record.header.id == id,
        };
        let Some(end) = generation.kept().find(is_meant) else {
            return Err(CallRefusal::of(ErrorKind::NotFound));
        };
        let mut needed: Vec<Record> = Vec::new();
        for record in generation.kept().take_while(|record| record.header.seq <= end.header.seq) {
            if record.header.base {
                needed.clear();
            }
            needed.push(record.clone());
        }
        Ok(Some(needed))
    }

    fn headers(
        &self,
        run: &RunKey,
        range: HeaderRange,
        is_walk: bool,
    ) -> Result<Vec<RecordHeader>, CallRefusal> {
        let generation = self.runs.get(run).ok_or(CallRefusal::of(ErrorKind::NotFound))?;
        let mut headers: Vec<_> = generation.kept().map(|record| record.header.clone()).collect();
        let limit = if is_walk { usize::MAX } else { range.limit() as usize };
        match range.anchor() {
            Anchor::From(seq) => {
                headers.retain(|header| header.seq >= seq);
                headers.truncate(limit);
            }
            Anchor::UpTo(seq) => {
                headers.retain(|header| header.seq <= seq);
                headers.drain(..headers.len().saturating_sub(limit));
            }
        }
        Ok(headers)
    }

    pub(super) fn head(&self, run: &RunKey) -> Option<RunHead> {
        let generation = self.runs.get(run)?;
        let last = &generation.record(generation.written.len() - 1).header;
        let is_alive = last.owner.is_some_and(|owner| self.alive.contains(&owner));
        Some(RunHead::after(
            run.clone(),
            Seq::new(generation.first as u64),
            last,
            is_alive,
            generation.facts.clone(),
        ))
    }

    fn list(&self, query: &RunQuery, order: Order) -> Vec<RunHead> {
        let heads = self.runs.keys().filter_map(|run| self.head(run));
        let mut heads: Vec<_> = heads.filter(|head| meets(head, query)).collect();
        heads.sort_by_key(|head| (head.facts.created, head.run.tenant.clone(), head.run.run.clone()));
        if order == Order::NewestFirst {
            heads.reverse();
        }
        heads
    }

    fn prune(&mut self, run: &RunKey, cut: &PruneCut) -> Result<(u64, Option<u64>), CallRefusal> {
        let invalid = CallRefusal::of(ErrorKind::Invalid);
        let not_found = CallRefusal::of(ErrorKind::NotFound);
        let generation = self.runs.get_mut(run).ok_or(not_found.clone())?;
        let at = usize::try_from(cut.at.get()).map_err(|_| not_found.clone())?;
        if at >= generation.written.len() {
            return Err(not_found);
        }
        if at < generation.first {
            return Ok((0, cut.base.is_none().then_some(0)));
        }
        let kept = generation.record(at).header.clone();
        if let Some(base) = &cut.base {
            let given = &base.header;
            let wanted = RecordHeader {
                base: true,
                body_len: given.body_len,
                body_crc: given.body_crc,
                ..kept.clone()
            };
            if *given != wanted || base.verify(run).is_err() {
                return Err(invalid);
            }
        } else if !kept.base {
            return Err(invalid);
        }
        let gone: Vec<_> =
            (generation.first..at).map(|seq| generation.record(seq).body.len() as u64).collect();
        generation.first = at;
        // The contract does not define whether the body that a base replaced counts as removed.
        let bytes = cut.base.is_none().then(|| gone.iter().sum());
        if let Some(base) = cut.base.clone().filter(|_| !kept.base) {
            generation.rebased.insert(at, base);
        }
        Ok((gone.len() as u64, bytes))
    }

    fn purge(&mut self, run: &RunKey, expected: Option<HeadRef>) -> Result<(u64, Option<u64>), CallRefusal> {
        let Some(generation) = self.runs.get(run) else { return Ok((0, Some(0))) };
        if expected.is_some() && expected != Some(generation.head()) {
            let actual = Some(Some(generation.head()));
            return Err(CallRefusal { actual, ..CallRefusal::of(ErrorKind::Conflict) });
        }
        let bytes = generation.kept().map(|record| record.body.len() as u64);
        let removed = (generation.kept().count() as u64, Some(bytes.sum()));
        self.runs.remove(run);
        Ok(removed)
    }
}

/// The current time for wake-ups. All wake-ups of the test are long before or long after it.
const NOW: Timestamp = Timestamp::from_unix_ms(1_000_000_000_000);

/// An independent implementation of the conditions of a query.
fn meets(head: &RunHead, query: &RunQuery) -> bool {
    let facts = &head.facts;
    let differs = |condition: Option<bool>| condition == Some(false);
    if differs(query.tenant.as_ref().map(|tenant| head.run.tenant == *tenant))
        || differs(query.workflow.as_ref().map(|workflow| facts.workflow == *workflow))
        || differs(query.user.as_ref().map(|user| facts.user.as_ref() == Some(user)))
        || differs(query.owner.map(|owner| head.owner == Some(owner)))
        || differs(query.created_from.map(|from| facts.created >= from))
        || differs(query.created_before.map(|before| facts.created < before))
        || differs(query.parent.as_ref().map(|run| facts.parent.as_ref().is_some_and(|p| p.run == *run)))
        || !query.statuses.is_empty() && !query.statuses.contains(&head.status)
        || query.labels.iter().any(|(key, value)| facts.labels.get(key) != Some(value.as_str()))
    {
        return false;
    }
    match query.filter {
        RunFilter::Orphaned => {
            head.status == RunStatus::InProgress && head.wake_at.is_none() && !head.owner_alive
        }
        RunFilter::Due => head.wake_at.is_some_and(|at| at <= NOW) && !head.owner_alive,
        _ => true,
    }
}
