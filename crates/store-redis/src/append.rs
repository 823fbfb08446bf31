//! Appends. An append adds the run to the index sets that it needs, runs the script that appends, and removes the run from index sets that it left.
//! If one server has all keys, one script does all of this, for many runs.

use std::sync::Arc;

use bytes::Bytes;
use ferrata_store::codec::binary::beginning;
use ferrata_store::index::{IndexMove, RunStanding};
use ferrata_store::{
    Error, ErrorKind, HeadRef, RecordHeader, Result, RunAppend, RunKey, Seq, check_append, check_batch,
    is_repeat, refusal,
};
use redis::Value;

use crate::entry::{RunFactsEntry, StoredHead};
use crate::error::{RedisCallEffect, RedisStoreError};
use crate::header::{header_of, write_header};
use crate::index::{Index, Placement};
use crate::known_heads::{KnownPlace, RedisKnownHead};
use crate::layout::{Member, fixed_places};
use crate::link::{RedisCall, ReplicaWait};
use crate::reply::{ReplyParts, bytes};
use crate::scripts::{APPEND, HEADS};
use crate::store::RedisInner;

const OPERATION: &str = "store.append";

/// The maximum size of the bodies in one entry of a batch, in bytes.
///
/// A script blocks the server while it copies them, for about 30 ms at this size. The server accepts no argument larger than 512 MB.
const MAX_BYTES: usize = 64 << 20;

/// An entry of a batch during its append.
struct AppendEntry {
    append: RunAppend,
    /// The run's status, owner and wake-up time after the last record.
    moving: Option<RunStanding>,
    /// The run's known state with the expected head. `None` if the expected head is no longer the head, so that the append will write nothing.
    stood: Option<RedisKnownHead>,
    result: Option<Result<HeadRef>>,
}

impl AppendEntry {
    fn last(&self) -> Option<&RecordHeader> {
        self.append.records.last().map(|record| &record.header)
    }

    fn refuse(&mut self, fault: RedisStoreError, doubt: RedisCallEffect) {
        self.result = Some(Err(fault.of_run(OPERATION, &self.append.run, doubt)));
    }

    fn standing(&self) -> Option<Placement<'_>> {
        let placed = &self.stood.as_ref()?.placed;
        Some(Placement {
            run: &self.append.run,
            member: &placed.member,
            seq: self.last()?.seq,
            fixed: &placed.fixed,
            moving: self.moving?,
        })
    }

    /// Returns the run's new index sets, if they differ from those of the expected head.
    fn moves(&self) -> Option<Placement<'_>> {
        let stood = self.stood.as_ref()?.moving;
        self.standing().filter(|now| IndexMove::new(stood, now.moving).entry_before().is_some())
    }
}

impl RedisInner {
    pub(crate) async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let index = match self.index().await {
            Ok(index) => index,
            Err(fault) => {
                let refuse = |append: RunAppend| {
                    Err(fault.clone().of_run(OPERATION, &append.run, RedisCallEffect::None))
                };
                return batch.into_iter().map(refuse).collect();
            }
        };
        let checks = check_batch(&batch, check);
        let mut entries: Vec<AppendEntry> =
            batch.into_iter().zip(checks).map(|(append, check)| self.entry(append, check)).collect();
        self.read_known_heads(&mut entries).await;
        let together = self.link.is_together();
        if !together {
            let began = self.clock.monotonic();
            self.announce(index, &mut entries).await;
            // If no record follows within `stale_after`, readers may remove the announced index entry. So the append must be sent within half of
            // that time.
            if self.clock.monotonic() > began + self.options.stale_after / 2 {
                entries
                    .iter_mut()
                    .filter(|e| e.result.is_none())
                    .for_each(|e| e.refuse(RedisStoreError::StoodStill, RedisCallEffect::None));
            }
        }
        let after = self.write(index, &mut entries, together).await;
        for reply in self.link.many(after, None).await {
            // These calls only clean up. If one fails, the next listing that finds a surplus entry removes it.
            if let Err(fault) = reply {
                tracing::debug!(%fault, "could not update an entry of the index; the next listing repairs it");
            }
        }
        let missing = || {
            Err(Error::new(
                ErrorKind::Indeterminate,
                "the append did not finish; retry with the same records",
            ))
        };
        entries.into_iter().map(|entry| entry.result.unwrap_or_else(missing)).collect()
    }

    fn entry(&self, append: RunAppend, check: Result<()>) -> AppendEntry {
        let moving = append.records.last().map(|record| RunStanding::after(&record.header));
        let stood = match (&append.facts, append.expected) {
            _ if check.is_err() => None,
            (Some(facts), _) => append.records.first().map(|first| RedisKnownHead {
                head: first.header.id,
                base: Seq::new(0),
                moving: None,
                placed: Arc::new(KnownPlace {
                    member: Member::new(&append.run, facts.created, first.header.id),
                    fixed: fixed_places(&append.run, facts),
                }),
            }),
            (None, Some(expected)) => self.known.at(&append.run, expected.id),
            (None, None) => None,
        };
        AppendEntry { append, moving, stood, result: check.err().map(Err) }
    }

    /// Reads the state of runs whose last writer was another process.
    async fn read_known_heads(&self, entries: &mut [AppendEntry]) {
        let unknown: Vec<&mut AppendEntry> =
            entries.iter_mut().filter(|e| e.result.is_none() && e.stood.is_none()).collect();
        let calls = unknown.iter().map(|entry| self.head_call(&entry.append.run)).collect();
        let replies = self.link.many(calls, None).await;
        for (entry, reply) in unknown.into_iter().zip(replies) {
            match reply.and_then(|reply| StoredHead::read(&entry.append.run, reply)) {
                // Otherwise the append will be refused or is a repeat. It writes nothing, so it needs no index entry.
                Ok(Some(head)) if entry.append.expected == Some(head.last.head()) => {
                    entry.stood = known_head(&entry.append.run, &head);
                    if entry.stood.is_none() {
                        entry.refuse(
                            RedisStoreError::corrupt(None, "the id of a run in the index is invalid"),
                            RedisCallEffect::None,
                        );
                    }
                }
                Ok(_) => {}
                Err(fault) => entry.refuse(fault, RedisCallEffect::None),
            }
        }
    }

    /// Adds the index entries that the records will need, before the records are written. So listings never lack a run.
    async fn announce(&self, index: &Index, entries: &mut [AppendEntry]) {
        let moving: Vec<&mut AppendEntry> =
            entries.iter_mut().filter(|entry| entry.result.is_none() && entry.moves().is_some()).collect();
        let calls = moving.iter().filter_map(|entry| Some(index.announce(&entry.moves()?))).collect();
        let replies = self.link.many(calls, None).await;
        for (entry, reply) in moving.into_iter().zip(replies) {
            if let Err(fault) = reply {
                entry.refuse(fault, RedisCallEffect::None);
            }
        }
    }

    /// Runs the script. Returns the index calls that are left to do; there are none if the script did them, too.
    async fn write(&self, index: &Index, entries: &mut [AppendEntry], together: bool) -> Vec<RedisCall> {
        let mut sent: Vec<&mut AppendEntry> =
            entries.iter_mut().filter(|entry| entry.result.is_none()).collect();
        let common = self.common();
        let mut calls = Vec::with_capacity(sent.len());
        for entry in &mut sent {
            match self.script(together.then_some(index), &common, entry) {
                Ok(call) => calls.push(call),
                Err(fault) => entry.refuse(fault, RedisCallEffect::None),
            }
        }
        sent.retain(|entry| entry.result.is_none());
        let wait = (self.options.replicas > 0).then_some(ReplicaWait {
            replicas: self.options.replicas,
            timeout: self.options.replica_timeout,
        });
        let replies = self.link.many(calls, wait).await;
        let mut after = Vec::new();
        for (entry, reply) in sent.into_iter().zip(replies) {
            let index = (!together).then_some(index);
            match reply.and_then(|reply| self.answer(index, entry, reply, &mut after)) {
                Ok(result) => entry.result = Some(result),
                Err(fault) => {
                    self.known.remove(&entry.append.run);
                    entry.refuse(fault, RedisCallEffect::Written);
                }
            }
        }
        after
    }

    /// Returns the script's arguments that all runs share.
    pub(crate) fn common(&self) -> Arc<[Bytes]> {
        let replicas = Bytes::from_static(if self.options.replicas > 0 { b"1" } else { b"" });
        let channel = if self.options.notices { self.layout.channel() } else { Bytes::new() };
        Arc::from([channel, self.layout.name_at().to_string().into(), self.hearing.mark(), replicas])
    }

    fn script(
        &self,
        index: Option<&Index>,
        common: &Arc<[Bytes]>,
        entry: &AppendEntry,
    ) -> Result<RedisCall, RedisStoreError> {
        let RunAppend { run, expected, records, facts } = &entry.append;
        let last = entry.last().ok_or_else(|| RedisStoreError::strange("an append without records"))?;
        let beside = index.zip(entry.moves()).map(|(index, standing)| index.append_arguments(&standing));
        let beside = beside.unwrap_or_default();
        let keep = self.retention_argument(entry, last);
        let what = match (records.len(), &*keep, beside.len()) {
            (1, "", 0) => Bytes::from_static(b"1"),
            (count, keep, places) => format!("{count};{keep};{places}").into(),
        };
        let mut call = RedisCall::each(&APPEND, common, self.layout.run(run))
            .arg(expected.as_ref().map_or_else(Bytes::new, beginning))
            .arg(what);
        beside.into_iter().for_each(|part| call.push(part));
        if let Some((facts, stood)) = facts.as_ref().zip(entry.stood.as_ref()) {
            call.push(RunFactsEntry::write(&stood.placed.member, facts)?);
        }
        // If the head is unknown, the append writes nothing: the script only compares the id.
        let mut base = entry.stood.as_ref().map_or(Seq::new(0), |stood| stood.base);
        for record in records {
            base = if record.header.base { record.header.seq } else { base };
            call.push(write_header(&record.header, base)?);
            call.push(record.body.clone());
        }
        Ok(call)
    }

    /// Returns the script's argument for how long the server keeps the run.
    fn retention_argument(&self, entry: &AppendEntry, last: &RecordHeader) -> String {
        let Some(stood) = &entry.stood else { return "?".to_owned() };
        match self.options.keep_finished {
            // Never expire internal records: without its signpost, a run could be started in another shard. An old map may still have an expiry
            // time, which this removes.
            Some(_) if entry.append.is_mark() => stood.moving.map_or("", |_| "-").to_owned(),
            Some(keep) if last.status.is_finished() && last.wake_at.is_none() => keep.as_millis().to_string(),
            // Only a finished run can have an expiry time.
            _ if stood.moving.is_some_and(|moving| moving.status.is_finished()) => "-".to_owned(),
            _ => String::new(),
        }
    }

    /// Parses the reply for one run. `index` is given if the run must still be removed from the index sets that it left.
    fn answer(
        &self,
        index: Option<&Index>,
        entry: &mut AppendEntry,
        reply: Value,
        after: &mut Vec<RedisCall>,
    ) -> Result<Result<HeadRef>, RedisStoreError> {
        if reply == Value::Int(1) {
            let head =
                entry.last().map(RecordHeader::head).ok_or_else(|| RedisStoreError::strange("no record"))?;
            if let (Some(index), Some(standing), Some(_)) = (index, entry.moves(), entry.append.expected) {
                after.push(index.settle_call(&standing));
            }
            self.hearing.notify_local(&entry.append.run, head);
            if let Some(stood) = entry.stood.take() {
                let newest = entry.append.records.iter().rev().find(|record| record.header.base);
                let base = newest.map_or(stood.base, |record| record.header.seq);
                let stood = RedisKnownHead { head: head.id, base, moving: entry.moving, ..stood };
                self.known.remember(&entry.append.run, stood);
            }
            return Ok(Ok(head));
        }
        let mut reply = ReplyParts::of(reply)?;
        let run = &entry.append.run;
        match reply.text()?.as_str() {
            "differs" => {
                let found = ActualHead::read(run, reply)?;
                self.known.remove(run);
                if found.is_repeat(&entry.append)? {
                    return Ok(Ok(found.head));
                }
                // A start that lost the race has announced a generation that will never exist. Remove its entries, unless the entries belong to the
                // existing run.
                let lost = entry.stood.as_ref().filter(|_| entry.append.facts.is_some()).zip(index);
                let lost = lost.filter(|(stood, _)| stood.placed.member.as_str() != found.said.member);
                after.extend(lost.map(|(stood, index)| index.remove_call(run, &stood.placed.member)));
                Ok(Err(refusal::conflict(run, entry.append.expected, Some(found.head))))
            }
            "absent" => {
                self.known.remove(run);
                Ok(Err(refusal::conflict(run, entry.append.expected, None)))
            }
            "broken" => Err(RedisStoreError::corrupt(None, "the run's list has no record")),
            other => Err(RedisStoreError::strange(format!("the append script returned {other:?}"))),
        }
    }

    /// Returns the call that reads the head of a run.
    pub(crate) fn head_call(&self, run: &RunKey) -> RedisCall {
        RedisCall::each(&HEADS, &Arc::default(), self.layout.run(run))
    }
}

/// Returns a run's state from its head; `None` if another program wrote the stored state.
fn known_head(run: &RunKey, head: &StoredHead) -> Option<RedisKnownHead> {
    let member = Member::parse(head.said.member.as_bytes())?;
    Some(RedisKnownHead {
        head: head.last.id,
        base: head.base,
        moving: Some(RunStanding::after(&head.last)),
        placed: Arc::new(KnownPlace { member, fixed: fixed_places(run, &head.said.facts) }),
    })
}

/// The actual head, which is not the expected head.
struct ActualHead {
    head: HeadRef,
    said: RunFactsEntry,
    newest_first: Vec<Value>,
}

impl ActualHead {
    fn read(run: &RunKey, mut reply: ReplyParts) -> Result<Self, RedisStoreError> {
        let head = header_of(&reply.bytes()?, None)?.head();
        let said = RunFactsEntry::read(run, &reply.bytes()?)?;
        Ok(Self { head, said, newest_first: reply.parts()?.collect() })
    }

    /// Returns whether the log already ends with the append.
    fn is_repeat(&self, append: &RunAppend) -> Result<bool, RedisStoreError> {
        let mut kept = Vec::with_capacity(self.newest_first.len());
        for header in &self.newest_first {
            kept.push(header_of(&bytes(header.clone())?, None)?);
        }
        Ok(is_repeat(&kept, append) && append.facts.as_ref().is_none_or(|facts| *facts == self.said.facts))
    }
}

fn check(append: &RunAppend) -> Result<()> {
    check_append(append)?;
    let bytes = append.records.iter().map(|record| record.body.len()).sum::<usize>();
    if bytes > MAX_BYTES {
        let message = format!(
            "the records have {bytes} bytes, and one append has at most {MAX_BYTES}; make them smaller"
        );
        return Err(Error::new(ErrorKind::TooLarge, message).with_operation(OPERATION).with_run(&append.run));
    }
    Ok(())
}
