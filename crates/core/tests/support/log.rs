//! What must hold of the log, whatever the order of things.

use std::collections::{BTreeMap, BTreeSet};

use ferrata_core::record::{Record, RecordKind, RunStatus};
use ferrata_core::store::{At, CheckpointStore, MemoryStore};
use ferrata_core::{ExecutorId, RunKey, Seq};
use serde_json::Value;

/// How many records there may be for nothing: those of the claims, retries and questions that one piece of work can need, when processes are
/// killed over it again and again.
const IDLE: u32 = 60;

/// How often a run may be claimed to come to rest as it was: once because a clock stepped between.
const FRUITLESS: u32 = 2;

/// How many records a driver may still make of work after the deadline: those that were on their way.
const LATE: u32 = 3;

/// A log, read as plain JSON.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) records: Vec<Record>,
    /// The activations that ended, as `node@visit`.
    pub(crate) done: BTreeSet<String>,
    /// Those that ended well, in order.
    pub(crate) trace: Vec<String>,
    /// What was noted, as `node@visit:name`.
    pub(crate) noted: BTreeSet<String>,
    /// The last answers, by question.
    pub(crate) answers: BTreeMap<String, String>,
    /// How often each hand is on record.
    pub(crate) hands: BTreeMap<String, u32>,
    pub(crate) edits: Vec<String>,
    pub(crate) messages: Vec<Value>,
    /// The messages that were taken, in order.
    pub(crate) taken: Vec<Value>,
    pub(crate) is_cancelled: bool,
    pub(crate) is_paused: bool,
    /// Whether the run failed last because its time was over.
    pub(crate) is_overdue: bool,
    /// What tells this life of the run from others of its name.
    pub(crate) life: String,
    /// When the run must have ended, by any writer's clock, if the graph says so and the clocks do not step.
    pub(crate) deadline: Option<i64>,
    /// How many records of work came after that in one go.
    late: u32,
    /// How many records there are since anything was done or said.
    idle: u32,
    /// How often the run was claimed since then to come to rest again.
    fruitless: u32,
    /// Who took the run last.
    pub(crate) holder: Option<ExecutorId>,
    /// What is recorded more often than it can have happened, or where it cannot have.
    pub(crate) broken: Vec<String>,
    open: BTreeMap<String, bool>,
}

impl Log {
    pub(crate) async fn read(store: &MemoryStore, run: &RunKey) -> Self {
        let mut log = Self::default();
        let mut records = store.load(run, At::Latest).await.unwrap().unwrap_or_default();
        while let Some(first) = records.first().map(|first| first.header.seq.get()).filter(|&first| first > 0)
        {
            let mut before = store.load(run, At::Seq(Seq::new(first - 1))).await.unwrap().unwrap();
            before.append(&mut records);
            records = before;
        }
        records.into_iter().for_each(|record| log.add(record));
        log
    }

    /// Takes in the next record.
    pub(crate) fn add(&mut self, record: Record) {
        let body: Value = serde_json::from_slice(&record.body).unwrap();
        let over = self.records.last().map(|last| last.header.status);
        if let Some(status @ (RunStatus::Completed | RunStatus::Cancelled)) = over {
            self.broken.push(format!("{:?} {body} comes after {status}", record.header.kind));
        }
        let status = record.header.status;
        if status != RunStatus::InProgress && record.header.owner.is_some() {
            self.broken.push(format!("record {} is {status} and owned", record.header.seq));
        }
        if status.is_finished() && record.header.wake_at.is_some() {
            self.broken.push(format!("record {} is {status} and is to be woken", record.header.seq));
        }
        if matches!(record.header.kind, RecordKind::Start | RecordKind::Claim) {
            self.holder = record.header.owner;
        }
        if record.header.kind == RecordKind::Start {
            self.life = body["life"].as_str().unwrap_or_default().to_owned();
        }
        self.count(&record, &body);
        self.take(record.header.kind, &body);
        self.records.push(record);
    }

    fn take(&mut self, kind: RecordKind, body: &Value) {
        match kind {
            RecordKind::Node => {
                for done in body["done"].as_array().unwrap() {
                    let at = activation(done);
                    if done.get("failure").is_none() {
                        self.trace.push(at.clone());
                    }
                    // What failed the run is tried again as the same activation.
                    if !self.done.insert(at.clone()) {
                        self.broken.push(format!("{at} ended twice"));
                    }
                    if done.get("failure").is_some() {
                        self.done.remove(&at);
                    }
                }
            }
            RecordKind::Step => {
                let note = format!("{}:{}", activation(body), body["name"].as_str().unwrap());
                if let Some(number) = body["what"]["took"].as_u64() {
                    let message = self.messages[usize::try_from(number).unwrap()].clone();
                    if self.taken.contains(&message) {
                        self.broken.push(format!("message {number} was taken twice"));
                    }
                    self.taken.push(message);
                } else if body["what"].get("result").is_some()
                    // The place of a question that is asked anew is free for another.
                    && !note.contains(":#ended")
                    && self.noted.contains(&note)
                {
                    self.broken.push(format!("{note} was noted twice"));
                }
                self.noted.insert(note);
            }
            RecordKind::Status if body["change"]["asked"].is_object() => {
                let asked = &body["change"]["asked"];
                self.question(&format!("{}:{}", activation(asked), asked["name"].as_str().unwrap()), false);
            }
            RecordKind::Signal => {
                let (what, by) = (&body["change"]["what"], &body["change"]["by"]);
                self.hand(by);
                if let Some(answer) = what.get("answer") {
                    let id = answer["question"].as_str().unwrap().to_owned();
                    let answer = &answer["answer"];
                    if let Some(value) = answer.get("accept") {
                        self.answers.insert(id.clone(), value.to_string());
                    }
                    if answer.get("cancel").is_some() {
                        self.cancel();
                    }
                    self.question(&id, true);
                } else if let Some(message) = what.get("message") {
                    self.messages.push(message["body"].clone());
                } else if what.get("cancel").is_some() {
                    self.cancel();
                }
            }
            RecordKind::Edit => {
                self.hand(&body["by"]);
                self.edits.extend(body["by"].as_str().map(str::to_owned));
            }
            _ => {}
        }
    }

    /// Holds what the record says against what was said before, and counts what comes of nothing.
    fn count(&mut self, record: &Record, body: &Value) {
        let (header, change) = (&record.header, &body["change"]);
        let (at, status) = (header.seq, header.status);
        let is_failure = status == RunStatus::Failed;
        if self.is_cancelled && (status == RunStatus::Completed || is_failure) {
            self.broken.push(format!("record {at} is {status}, and it was cancelled before"));
        }
        let unpauses = change["what"] == "unpause";
        if self.is_paused && !unpauses && status == RunStatus::Completed {
            self.broken.push(format!("record {at} is {status}, and it was paused before"));
        }
        let rests = change == "interrupted" || change["rested"].is_object();
        let works = matches!(header.kind, RecordKind::Node | RecordKind::Step | RecordKind::Intent);
        let is_said = matches!(header.kind, RecordKind::Signal | RecordKind::Edit | RecordKind::Start);
        let last = self.records.last().map(|last| last.header.kind);
        match header.kind {
            RecordKind::Claim => {}
            _ if rests && last == Some(RecordKind::Claim) => self.fruitless += 1,
            _ => self.fruitless = 0,
        }
        if self.fruitless > FRUITLESS {
            self.broken
                .push(format!("at record {at} it was claimed {} times to rest as it was", self.fruitless));
        }
        self.idle = if works || is_said { 0 } else { self.idle + 1 };
        if self.idle > IDLE {
            self.broken
                .push(format!("at record {at}: {} records since anything was done or said", self.idle));
        }
        let is_late = self.deadline.is_some_and(|deadline| header.at.unix_ms() > deadline);
        let is_held = self.is_paused || self.is_cancelled || status.is_finished();
        self.late = match works {
            true if is_late && !is_held => self.late + 1,
            true => 0,
            false if header.kind == RecordKind::Claim => 0,
            false => self.late,
        };
        if self.late > LATE {
            self.broken.push(format!("at record {at} it works, and its time was over"));
        }
        if let Some(failure) = change["failed"].get("kind") {
            self.is_overdue = failure == "deadline";
        }
        self.is_paused = match &change["what"] {
            what if what.get("pause").is_some() => true,
            what if what == "unpause" => false,
            _ => self.is_paused,
        };
    }

    fn hand(&mut self, by: &Value) {
        if let Some(by) = by.as_str() {
            *self.hands.entry(by.to_owned()).or_default() += 1;
        }
    }

    fn cancel(&mut self) {
        if std::mem::replace(&mut self.is_cancelled, true) {
            self.broken.push("it was cancelled twice".to_owned());
        }
    }

    fn question(&mut self, id: &str, is_answer: bool) {
        let before = self.open.insert(id.to_owned(), is_answer);
        // A question behind a node has no record of its own.
        if before == Some(is_answer) {
            self.broken.push(format!("`{id}` was {} twice", if is_answer { "answered" } else { "asked" }));
        }
    }

    /// Checks that the log is one line: dense, each record naming the one before, epochs never falling.
    pub(crate) fn check_chain(&self) {
        let (mut before, mut epoch) = (None, None);
        for (at, record) in self.records.iter().enumerate() {
            let header = &record.header;
            assert_eq!(header.seq.get(), at as u64, "dense");
            assert_eq!(header.prev, before, "chained at {at}");
            assert!(Some(header.epoch) >= epoch, "epochs at {at}");
            (before, epoch) = (Some(header.id), Some(header.epoch));
        }
    }

    /// Shows the log, a line for each record.
    pub(crate) fn show(&self) -> Vec<String> {
        let line = |record: &Record| {
            let header = &record.header;
            let body = String::from_utf8_lossy(&record.body);
            format!(
                "{} {:?} {} {} {:?}: {body}",
                header.seq, header.kind, header.status, header.epoch, header.owner
            )
        };
        self.records.iter().map(line).collect()
    }
}

fn activation(of: &Value) -> String {
    format!("{}@{}", of["node"].as_str().unwrap(), of["visit"])
}
