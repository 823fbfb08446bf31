//! Appending: take places in the index, run one script for each run, give places up that are left.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use ferrata_core::record::{RecordHeader, RunFacts};
use ferrata_core::store::{RunAppend, check_append, is_repeat};
use ferrata_core::{Error, ErrorKind, HeadRef, RecordId, Result, RunKey, Seq};
use redis::Value;

use crate::entry::{HEAD_FIELDS, Head, check_layout, header_of, write_header};
use crate::error::{Doubt, Fault};
use crate::index::{Index, Standing};
use crate::known::Stood;
use crate::layout::{Member, fixed_places, moving_places, name};
use crate::link::{Call, Wait};
use crate::reply::{Parts, bytes};
use crate::scripts::APPEND;
use crate::store::Shared;

const OPERATION: &str = "store.append";

/// The most bytes of bodies in one entry of a batch.
///
/// A script holds the server while it copies them, some 30 ms for this much; and the server takes no argument over 512 MB.
const MAX_BYTES: usize = 64 << 20;

/// One entry of a batch on its way.
struct Entry {
    append: RunAppend,
    /// Where the run will stand with the last record.
    moving: String,
    /// Where the run stands with the expected head; absent if that is no longer its head, so that the append will be refused.
    stood: Option<Stood>,
    result: Option<Result<HeadRef>>,
}

impl Entry {
    fn last(&self) -> Option<&RecordHeader> {
        self.append.records.last().map(|record| &record.header)
    }

    fn refuse(&mut self, fault: Fault, doubt: Doubt) {
        self.result = Some(Err(fault.of_run(OPERATION, &self.append.run, doubt)));
    }

    fn standing(&self) -> Option<Standing<'_>> {
        let stood = self.stood.as_ref()?;
        Some(Standing {
            run: &self.append.run,
            member: &stood.member,
            seq: self.last()?.seq,
            fixed: &stood.fixed,
            moving: &self.moving,
        })
    }
}

impl Shared {
    pub(crate) async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let index = match self.index().await {
            Ok(index) => index,
            Err(fault) => {
                let refuse =
                    |append: RunAppend| Err(fault.clone().of_run(OPERATION, &append.run, Doubt::None));
                return batch.into_iter().map(refuse).collect();
            }
        };
        let mut seen = HashSet::new();
        let mut entries: Vec<Entry> = batch
            .into_iter()
            .map(|append| {
                let result =
                    if seen.insert(append.run.clone()) { check(&append) } else { Err(doubled(&append.run)) };
                self.entry(append, result)
            })
            .collect();
        self.look(&mut entries).await;
        let began = self.clock.monotonic();
        self.announce(index, &mut entries).await;
        // What was announced lapses when no run is found for it for so long; by half of that it must be on its way.
        if self.clock.monotonic() > began + self.options.stale_after / 2 {
            entries
                .iter_mut()
                .filter(|e| e.result.is_none())
                .for_each(|e| e.refuse(Fault::StoodStill, Doubt::None));
        }
        let after = self.write(index, &mut entries).await;
        for reply in self.link.many(after, None).await {
            // These only tidy up: whoever next lists a run that stands in a place too many takes it out.
            if let Err(fault) = reply {
                tracing::debug!(%fault, "left an entry of the index to the next listing");
            }
        }
        let missing =
            || Err(Error::new(ErrorKind::Indeterminate, "the append came to no end; retry the same records"));
        entries.into_iter().map(|entry| entry.result.unwrap_or_else(missing)).collect()
    }

    fn entry(&self, append: RunAppend, check: Result<()>) -> Entry {
        let moving = append.records.last().map(|record| moving_places(&record.header)).unwrap_or_default();
        let stood = match (&append.facts, append.expected) {
            _ if check.is_err() => None,
            (Some(facts), _) => append.records.first().map(|first| Stood {
                head: first.header.id,
                member: Member::new(&append.run, facts.created, first.header.id),
                fixed: Arc::new(fixed_places(&append.run, facts)),
                moving: String::new(),
            }),
            (None, Some(expected)) => self.known.at(&append.run, expected.id),
            (None, None) => None,
        };
        Entry { append, moving, stood, result: check.err().map(Err) }
    }

    /// Looks up where runs stand that this process did not write last.
    async fn look(&self, entries: &mut [Entry]) {
        let unknown: Vec<&mut Entry> =
            entries.iter_mut().filter(|e| e.result.is_none() && e.stood.is_none()).collect();
        let calls = unknown.iter().map(|entry| self.head_call(&entry.append.run)).collect();
        let replies = self.link.many(calls, None).await;
        for (entry, reply) in unknown.into_iter().zip(replies) {
            match reply.and_then(Parts::of).and_then(Head::read) {
                // Otherwise it will be refused, or is a repeat: nothing will be written, so nothing is announced.
                Ok(Some(head)) if entry.append.expected == Some(head.last.head()) => {
                    entry.stood = stood(&entry.append.run, &head);
                }
                Ok(_) => {}
                Err(fault) => entry.refuse(fault, Doubt::None),
            }
        }
    }

    /// Takes the places that the records will need, so that no run is ever missing where it belongs.
    async fn announce(&self, index: &Index, entries: &mut [Entry]) {
        let moves = |entry: &&mut Entry| {
            entry.result.is_none() && entry.stood.as_ref().is_some_and(|stood| stood.moving != entry.moving)
        };
        let moving: Vec<&mut Entry> = entries.iter_mut().filter(moves).collect();
        let calls = moving.iter().filter_map(|entry| Some(index.announce(&entry.standing()?))).collect();
        let replies = self.link.many(calls, None).await;
        for (entry, reply) in moving.into_iter().zip(replies) {
            if let Err(fault) = reply {
                entry.refuse(fault, Doubt::None);
            }
        }
    }

    /// Runs the scripts, and returns what is left to do in the index.
    async fn write(&self, index: &Index, entries: &mut [Entry]) -> Vec<Call> {
        let mut sent: Vec<&mut Entry> = entries.iter_mut().filter(|entry| entry.result.is_none()).collect();
        let mut calls = Vec::with_capacity(sent.len());
        for entry in &mut sent {
            match self.script(entry) {
                Ok(call) => calls.push(call),
                Err(fault) => entry.refuse(fault, Doubt::None),
            }
        }
        sent.retain(|entry| entry.result.is_none());
        let wait = (self.options.replicas > 0)
            .then_some(Wait { replicas: self.options.replicas, timeout: self.options.replica_timeout });
        let replies = self.link.many(calls, wait).await;
        let mut after = Vec::new();
        for (entry, reply) in sent.into_iter().zip(replies) {
            match reply.and_then(|reply| self.answer(index, entry, reply, &mut after)) {
                Ok(result) => entry.result = Some(result),
                Err(fault) => {
                    self.known.forget(&entry.append.run);
                    entry.refuse(fault, Doubt::Written);
                }
            }
        }
        after
    }

    fn script(&self, entry: &Entry) -> Result<Call, Fault> {
        let RunAppend { run, expected, records, facts } = &entry.append;
        let last = entry.last().ok_or_else(|| Fault::strange("an append without records"))?;
        let text = |text: Option<String>| text.map_or_else(Bytes::new, Bytes::from);
        let keep = self.options.keep_finished.filter(|_| last.status.is_finished());
        let member =
            entry.stood.as_ref().filter(|_| facts.is_some()).map(|stood| stood.member.as_str().to_owned());
        let facts = facts.as_ref().map(serde_json::to_string).transpose();
        let facts = facts.map_err(|error| Fault::strange(format!("facts without JSON ({error})")))?;
        let mut call = Call::script(&APPEND, vec![self.layout.head(run), self.layout.log(run)])
            .arg(text(expected.map(|head| head.seq.to_string())))
            .arg(text(expected.map(|head| head.id.to_string())))
            .arg(entry.moving.clone())
            .arg(text(facts))
            .arg(write_header(last)?)
            .arg(keep.map_or(0, |keep| keep.as_millis()).to_string())
            .arg(if self.options.notices { self.layout.channel() } else { Bytes::new() })
            .arg(name(run))
            .arg(text(member))
            .arg(records.len().to_string());
        for record in records {
            call.push(record.header.seq.to_string());
            call.push(record.header.id.to_string());
            call.push(Bytes::from_static(if record.header.base { b"1" } else { b"0" }));
            call.push(write_header(&record.header)?);
            call.push(record.body.clone());
        }
        Ok(call)
    }

    fn answer(
        &self,
        index: &Index,
        entry: &mut Entry,
        reply: Value,
        after: &mut Vec<Call>,
    ) -> Result<Result<HeadRef>, Fault> {
        let mut reply = Parts::of(reply)?;
        let run = entry.append.run.clone();
        match reply.text()?.as_str() {
            "ok" => {
                let has_moved = reply.text()? == "1";
                let head = entry.last().map(RecordHeader::head).ok_or_else(|| Fault::strange("no record"))?;
                if has_moved && entry.append.expected.is_some() {
                    after.extend(entry.standing().map(|standing| index.settle(&standing)));
                }
                if let Some(stood) = entry.stood.take() {
                    self.known.remember(&run, Stood { head: head.id, moving: entry.moving.clone(), ..stood });
                }
                Ok(Ok(head))
            }
            "differs" => {
                let found = Found::read(reply)?;
                self.known.forget(&run);
                if found.is_repeat(&entry.append)? {
                    return Ok(Ok(found.head));
                }
                // A start that lost announced a life that will never be, unless it is the one that is there.
                let lost = entry.stood.as_ref().filter(|_| entry.append.facts.is_some());
                let lost = lost.filter(|stood| stood.member.as_str().as_bytes() != &found.member[..]);
                after.extend(lost.map(|stood| index.forget(&run, &stood.member)));
                Ok(Err(conflict(&run, Some(found.head))))
            }
            "absent" => {
                self.known.forget(&run);
                Ok(Err(conflict(&run, None)))
            }
            "newer" => {
                Err(check_layout(&reply.text()?).err().unwrap_or_else(|| Fault::strange("a layout at odds")))
            }
            "broken" => Err(Fault::corrupt(None, reply.text()?)),
            other => Err(Fault::strange(format!("the append script says {other:?}"))),
        }
    }

    /// Asks for all that makes the head of a run.
    pub(crate) fn head_call(&self, run: &RunKey) -> Call {
        HEAD_FIELDS.iter().fold(Call::plain(&["HMGET"], self.layout.head(run)), |call, field| {
            call.arg(Bytes::from_static(field.as_bytes()))
        })
    }
}

/// Where a run stands, from its head; `None` if what is stored of it in the index is not of this store.
fn stood(run: &RunKey, head: &Head) -> Option<Stood> {
    Some(Stood {
        head: head.last.id,
        member: Member::parse(&head.member)?,
        fixed: Arc::new(fixed_places(run, &head.facts)),
        moving: std::str::from_utf8(&head.places).ok()?.to_owned(),
    })
}

/// What is there instead of the expected head.
struct Found {
    head: HeadRef,
    member: Bytes,
    facts: Bytes,
    newest_first: Vec<Value>,
}

impl Found {
    fn read(mut reply: Parts) -> Result<Self, Fault> {
        let seq = Seq::new(reply.number()?);
        let id: RecordId =
            reply.text()?.parse().map_err(|_| Fault::corrupt(Some(seq), "the head's id is no UUID"))?;
        let (member, facts) = (reply.bytes()?, reply.bytes()?);
        Ok(Self { head: HeadRef { seq, id }, member, facts, newest_first: reply.parts()?.collect() })
    }

    /// Tells whether the append already is the end of the log.
    fn is_repeat(&self, append: &RunAppend) -> Result<bool, Fault> {
        let mut kept = Vec::with_capacity(self.newest_first.len());
        for header in &self.newest_first {
            kept.push(header_of(&bytes(header.clone())?, None)?);
        }
        if !is_repeat(&kept, append) {
            return Ok(false);
        }
        let Some(given) = &append.facts else { return Ok(true) };
        let facts: RunFacts = serde_json::from_slice(&self.facts)
            .map_err(|error| Fault::corrupt(None, format!("the run's facts cannot be read ({error})")))?;
        Ok(facts == *given)
    }
}

fn check(append: &RunAppend) -> Result<()> {
    check_append(append)?;
    let bytes = append.records.iter().map(|record| record.body.len()).sum::<usize>();
    if bytes > MAX_BYTES {
        let message =
            format!("the records have {bytes} bytes, the store takes {MAX_BYTES} at once; make them smaller");
        return Err(Error::new(ErrorKind::TooLarge, message).with_operation(OPERATION).with_run(&append.run));
    }
    Ok(())
}

fn doubled(run: &RunKey) -> Error {
    Error::new(ErrorKind::Invalid, "the run stands in the batch already; join its records into one entry")
        .with_operation(OPERATION)
        .with_run(run)
}

/// The refusal of an append that expected another head.
fn conflict(run: &RunKey, actual: Option<HeadRef>) -> Error {
    let message = match actual {
        Some(head) => format!("the run's head is {head}; load it, see who wrote, decide again"),
        None => "there is no such run; it was purged, or never started".to_owned(),
    };
    Error::new(ErrorKind::Conflict, message).with_operation(OPERATION).with_run(run).with_actual_head(actual)
}
