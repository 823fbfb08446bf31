//! Properties of the outbox messages in a log, and of their receivers.

use std::collections::{BTreeMap, BTreeSet};

use ferrata_core::RunKey;
use ferrata_core::record::RecordKind;
use ferrata_core::runtime::OutboxMessage;
use serde_json::Value;

/// The topic of all messages of these tests. The text of each starts with its `node@visit`.
pub(crate) const TOPIC: &str = "mail";

/// The outbox messages of a run, as recorded in its log.
#[derive(Default)]
pub(crate) struct Letters {
    /// The texts in order. The first message has the number 1.
    pub(crate) sent: Vec<String>,
    /// The undelivered messages.
    waiting: BTreeSet<u64>,
    /// The messages that were set aside or dropped at some time, so that others may overtake them.
    aside: BTreeSet<u64>,
}

impl Letters {
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds the next record. Returns its violations.
    pub(crate) fn add(&mut self, kind: RecordKind, body: &Value) -> Vec<String> {
        match kind {
            RecordKind::Node => {
                body["done"].as_array().unwrap().iter().filter_map(|done| self.post(done)).collect()
            }
            RecordKind::Signal => self.change(&body["change"]["what"]["letters"]["change"]),
            _ => Vec::new(),
        }
    }

    fn post(&mut self, done: &Value) -> Option<String> {
        let at = format!("{}@{}", done["node"].as_str().unwrap(), done["visit"]);
        let letters = done["letters"].as_array()?;
        for letter in letters {
            let text = letter["payload"].as_str().unwrap();
            self.sent.push(text.to_owned());
            self.waiting.insert(self.sent.len() as u64);
            if !text.starts_with(&at) {
                return Some(format!("the letter `{text}` is in the record of {at}"));
            }
        }
        let is_sent = done.get("failure").is_some() && !letters.is_empty();
        is_sent.then(|| format!("{at} failed, and what it sent is on record"))
    }

    fn change(&mut self, change: &Value) -> Vec<String> {
        let numbers = |of: &Value| -> BTreeSet<u64> {
            of["numbers"].as_array().into_iter().flatten().map(|number| number.as_u64().unwrap()).collect()
        };
        let mut broken = Vec::new();
        if let Some(delivered) = change.get("delivered") {
            let delivered = numbers(delivered);
            let last = delivered.last().copied().unwrap_or_default();
            if last > self.sent.len() as u64 {
                broken.push(format!("letter {last} was delivered, and {} were sent", self.sent.len()));
            }
            self.waiting.retain(|number| !delivered.contains(number));
            let left = self.waiting.iter().find(|number| **number < last && !self.aside.contains(number));
            broken.extend(left.map(|left| format!("letter {last} was delivered before letter {left}")));
        } else if let Some(failed) = change.get("failed") {
            let number = failed["number"].as_u64().unwrap();
            if !self.waiting.contains(&number) {
                broken.push(format!("letter {number} failed, and does not wait"));
            }
            if failed.get("retry_at").is_none() {
                self.aside.insert(number);
            }
        } else if let Some(drop) = change.get("drop") {
            let named = numbers(drop);
            let is_meant = |number: &u64| {
                if named.is_empty() { self.aside.contains(number) } else { named.contains(number) }
            };
            let dropped: Vec<u64> = self.waiting.iter().copied().filter(is_meant).collect();
            for number in dropped {
                self.waiting.remove(&number);
                self.aside.insert(number);
            }
        }
        broken
    }
}

/// A receiver of outbox messages, with the received messages by run and generation.
#[derive(Default)]
pub(crate) struct Received(BTreeMap<(RunKey, String), BTreeSet<u64>>);

impl Received {
    /// Adds a received message, with the messages in the recorded log. Returns its violation.
    pub(crate) fn add(&mut self, letter: &OutboxMessage, letters: Option<&Letters>) -> Option<String> {
        let key = letter.key();
        let (life, number) = key.split_once(':').unwrap();
        assert_eq!(number, letter.number.to_string());
        let known = self.0.entry((letter.run.clone(), life.to_owned())).or_default();
        let is_new = known.insert(letter.number);
        // A purged run has no log.
        let letters = letters?;
        let text: String = letter.payload().unwrap();
        let place = usize::try_from(letter.number - 1).unwrap();
        if letters.sent.get(place) != Some(&text) {
            return Some(format!("{}: letter {number}, `{text}`, came and is not on record", letter.run));
        }
        let missing = (1..letter.number).find(|n| !known.contains(n) && !letters.aside.contains(n));
        missing
            .filter(|_| is_new)
            .map(|missing| format!("{}: letter {number} came before letter {missing}", letter.run))
    }

    /// The first message of a run that was neither received nor dropped.
    pub(crate) fn missing(&self, run: &RunKey, life: &str, letters: &Letters) -> Option<u64> {
        let none = BTreeSet::new();
        let known = self.0.get(&(run.clone(), life.to_owned())).unwrap_or(&none);
        (1..=letters.sent.len() as u64)
            .find(|number| !known.contains(number) && !letters.aside.contains(number))
    }

    /// Number of received messages.
    pub(crate) fn count(&self) -> u64 {
        self.0.values().map(|known| known.len() as u64).sum()
    }
}
