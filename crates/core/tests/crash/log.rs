//! Reads the log of a run as plain JSON.

use std::collections::{BTreeMap, BTreeSet};

use ferrata_core::record::{Record, RecordKind};
use ferrata_core::store::{At, CheckpointStore, MemoryStore};
use ferrata_core::{RunKey, Seq};
use serde_json::Value;

/// An activation: node and visit.
pub(crate) type Activation = (String, u32);

/// An activation and the name of one of its notes.
pub(crate) type Note = (Activation, String);

/// The content of the log.
#[derive(Clone, Default)]
pub(crate) struct Stored {
    /// Number of records that were read.
    read: usize,
    pub(crate) done: BTreeSet<Activation>,
    pub(crate) intents: BTreeSet<Activation>,
    pub(crate) failed: BTreeMap<Activation, u32>,
    /// Activations that are recorded as completed more than once. There must be none.
    pub(crate) twice: Vec<Activation>,
    /// Notes of activations, in order.
    pub(crate) notes: Vec<(Note, Value)>,
    /// Messages that were sent, in order.
    pub(crate) messages: Vec<Value>,
    /// Question ids in order, with `true` for an answer or an expiry, and `false` for a question.
    pub(crate) questions: Vec<(String, bool)>,
    /// Number of cancellations, pauses, unpauses and edits.
    pub(crate) signals: BTreeMap<String, u32>,
}

/// Reads every record of a run, oldest first. Returns none if the run does not exist.
pub(crate) async fn records(store: &MemoryStore, run: &RunKey) -> Vec<Record> {
    let mut all = store.load(run, At::Latest).await.unwrap().unwrap_or_default();
    while let Some(first) = all.first().map(|first| first.header.seq.get()).filter(|&first| first > 0) {
        let mut before = store.load(run, At::Seq(Seq::new(first - 1))).await.unwrap().unwrap();
        before.append(&mut all);
        all = before;
    }
    all
}

impl Stored {
    pub(crate) async fn load(store: &MemoryStore, run: &RunKey) -> Self {
        let mut stored = Self::default();
        stored.follow(&records(store, run).await);
        stored
    }

    /// Reads the records that were appended since the last call.
    pub(crate) fn follow(&mut self, records: &[Record]) {
        for record in &records[self.read..] {
            let body: Value = serde_json::from_slice(&record.body).unwrap();
            self.take(record.header.kind, &body);
        }
        self.read = records.len();
    }

    fn take(&mut self, kind: RecordKind, body: &Value) {
        match kind {
            RecordKind::Node => {
                for done in body["done"].as_array().unwrap() {
                    let done = activation(done);
                    if !self.done.insert(done.clone()) {
                        self.twice.push(done);
                    }
                }
            }
            RecordKind::Intent => drop(self.intents.insert(activation(body))),
            RecordKind::Attempt => {
                let failed = u32::try_from(body["failed"].as_u64().unwrap()).unwrap();
                self.failed.insert(activation(body), failed);
            }
            RecordKind::Step => {
                let note = (activation(body), body["name"].as_str().unwrap().to_owned());
                self.notes.push((note, body["what"].clone()));
            }
            RecordKind::Status if body["change"]["asked"].is_object() => {
                let asked = &body["change"]["asked"];
                let (node, visit) = activation(asked);
                self.questions.push((format!("{node}@{visit}:{}", asked["name"].as_str().unwrap()), false));
            }
            RecordKind::Status if body["change"]["expired"].is_object() => {
                let expired = &body["change"]["expired"];
                let (node, visit) = activation(expired);
                self.questions.push((format!("{node}@{visit}:{}", expired["name"].as_str().unwrap()), true));
            }
            RecordKind::Signal => {
                let what = &body["change"]["what"];
                if let Some(answer) = what.get("answer") {
                    self.questions.push((answer["question"].as_str().unwrap().to_owned(), true));
                } else if let Some(message) = what.get("message") {
                    self.messages.push(message["body"].clone());
                } else {
                    let name = what.as_str().or_else(|| Some(what.as_object()?.keys().next()?.as_str()));
                    self.count(name.unwrap(), &body["change"]["by"]);
                }
            }
            RecordKind::Edit => self.count("edit", &body["by"]),
            _ => {}
        }
    }

    fn count(&mut self, what: &str, by: &Value) {
        let by = by.as_str().map_or_else(String::new, |by| format!(" by {by}"));
        *self.signals.entry(format!("{what}{by}")).or_default() += 1;
    }

    /// Whether the run got a signal that is neither answer nor message, such as `pause by ann`.
    pub(crate) fn has(&self, what: &str) -> bool {
        self.signals.contains_key(what)
    }

    /// Whether a question was answered or has expired. A repeated question is open again.
    pub(crate) fn is_closed(&self, id: &str) -> bool {
        self.questions.iter().rev().find(|(known, _)| known == id).is_some_and(|&(_, answered)| answered)
    }

    /// The current value of an activation's note.
    pub(crate) fn note(&self, note: &Note) -> Option<&Value> {
        self.notes.iter().rev().find(|(known, _)| known == note).map(|(_, what)| what)
    }

    /// Lists everything that is recorded more often than is possible.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        let mut found: Vec<String> = self.twice.iter().map(|done| format!("{done:?} ended twice")).collect();
        let mut seen = BTreeSet::new();
        let mut taken = None;
        for (note, what) in &self.notes {
            let kind = what.as_str().or_else(|| what.as_object()?.keys().next().map(String::as_str)).unwrap();
            match kind {
                "took" => {
                    let number = what["took"].as_u64();
                    if number <= taken {
                        found.push(format!("message {number:?} was taken after {taken:?}"));
                    }
                    taken = number;
                }
                "result" | "until" | "idle" if !seen.insert((note, kind)) => {
                    found.push(format!("{note:?} has two of `{kind}`"));
                }
                _ => {}
            }
        }
        let mut open = BTreeMap::new();
        for (id, answered) in &self.questions {
            let before = open.insert(id, *answered);
            // A declared interrupt after a node has no record of its own for its question.
            if before.is_some_and(|before| before == *answered) {
                found.push(format!("`{id}` was {} twice", if *answered { "answered" } else { "asked" }));
            }
        }
        found
    }
}

fn activation(of: &Value) -> Activation {
    let visit = u32::try_from(of["visit"].as_u64().unwrap()).unwrap();
    (of["node"].as_str().unwrap().to_owned(), visit)
}
