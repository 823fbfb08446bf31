//! Invariants of queues at every record, read as plain JSON without the queue code.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};

use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::store::RunAppend;
use ferrata_core::{Clock, ExecutorId, HeadRef, RecordId, Result, RunKey};
use ferrata_testing::ManualClock;
use serde_json::Value;

use super::process::{BURST, CALLS, Edition, GPUS, MAILS, MAILS_PER_KEY, PERIOD};

/// A slot holder, according to the record.
#[derive(Clone, Debug)]
struct Holder {
    key: String,
    places: u64,
}

#[derive(Default)]
pub(crate) struct Seen {
    /// Violated invariants.
    pub(crate) broken: Vec<String>,
    /// The records by run, so that a repeated append counts once.
    known: BTreeMap<RunKey, BTreeSet<RecordId>>,
    pub(crate) records: u64,
    pub(crate) conflicts: u64,
    /// Runs of the queue `mail` that have a slot and have not ended.
    let_in: BTreeSet<RunKey>,
    /// Slot holders by queue.
    held: BTreeMap<String, BTreeMap<String, Holder>>,
    /// The grants of `api`, by the clock of the granting process.
    calls: Vec<i64>,
    /// Number of grants by queue.
    pub(crate) given: BTreeMap<String, u64>,
    /// Runs of the queue `mail` that are recorded and have not ended.
    under_way: BTreeSet<RunKey>,
    /// Runs that only processes of the next version may drive: those of its workflow, and those started with its tag.
    of_next: BTreeSet<RunKey>,
    /// The version of `mail`, and its number of slots.
    mail: (u64, u64),
    /// Number of purged runs.
    pub(crate) purged: u64,
    trace: u64,
}

pub(crate) struct Rules {
    seen: Mutex<Seen>,
    clock: ManualClock,
    /// Whether every clock is correct, so that rates hold to the millisecond.
    are_right: bool,
    /// Whether ended runs are purged, so that their ids can be used again.
    are_purged: bool,
    /// Whether runs fail, and are retried.
    may_fail: bool,
    is_shown: bool,
}

impl Rules {
    pub(crate) fn new(clock: ManualClock, are_right: bool, are_purged: bool, may_fail: bool) -> Self {
        let is_shown = super::is_shown();
        Self { seen: Mutex::default(), clock, are_right, are_purged, may_fail, is_shown }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(crate) fn note(&self, what: &str) {
        let mut hasher = DefaultHasher::new();
        let mut seen = self.seen();
        (seen.trace, what).hash(&mut hasher);
        seen.trace = hasher.finish();
        if self.is_shown {
            println!("{:>10.3} {what}", self.clock.monotonic().as_secs_f64());
        }
    }

    pub(crate) fn trace(&self) -> u64 {
        self.seen().trace
    }

    pub(crate) fn appended(
        &self,
        process: u64,
        _by: Option<ExecutorId>,
        append: RunAppend,
        result: &Result<HeadRef>,
    ) {
        if append.is_mark() {
            return;
        }
        let kinds: Vec<_> = append.records.iter().map(|record| record.header.kind).collect();
        let ended = result.as_ref().map_err(ferrata_core::Error::kind);
        self.note(&format!("process {process} appends {kinds:?} to {}: {ended:?}", append.run));
        let mut seen = self.seen();
        if ended.is_err() {
            seen.conflicts += 1;
            return;
        }
        let run = append.run;
        // A copy contains the records of another run.
        let is_new = append.expected.is_none();
        if let Some(facts) = append.facts {
            let is_of_next =
                facts.labels.get("ferrata.tags").is_some() || facts.workflow.as_str() == "next_job";
            if is_of_next && facts.workflow.as_str() != "queue" {
                seen.of_next.insert(run.clone());
            }
        }
        // Use the status after all records, because a run that starts on hold is written in one append.
        let mut status = None;
        for record in append.records {
            if !seen.known.entry(run.clone()).or_default().insert(record.header.id) {
                continue;
            }
            seen.records += 1;
            status = Some(record.header.status);
            if let Some(queue) = run.run.as_str().strip_prefix("queue:") {
                self.queued(&mut seen, queue, &record.body);
            } else if record.header.kind == RecordKind::Signal && !is_new && lets_go(&record.body) {
                let has_place =
                    seen.held.get("mail").is_some_and(|held| held.contains_key(&format!("run:{run}")));
                if !has_place {
                    seen.broken.push(format!("{run} was let go, and has no place"));
                }
            }
        }
        match status {
            _ if run.run.as_str().starts_with("queue:") => {}
            Some(status) if status.is_finished() => {
                seen.let_in.remove(&run);
                seen.under_way.remove(&run);
                if !(status == RunStatus::Completed || self.may_fail && status == RunStatus::Failed) {
                    seen.broken.push(format!("{run} is {status:?}"));
                }
            }
            Some(status) => {
                seen.under_way.insert(run.clone());
                if status == RunStatus::InProgress {
                    let held = seen.held.get("mail");
                    if held.is_none_or(|held| !held.contains_key(&format!("run:{run}"))) {
                        seen.broken.push(format!("{run} is at work, and has no place"));
                    }
                    seen.let_in.insert(run);
                }
            }
            None => {}
        }
        if seen.let_in.len() > MAILS as usize {
            let what = format!("{:?} were let in", seen.let_in);
            seen.broken.push(what);
        }
    }

    /// Records that a run has entered a process of this version.
    pub(crate) fn entered(&self, run: &RunKey, edition: Edition) {
        let mut seen = self.seen();
        if edition == Edition::This && seen.of_next.contains(run) {
            seen.broken.push(format!("{run} is at work in a process that does not know its version"));
        }
    }

    /// Applies a record of a queue to the slot holders.
    fn queued(&self, seen: &mut Seen, queue: &str, body: &[u8]) {
        let body: Value = serde_json::from_slice(body).unwrap();
        if let Some(settings) = settings(&body).filter(|_| queue == "mail") {
            let version = settings["version"].as_u64().unwrap_or(1);
            if version < seen.mail.0 {
                seen.broken.push(format!("`mail` has version {version} after {}", seen.mail.0));
            }
            seen.mail = (version, settings["at_once"].as_u64().unwrap());
        }
        let mut is_given = false;
        for op in body["patch"].as_array().into_iter().flatten() {
            let held = seen.held.entry(queue.to_owned()).or_default();
            if op["merge"][0] == "held" {
                for (id, one) in op["merge"][1].as_object().unwrap() {
                    let key = one["key"].as_str().unwrap_or_default().to_owned();
                    if self.is_shown {
                        println!("           `{queue}` gives {id} a place: {one}");
                    }
                    let holder = Holder { key, places: one["places"].as_u64().unwrap() };
                    if held.insert(id.clone(), holder).is_none() {
                        is_given = true;
                        *seen.given.entry(queue.to_owned()).or_default() += 1;
                        if queue == "api" {
                            seen.calls.push(one["at"].as_i64().unwrap());
                        }
                    }
                }
            } else if op["remove"][0] == "held" {
                let gone = op["remove"][1].as_array().unwrap();
                if self.is_shown {
                    println!("           `{queue}` takes back the places of {gone:?}");
                }
                gone.iter().for_each(|id| drop(held.remove(id.as_str().unwrap())));
            } else {
                assert!(op["set"][0] != "held" && op["append"].is_null(), "{op}");
            }
        }
        let held = seen.held.entry(queue.to_owned()).or_default();
        let all: u64 = held.values().map(|one| one.places).sum();
        let most = match queue {
            "mail" => MAILS,
            "gpu" => GPUS,
            _ => 1,
        };
        let mut broken = Vec::new();
        if queue == "mail" && is_given && all > seen.mail.1 {
            broken.push(format!("a place is given of {} with {all} held: {held:?}", seen.mail.1));
        }
        if all > u64::from(most) {
            broken.push(format!("{all} places of `{queue}` are held: {held:?}"));
        }
        if queue == "mail" {
            let mut of_key = BTreeMap::<&str, u64>::new();
            held.values().for_each(|one| *of_key.entry(&one.key).or_default() += one.places);
            if of_key.values().any(|places| *places > u64::from(MAILS_PER_KEY)) {
                broken.push(format!("a key has more places of `mail` than it may: {held:?}"));
            }
        }
        seen.broken.extend(broken);
    }

    pub(crate) fn purged(&self, run: &RunKey) {
        self.note(&format!("{run} is purged"));
        let mut seen = self.seen();
        seen.purged += 1;
        if !self.are_purged || seen.under_way.contains(run) {
            seen.broken.push(format!("{run} was purged and had not ended"));
        }
    }

    /// Checks that no period has more calls than the rate and its burst allow, if clocks are correct.
    pub(crate) fn check_rate(&self) {
        if !self.are_right {
            return;
        }
        let mut seen = self.seen();
        seen.calls.sort_unstable();
        let period = i64::try_from(PERIOD.as_millis()).unwrap();
        for (n, from) in seen.calls.iter().enumerate() {
            let within = seen.calls[n..].iter().take_while(|at| **at < from + period).count();
            assert!(
                within <= (CALLS + BURST - 1) as usize,
                "{within} calls within the period from {from} on"
            );
        }
    }

    /// Fails if an invariant was violated.
    pub(crate) fn check(&self) {
        let broken = std::mem::take(&mut self.seen().broken);
        assert!(broken.is_empty(), "{broken:#?}");
    }
}

/// Whether the record of a signal unpauses a run that was on hold.
fn lets_go(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["change"]["what"] == "unpause"
}

/// Finds the settings of a queue in a record.
fn settings(body: &Value) -> Option<&Value> {
    match body {
        Value::Object(entries) if entries.contains_key("at_once") => Some(body),
        Value::Object(entries) => entries.values().find_map(settings),
        Value::Array(entries) => entries.iter().find_map(settings),
        _ => None,
    }
}
