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
    /// Whether the wall clocks of processes never step, so that record times of one process can be compared.
    are_steady: bool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) logs: BTreeMap<RunKey, Log>,
    /// The logs of purged runs.
    pub(crate) past: Vec<(RunKey, Log)>,
    pub(crate) broken: Vec<String>,
    trace: DefaultHasher,
    /// Number of appends that were refused because of a conflict.
    pub(crate) conflicts: u64,
    pub(crate) claims: u64,
    /// The child runs, by the label of their start.
    pub(crate) children: BTreeMap<String, RunKey>,
    /// The last cancellation and the last retry of each run, as positions in the sequence of all recorded signals.
    stops: BTreeMap<RunKey, u64>,
    retries: BTreeMap<RunKey, u64>,
    signals: u64,
    /// Number of children that were started again.
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

    /// Records a purge. Later records under the same id belong to a new generation.
    pub(crate) fn purged(&self, run: &RunKey) {
        self.note(&format!("{run} is purged"));
        let mut seen = self.seen();
        if let Some(log) = seen.logs.remove(run) {
            seen.past.push((run.clone(), log));
        }
    }

    /// Counts the records of an operation: the maximum in any generation of the run, and the number in the current one.
    pub(crate) fn times(&self, run: &RunKey, by: &str) -> (u32, u32) {
        let seen = self.seen();
        let times = |log: &Log| log.hands.get(by).copied().unwrap_or_default();
        let now = seen.logs.get(run).map_or(0, times);
        let past = seen.past.iter().filter(|(of, _)| of == run).map(|(_, log)| times(log));
        (past.max().unwrap_or_default().max(now), now)
    }

    /// Whether ended runs are purged.
    pub(crate) fn are_swept(&self) -> bool {
        self.workload.mix == Mix::Pruned
    }

    /// Whether a child was cancelled since the last retry of its parent, or ever if there was none.
    pub(crate) fn is_stopped_since_retry(&self, child: &RunKey, parent: &RunKey) -> bool {
        let seen = self.seen();
        seen.stops.get(child) > seen.retries.get(parent)
    }

    /// The statuses of the children whose start label has this prefix. A purged child has none.
    pub(crate) fn children_of(&self, start: &str) -> Vec<Option<RunStatus>> {
        let seen = self.seen();
        let found = seen.children.range(start.to_owned()..).take_while(|(of, _)| of.starts_with(start));
        let status = |run| Some(seen.logs.get(run)?.records.last()?.header.status);
        found.map(|(_, run)| status(run)).collect()
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Records an event, so that two simulations can be compared.
    pub(crate) fn note(&self, what: &str) {
        let (mut seen, now) = (self.seen(), self.clock.monotonic());
        (now, what).hash(&mut seen.trace);
        if super::is_shown() {
            println!("{:>10.3} {what}", now.as_secs_f64());
        }
    }

    /// A hash of all events.
    pub(crate) fn trace(&self) -> u64 {
        self.seen().trace.finish()
    }

    /// Records an append of a process.
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
                // In this mix, parents wait for every child. So no child is cancelled while its parent is active, and none is started again.
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
                // The same record again, as after a lost reply.
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

    /// Checks the invariants of every run.
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

    /// Fails if a rule is broken.
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

    /// Compares the stored log of each run with the acknowledged records.
    pub(crate) fn compare(&self) {
        for (run, log) in &self.seen().logs {
            log.check_chain();
            let stored = now(Log::read(&self.store, run)).records;
            let kept = &log.records[log.records.len() - stored.len()..];
            assert!(self.workload.mix == Mix::Pruned || kept.len() == log.records.len(), "{run} was pruned");
            // A pruned log starts with a base instead of its first record, and the rest is unchanged.
            let (first, written) = (&stored[0].header, &kept[0].header);
            let based = RecordHeader {
                base: first.base,
                body_len: first.body_len,
                body_crc: first.body_crc,
                ..written.clone()
            };
            assert_eq!(*first, based, "{run}: the first record differs");
            assert!(first.base, "{run}: the first record is no base");
            assert!(first.seq.get() > 0 || stored[0] == kept[0], "{run}: the start of the log differs");
            assert_eq!(stored[1..], kept[1..], "{run}: the stored log differs");
        }
    }
}

/// Whether a record only notes the children of an idle run, so that any process may write it.
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

/// Checks the header of a record against its predecessor and the owner. Returns the first error.
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
        // A process that cancels an idle run also writes the status that follows.
        RecordKind::Status => last.kind != RecordKind::Signal,
        _ => true,
    };
    (is_progress && by != log.holder)
        .then(|| format!("record {at}, {:?}, is by {by:?} while {:?} has the run", header.kind, log.holder))
}
