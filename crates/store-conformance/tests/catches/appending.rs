//! Faults of appends.

use std::collections::HashSet;

use ferrata_store::{
    At, CheckpointStore, Error, ErrorKind, HeadRef, MemoryStore, Record, Result, RunAppend, RunKey, is_repeat,
};

use super::liar::Liar;
use super::lie::Lie;

fn conflict(run: &RunKey, actual: Option<HeadRef>) -> Error {
    Error::new(ErrorKind::Conflict, "another head").with_run(run).with_actual_head(actual)
}

fn end(append: &RunAppend) -> Option<HeadRef> {
    append.records.last().map(|record| record.header.head())
}

/// Writes records after the current end of the log, as if they followed it.
async fn force(store: &MemoryStore, append: &RunAppend) -> Result<HeadRef> {
    let exists = store.tamper(&append.run, |records| {
        let mut prev = records.last().map(|record| record.header.head());
        for record in &append.records {
            let mut header = record.header.clone();
            header.seq = prev.map_or(header.seq, |prev| prev.seq.next());
            header.prev = prev.map(|prev| prev.id);
            prev = Some(header.head());
            records.push(Record { header, body: record.body.clone() });
        }
    });
    match end(append) {
        Some(end) if exists => Ok(end),
        _ => Err(conflict(&append.run, None)),
    }
}

impl Liar {
    async fn head_of(&self, run: &RunKey) -> Option<HeadRef> {
        self.shared.store.head(run).await.ok().flatten().map(|head| head.head())
    }

    async fn append_one(&self, append: RunAppend) -> Result<HeadRef> {
        let run = append.run.clone();
        self.shared.store.append(vec![append]).await.pop().unwrap_or_else(|| Err(conflict(&run, None)))
    }

    /// Remembers what was written, for faults that need it.
    fn note(&self, append: &RunAppend) {
        let mut notes = self.shared.notes();
        let facts = append.facts.clone();
        let written = match (facts, notes.written.remove(&append.run)) {
            (Some(facts), _) => (facts, append.records.clone()),
            (None, Some((facts, mut records))) => {
                records.extend(append.records.iter().cloned());
                (facts, records)
            }
            (None, None) => return,
        };
        notes.written.insert(append.run.clone(), written);
        for record in &append.records {
            notes.acknowledged.insert(record.header.id, self.instance);
        }
        notes.last_append.insert(append.run.clone(), append.clone());
    }

    pub(super) async fn append_falsely(&self, mut batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        for append in &mut batch {
            append.run = self.name(&append.run);
        }
        match self.shared.lie {
            Lie::AnswersNothing if batch.is_empty() => {
                vec![Err(Error::new(ErrorKind::Invalid, "nothing to do"))]
            }
            Lie::SwapsResults => {
                let mut results = self.one_by_one(batch, &[]).await;
                results.reverse();
                results
            }
            Lie::OneRefusalRefusesAll => {
                for append in &batch {
                    if self.head_of(&append.run).await != append.expected {
                        let refused = |append: &RunAppend| Err(conflict(&append.run, None));
                        return batch.iter().map(refused).collect();
                    }
                }
                self.one_by_one(batch, &[]).await
            }
            Lie::DamageRefusesAll => {
                for append in &batch {
                    if let Err(error) = self.shared.store.load(&append.run, At::Latest).await {
                        let refused = |_| Err(Error::new(error.kind(), "a run of the batch is damaged"));
                        return batch.iter().map(refused).collect();
                    }
                }
                self.one_by_one(batch, &[]).await
            }
            Lie::CutsLongBatches => {
                let late = batch.split_off(batch.len().min(100));
                let mut results = self.one_by_one(batch, &[]).await;
                results
                    .extend(late.iter().map(|append| end(append).ok_or_else(|| conflict(&append.run, None))));
                results
            }
            Lie::TakesARunTwice => self.one_by_one(batch, &[ErrorKind::Invalid, ErrorKind::Conflict]).await,
            Lie::TakesARunAgainAfterRefusal => self.one_by_one(batch, &[ErrorKind::Conflict]).await,
            _ => {
                let (mut results, mut named) = (Vec::new(), HashSet::new());
                for append in batch {
                    results.push(match named.insert(append.run.clone()) {
                        true => self.append_alone(append).await,
                        false => {
                            Err(Error::new(ErrorKind::Invalid, "twice in a batch").with_run(&append.run))
                        }
                    });
                }
                results
            }
        }
    }

    /// Appends each entry separately. A run that is named twice is refused, unless the result of its first entry is in `forgiven`.
    async fn one_by_one(&self, batch: Vec<RunAppend>, forgiven: &[ErrorKind]) -> Vec<Result<HeadRef>> {
        let (mut results, mut named) = (Vec::new(), HashSet::new());
        for append in batch {
            let run = append.run.clone();
            if named.contains(&run) {
                results.push(Err(Error::new(ErrorKind::Invalid, "twice in a batch").with_run(&run)));
                continue;
            }
            let result = self.append_alone(append).await;
            let is_forgiven = match &result {
                // A fault that accepts duplicate entries also accepts a successful first one.
                Ok(_) => forgiven.contains(&ErrorKind::Invalid),
                Err(error) => forgiven.contains(&error.kind()),
            };
            if !is_forgiven {
                named.insert(run);
            }
            results.push(result);
        }
        results
    }

    async fn append_alone(&self, append: RunAppend) -> Result<HeadRef> {
        let store = &self.shared.store;
        if self.tells(Lie::WritesBehindDamage)
            && let Err(error) = store.load(&append.run, At::Latest).await
        {
            force(store, &append).await?;
            return Err(error);
        }
        let result = self.append_as_told(append.clone()).await;
        match result {
            Ok(head) => {
                self.note(&append);
                if self.shared.notes().late.contains(&append.run) {
                    store.purge(&append.run, None).await?;
                }
                Ok(head)
            }
            Err(error) if self.tells(Lie::HidesTheHead) && error.kind() == ErrorKind::Conflict => {
                Err(Error::new(ErrorKind::Conflict, error.message()).with_run(&append.run))
            }
            Err(error) => Err(error),
        }
    }

    async fn append_as_told(&self, append: RunAppend) -> Result<HeadRef> {
        let store = &self.shared.store;
        let run = &append.run;
        let head = self.head_of(run).await;
        let is_expected = head == append.expected;
        match self.shared.lie {
            Lie::LosesTheFirst if head.is_none() => {
                store.append(Vec::new()).await;
                end(&append).ok_or_else(|| conflict(run, None))
            }
            Lie::LosesTheLast if is_expected && append.records.len() > 1 => {
                let told = end(&append);
                let mut short = append.clone();
                short.records.pop();
                self.append_one(short).await.map(|head| told.unwrap_or(head))
            }
            Lie::CutsLongEntries if append.records.len() > 500 => {
                let told = end(&append);
                let mut short = append.clone();
                short.records.truncate(500);
                self.append_one(short).await.map(|head| told.unwrap_or(head))
            }
            Lie::ChecksNothing => match self.append_one(append.clone()).await {
                Err(error) if error.kind() != ErrorKind::Conflict => Ok(end(&append).unwrap_or_else(|| {
                    HeadRef { seq: <_>::default(), id: ferrata_store::RecordId::from_uuid(<_>::default()) }
                })),
                result => result,
            },
            Lie::TearsWhatItRefuses => {
                let result = self.append_one(append.clone()).await;
                if result.is_err() {
                    let first = RunAppend { records: append.records[..1].to_vec(), ..append };
                    let _ = force(store, &first).await;
                }
                result
            }
            Lie::StopsAfterPruning => {
                let first = store.head(run).await?.map_or(0, |head| head.first.get());
                if first > 0 { Err(conflict(run, head)) } else { self.append_one(append).await }
            }
            Lie::NeverForgetsNames if head.is_none() && self.shared.notes().purged.contains_key(run) => {
                Err(conflict(run, None))
            }
            Lie::ChecksBeforeWriting => {
                if !is_expected {
                    return self.append_one(append).await;
                }
                self.pause().await;
                match self.append_one(append.clone()).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => force(store, &append).await,
                    result => result,
                }
            }
            Lie::MixesUpRuns => {
                self.shared.notes().current = Some(append.run.clone());
                self.pause().await;
                let run = self.shared.notes().current.clone();
                self.append_one(RunAppend { run: run.unwrap_or(append.run.clone()), ..append }).await
            }
            Lie::ShowsTheHeadFirst if is_expected && head.is_some() => {
                let mut shown = store.head(run).await?.ok_or_else(|| conflict(run, None))?;
                (shown.seq, shown.id) = end(&append).map_or((shown.seq, shown.id), |end| (end.seq, end.id));
                self.shared.notes().shown.insert(run.clone(), shown);
                self.pause().await;
                let result = self.append_one(append.clone()).await;
                self.shared.notes().shown.remove(run);
                result
            }
            Lie::WritesOneByOne if is_expected => {
                let mut last = Err(conflict(run, head));
                let mut expected = append.expected;
                for record in append.records {
                    let facts = append.facts.clone().filter(|_| expected.is_none());
                    let head = record.header.head();
                    let one = RunAppend { run: append.run.clone(), expected, records: vec![record], facts };
                    last = self.append_one(one).await;
                    expected = Some(head);
                    self.pause().await;
                }
                last
            }
            _ if is_expected => self.append_one(append).await,
            _ => self.append_elsewhere(append, head).await,
        }
    }

    /// Appends entries that expect another head than the current one.
    async fn append_elsewhere(&self, append: RunAppend, head: Option<HeadRef>) -> Result<HeadRef> {
        let store = &self.shared.store;
        let run = &append.run;
        let is_same_end = head.is_some() && head == end(&append);
        let seq = |head: Option<HeadRef>| head.map(|head| head.seq);
        match self.shared.lie {
            Lie::IgnoresTheHead if head.is_some() => force(store, &append).await,
            Lie::ComparesNumbersOnly if seq(head) == seq(append.expected) => force(store, &append).await,
            Lie::TakesTheFuture if head.is_some() && seq(head) < seq(append.expected) => {
                force(store, &append).await
            }
            Lie::StartsOnAppend if head.is_none() => {
                let mut records = append.records.clone();
                let header = &mut records[0].header;
                (header.seq, header.prev, header.base) = (<_>::default(), None, true);
                records.truncate(1);
                let facts = self.shared.notes().written.values().next().map(|(facts, _)| facts.clone());
                let print = ferrata_store::Fingerprint::of(b"");
                let name = ferrata_store::WorkflowName::new("w").unwrap();
                let facts = facts.unwrap_or_else(|| {
                    ferrata_store::RunFacts::new(name, "1", print, print, <_>::default()).unwrap()
                });
                self.append_one(RunAppend { expected: None, records, facts: Some(facts), ..append }).await
            }
            Lie::StartsOver if append.expected.is_none() => {
                store.purge(run, None).await?;
                self.append_one(append).await
            }
            Lie::ForgetsIds if is_same_end => Err(conflict(run, head)),
            Lie::DoublesRepeats if is_same_end => force(store, &append).await,
            Lie::RemembersTheLastCallOnly if is_same_end => {
                let is_last = self.shared.notes().last_append.get(run) == Some(&append);
                if is_last { self.append_one(append).await } else { Err(conflict(run, head)) }
            }
            Lie::TakesOldRepeats => {
                let written = self.shared.notes().written.get(run).map(|(_, records)| records.clone());
                let all = written.unwrap_or_default();
                let is_old = append.records.iter().all(|record| all.contains(record));
                match end(&append).filter(|_| is_old) {
                    Some(end) => Ok(end),
                    None => self.append_one(append).await,
                }
            }
            Lie::TrustsIds if is_same_end => head.ok_or_else(|| conflict(run, None)),
            Lie::ContinuesRepeats => {
                let known = append.records.iter().position(|record| Some(record.header.head()) == head);
                match known {
                    Some(known) if known + 1 < append.records.len() => {
                        let records = append.records[known + 1..].to_vec();
                        self.append_one(RunAppend { expected: head, records, facts: None, ..append }).await
                    }
                    _ => self.append_one(append).await,
                }
            }
            Lie::ForgetsPrunedRepeats => {
                let first = store.head(run).await?.map_or(0, |head| head.first.get());
                let from = append.records.first().map_or(0, |record| record.header.seq.get());
                if first > from { Err(conflict(run, head)) } else { self.append_one(append).await }
            }
            Lie::RemembersPerInstance if is_same_end => {
                let id = end(&append).map(|end| end.id);
                let by = id.and_then(|id| self.shared.notes().acknowledged.get(&id).copied());
                if by == Some(self.instance) {
                    self.append_one(append).await
                } else {
                    Err(conflict(run, head))
                }
            }
            _ => {
                debug_assert!(!is_repeat([], &append), "nothing repeats the empty append");
                self.append_one(append).await
            }
        }
    }
}
