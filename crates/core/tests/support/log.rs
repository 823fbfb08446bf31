//! Properties of every log, in any order of events.

use std::collections::{BTreeMap, BTreeSet};

use ferrata_core::record::{Record, RecordKind, RunStatus};
use ferrata_core::store::{At, CheckpointStore};
use ferrata_core::{ExecutorId, RunKey, Seq};
use serde_json::Value;

use super::bounds::Bounds;
use super::letters::Letters;

/// A log, read as plain JSON.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) records: Vec<Record>,
    /// The ended activations, as `node@visit`.
    pub(crate) done: BTreeSet<String>,
    /// The successful ones, in order.
    pub(crate) trace: Vec<String>,
    /// The notes, as `node@visit:name`.
    pub(crate) noted: BTreeSet<String>,
    /// Number of recorded intents of `External` nodes, by activation.
    pub(crate) intents: BTreeMap<String, u32>,
    /// The last answer of each question.
    pub(crate) answers: BTreeMap<String, String>,
    /// Number of records of each caller.
    pub(crate) hands: BTreeMap<String, u32>,
    pub(crate) edits: Vec<String>,
    pub(crate) messages: Vec<Value>,
    /// The received messages, in order.
    pub(crate) taken: Vec<Value>,
    /// Their numbers.
    numbers: BTreeSet<u64>,
    /// Whether it contains the start of the run.
    pub(crate) is_whole: bool,
    pub(crate) is_cancelled: bool,
    /// The generation of the run.
    pub(crate) life: String,
    /// The number of records per unit of work.
    pub(crate) bounds: Bounds,
    /// Outbox messages of the nodes, and their results.
    pub(crate) letters: Letters,
    /// The last owner.
    pub(crate) holder: Option<ExecutorId>,
    /// Contradictions: records that are repeated or out of place.
    pub(crate) broken: Vec<String>,
    open: BTreeMap<String, bool>,
}

impl Log {
    /// Reads the retained log of a run.
    pub(crate) async fn read(store: &dyn CheckpointStore, run: &RunKey) -> Self {
        let mut log = Self::default();
        let mut records = store.load(run, At::Latest).await.unwrap().unwrap_or_default();
        while let Some(first) = records.first().map(|first| first.header.seq.get()).filter(|&first| first > 0)
        {
            let Ok(Some(mut before)) = store.load(run, At::Seq(Seq::new(first - 1))).await else { break };
            before.append(&mut records);
            records = before;
        }
        records.into_iter().for_each(|record| log.add(record));
        log
    }

    /// Adds the next record.
    pub(crate) fn add(&mut self, record: Record) {
        let body: Value = serde_json::from_slice(&record.body).unwrap();
        let over = self.records.last().map(|last| last.header.status);
        let is_of_letters = body["change"]["what"]["letters"].is_object();
        if let Some(status @ (RunStatus::Completed | RunStatus::Cancelled)) = over
            && !is_of_letters
        {
            self.broken.push(format!("{:?} {body} comes after {status}", record.header.kind));
        }
        let status = record.header.status;
        if status != RunStatus::InProgress && record.header.owner.is_some() {
            self.broken.push(format!("record {} is {status} and owned", record.header.seq));
        }
        self.broken.extend(self.letters.add(record.header.kind, &body));
        // If the start of the log was pruned, earlier messages may still be undelivered.
        let is_delivering = self.letters.are_waiting();
        if status.is_finished() && record.header.wake_at.is_some() != is_delivering && self.is_whole {
            let has = if is_delivering { "has letters, and is not to be woken" } else { "is to be woken" };
            self.broken.push(format!("record {} is {status} and {has}", record.header.seq));
        }
        if matches!(record.header.kind, RecordKind::Start | RecordKind::Claim) {
            self.holder = record.header.owner;
        }
        if record.header.kind == RecordKind::Start {
            self.is_whole = true;
            self.life = body["start_id"].as_str().unwrap_or_default().to_owned();
        }
        self.check_status(&record, &body);
        self.broken.extend(self.bounds.add(&record.header, &body));
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
                    // A retry repeats the activation that failed the run.
                    if !self.done.insert(at.clone()) {
                        self.broken.push(format!("{at} ended twice"));
                    }
                    if done.get("failure").is_some() {
                        self.done.remove(&at);
                    }
                }
            }
            RecordKind::Intent => *self.intents.entry(activation(body)).or_default() += 1,
            RecordKind::Step => {
                let note = format!("{}:{}", activation(body), body["name"].as_str().unwrap());
                if let Some(number) = body["what"]["took"].as_u64() {
                    if !self.numbers.insert(number) {
                        self.broken.push(format!("message {number} was taken twice"));
                    }
                    // A pruned log and that of a fork do not contain every message.
                    let message = self.messages.get(usize::try_from(number).unwrap());
                    self.taken.extend(message.filter(|_| self.is_whole).cloned());
                } else if body["what"].get("result").is_some()
                    // A question that is asked again releases its name.
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
            RecordKind::Status if body["change"]["expired"].is_object() => {
                let expired = &body["change"]["expired"];
                self.question(
                    &format!("{}:{}", activation(expired), expired["name"].as_str().unwrap()),
                    true,
                );
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

    /// The number of unread messages, or none for a log without its start, which does not contain that number.
    pub(crate) fn unread(&self) -> usize {
        let is_unread = |message: &&Value| !self.taken.contains(message);
        if self.is_whole { self.messages.iter().filter(is_unread).count() } else { 0 }
    }

    /// Compares the status of the run with the earlier records.
    fn check_status(&mut self, record: &Record, body: &Value) {
        let (at, status) = (record.header.seq, record.header.status);
        if self.is_cancelled && matches!(status, RunStatus::Completed | RunStatus::Failed) {
            self.broken.push(format!("record {at} is {status}, and it was cancelled before"));
        }
        let unpauses = body["change"]["what"] == "unpause";
        if self.bounds.is_paused && !unpauses && status == RunStatus::Completed {
            self.broken.push(format!("record {at} is {status}, and it was paused before"));
        }
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
        // A question after a node has no record of its own.
        if before == Some(is_answer) {
            self.broken.push(format!("`{id}` was {} twice", if is_answer { "answered" } else { "asked" }));
        }
    }

    /// Checks that the log has a single history: no record is missing, each names the one before, and epochs never decrease.
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

    /// The log as text, with a line for each record.
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
