//! Properties after every step, checked on a copy of the log outside the store.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard};

use ferrata_core::record::{Record, RecordHeader, RecordKind, RunStatus};
use ferrata_core::store::{CheckpointStore, MemoryStore, RunAppend};
use ferrata_core::{Clock, ExecutorId, HeadRef, Result, RunKey};
use ferrata_testing::ManualClock;

use super::net::now;
use super::workload::{Mix, Workload};
use crate::support::bounds::Lists;
use crate::support::log::Log;

pub(crate) struct Rules {
    store: MemoryStore,
    clock: ManualClock,
    workload: Arc<Workload>,
    /// Whether the wall clocks of processes never step, so that the times in records of one process can be compared.
    are_steady: bool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) logs: BTreeMap<RunKey, Log>,
    /// The lives of runs that were purged.
    pub(crate) past: Vec<(RunKey, Log)>,
    pub(crate) broken: Vec<String>,
    trace: DefaultHasher,
    /// How many appends were refused because another came first.
    pub(crate) conflicts: u64,
    pub(crate) claims: u64,
    /// The runs that were started as children, by what their labels say of the start.
    pub(crate) children: BTreeMap<String, RunKey>,
    /// When each run was last told to stop, and when it was last retried: counted in signals on record, of all runs.
    stops: BTreeMap<RunKey, u64>,
    retries: BTreeMap<RunKey, u64>,
    signals: u64,
    /// How often a child was started anew.
    pub(crate) anew: u64,
    /// Number of notifications to an idle parent of the child, by any process.
    pub(crate) told: u64,
}

impl Rules {
    pub(crate) fn new(
        store: MemoryStore,
        clock: ManualClock,
        workload: Arc<Workload>,
        are_steady: bool,
    ) -> Self {
        Self { store, clock, workload, are_steady, seen: Mutex::default() }
    }

    /// Takes in that a run was purged: what follows under its name is another life.
    pub(crate) fn purged(&self, run: &RunKey) {
        self.note(&format!("{run} is purged"));
        let mut seen = self.seen();
        if let Some(log) = seen.logs.remove(run) {
            seen.past.push((run.clone(), log));
        }
    }

    /// Counts how often a hand is on record: at most in any life of the run, and in the one that it has now.
    pub(crate) fn times(&self, run: &RunKey, by: &str) -> (u32, u32) {
        let seen = self.seen();
        let times = |log: &Log| log.hands.get(by).copied().unwrap_or_default();
        let now = seen.logs.get(run).map_or(0, times);
        let past = seen.past.iter().filter(|(of, _)| of == run).map(|(_, log)| times(log));
        (past.max().unwrap_or_default().max(now), now)
    }

    /// Whether runs are removed once they have ended.
    pub(crate) fn are_swept(&self) -> bool {
        self.workload.mix == Mix::Pruned
    }

    /// Whether a child was told to stop since its parent was retried last, if it ever was.
    pub(crate) fn is_stopped_since_retry(&self, child: &RunKey, parent: &RunKey) -> bool {
        let seen = self.seen();
        seen.stops.get(child) > seen.retries.get(parent)
    }

    /// Returns how the children stand whose start begins so; none of one that is not there any more.
    pub(crate) fn children_of(&self, start: &str) -> Vec<Option<RunStatus>> {
        let seen = self.seen();
        let found = seen.children.range(start.to_owned()..).take_while(|(of, _)| of.starts_with(start));
        let status = |run| Some(seen.logs.get(run)?.records.last()?.header.status);
        found.map(|(_, run)| status(run)).collect()
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Notes something that happened, so that two courses of events can be compared.
    pub(crate) fn note(&self, what: &str) {
        let (mut seen, now) = (self.seen(), self.clock.monotonic());
        (now, what).hash(&mut seen.trace);
        if super::is_shown() {
            println!("{:>10.3} {what}", now.as_secs_f64());
        }
    }

    /// Returns a number that is the same for the same course of events.
    pub(crate) fn trace(&self) -> u64 {
        self.seen().trace.finish()
    }

    /// Takes in what a process appended.
    pub(crate) fn appended(
        &self,
        process: u64,
        by: Option<ExecutorId>,
        append: RunAppend,
        result: &Result<HeadRef>,
    ) {
        let kinds: Vec<_> = append.records.iter().map(|record| record.header.kind).collect();
        let ended = result.as_ref().map_err(ferrata_core::Error::kind);
        self.note(&format!("process {process} appends {kinds:?} to {}: {ended:?}", append.run));
        let mut seen = self.seen();
        if ended.is_err() {
            seen.conflicts += 1;
            return;
        }
        let mut broken = Vec::new();
        if let Some(start) = append.facts.as_ref().and_then(|facts| facts.labels.get("ferrata.child")) {
            let before = seen.children.insert(start.to_owned(), append.run.clone());
            if let Some(before) = before.filter(|before| *before != append.run) {
                let status = seen.logs.get(&before).and_then(|log| log.records.last());
                let status = status.map(|last| last.header.status);
                // Where each child is waited for, none is cancelled while its parent goes on, and so none is started anew.
                let may_follow = self.workload.mix != Mix::Works && status == Some(RunStatus::Cancelled);
                seen.anew += u64::from(may_follow);
                if !may_follow {
                    broken.push(format!("{start} was started before as {before}, which is {status:?}"));
                }
            }
        }
        for record in append.records.iter().filter(|record| record.header.kind == RecordKind::Signal) {
            let body: serde_json::Value = serde_json::from_slice(&record.body).unwrap();
            seen.signals += 1;
            let now = seen.signals;
            let what = &body["change"]["what"];
            if what.get("cancel").is_some() {
                seen.stops.insert(append.run.clone(), now);
            }
            if what.get("retry").is_some() {
                seen.retries.insert(append.run.clone(), now);
            }
        }
        let deadline = self.workload.deadline_of(&append.run);
        let log = seen.logs.entry(append.run.clone()).or_default();
        let (mut claims, mut told) = (0, 0);
        for record in append.records {
            let at = usize::try_from(record.header.seq.get()).unwrap();
            match log.records.get(at) {
                // The same once more, as after a lost reply.
                Some(before) if before.header.id == record.header.id => {}
                Some(_) => broken.push(format!("the log is forked at {at}")),
                None => {
                    claims += u64::from(record.header.kind == RecordKind::Claim);
                    told += u64::from(is_told_at_rest(log, &record));
                    broken.extend(misplaced(log, &record, by));
                    if let (true, Some(deadline)) = (log.records.is_empty() && self.are_steady, deadline) {
                        log.bounds.deadline = Some(record.header.at.plus(deadline).unix_ms());
                    }
                    log.add(record);
                }
            }
        }
        broken.append(&mut log.broken);
        seen.claims += claims;
        seen.told += told;
        seen.broken
            .extend(broken.into_iter().map(|what| format!("{}: process {process}: {what}", append.run)));
    }

    /// Checks what must hold of every run at every moment.
    pub(crate) fn check(&self) {
        let mut broken = Vec::new();
        let lists = now(Lists::of(&self.store));
        let seen = self.seen();
        for (run, log) in &seen.logs {
            let head = now(self.store.head(run)).unwrap().unwrap();
            let last = &log.records.last().unwrap().header;
            if (head.seq, head.id) != (last.seq, last.id) {
                broken.push(format!("{run}: the head is {}, acknowledged was {}", head.seq, last.seq));
            }
            let stuck = lists.stuck(&head, self.clock.now(), log.unread());
            broken.extend(stuck.map(|why| format!("{run}: {why}")));
        }
        drop(seen);
        self.seen().broken.extend(broken);
    }

    /// Fails as soon as a rule is broken.
    pub(crate) fn hold(&self) {
        let seen = self.seen();
        if !seen.broken.is_empty() {
            for (run, log) in &seen.logs {
                log.show().iter().for_each(|line| println!("{run} {line}"));
            }
            let broken = seen.broken.clone();
            drop(seen);
            panic!("{broken:#?}");
        }
    }

    /// Checks that the store's log of each run is what was acknowledged, record by record.
    pub(crate) fn compare(&self) {
        for (run, log) in &self.seen().logs {
            log.check_chain();
            let stored = now(Log::read(&self.store, run)).records;
            let kept = &log.records[log.records.len() - stored.len()..];
            assert!(self.workload.mix == Mix::Pruned || kept.len() == log.records.len(), "{run} was cut");
            // What is cut begins with a base in place of the record, and the rest is as it was.
            let (first, written) = (&stored[0].header, &kept[0].header);
            let based = RecordHeader {
                base: first.base,
                body_len: first.body_len,
                body_crc: first.body_crc,
                ..written.clone()
            };
            assert_eq!(*first, based, "{run}: the first record is another");
            assert!(first.base, "{run}: the first record is no base");
            assert!(first.seq.get() > 0 || stored[0] == kept[0], "{run}: the start is another");
            assert_eq!(stored[1..], kept[1..], "{run}: the stored log is another");
        }
    }
}

/// Whether a record says of the children of a run at rest what whoever wrote it has seen.
fn is_told_at_rest(log: &Log, record: &Record) -> bool {
    let rests = log.records.last().is_some_and(|last| last.header.owner.is_none());
    let body: serde_json::Value = serde_json::from_slice(&record.body).unwrap();
    let says = |of: &str, what: &[&str]| {
        body[of].as_str().is_some_and(|text| what.iter().any(|what| text.starts_with(what)))
    };
    rests
        && match record.header.kind {
            RecordKind::Step => says("name", &["#told"]),
            RecordKind::Release => says("reason", &["a child has ended", "no child has ended yet"]),
            _ => false,
        }
}

/// What is wrong with a record where it stands, apart from what it says.
fn misplaced(log: &Log, record: &Record, by: Option<ExecutorId>) -> Option<String> {
    let (header, last) = (&record.header, log.records.last().map(|last| &last.header));
    let at = header.seq;
    if at.get() != log.records.len() as u64 || header.prev != last.map(|last| last.id) {
        return Some(format!("record {at} does not follow the one before"));
    }
    let last = last?;
    let is_claim = header.kind == RecordKind::Claim;
    if header.epoch != if is_claim { last.epoch.next() } else { last.epoch } {
        return Some(format!("record {at} is of epoch {} after {}", header.epoch, last.epoch));
    }
    let is_progress = match header.kind {
        RecordKind::Claim | RecordKind::Signal | RecordKind::Edit => false,
        _ if is_told_at_rest(log, record) => false,
        // Whoever stops a run that nobody drives also carries that out.
        RecordKind::Status => last.kind != RecordKind::Signal,
        _ => true,
    };
    (is_progress && by != log.holder)
        .then(|| format!("record {at}, {:?}, is by {by:?} while {:?} has the run", header.kind, log.holder))
}
