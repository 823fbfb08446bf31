//! Effects of the nodes outside the store, compared with the log.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ferrata_core::graph::Effect;
use ferrata_core::node::NodeContext;
use ferrata_core::store::MemoryStore;
use ferrata_core::{Clock, RunKey, Timestamp};
use ferrata_testing::ManualClock;

use super::log::{Activation, Note, Stored, records};

/// A record that a node was running, stored outside the store as by a payment provider.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) life: usize,
    pub(crate) activation: Activation,
    pub(crate) attempt: u32,
    pub(crate) key: String,
}

pub(crate) struct Ledger {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    entries: Mutex<Vec<Entry>>,
    effects: BTreeMap<String, Effect>,
    pub(crate) life: AtomicUsize,
    /// Whether every end has its own record, so that a `Write` node can rely on its recorded inputs.
    every_node: bool,
    /// Number of attempts that reported no effect.
    undone: Mutex<BTreeMap<Activation, usize>>,
    /// The part of the log that was read so far. Reading all of it each time would take most of a test's time.
    stored: Mutex<Stored>,
    /// Guarantees that were violated while nodes ran.
    pub(crate) broken: Mutex<Vec<String>>,
}

impl Ledger {
    pub(crate) fn new(
        store: &MemoryStore,
        clock: &Arc<ManualClock>,
        effects: &[(&str, Effect)],
        every_node: bool,
    ) -> Self {
        Self {
            store: store.clone(),
            clock: Arc::clone(clock),
            entries: Mutex::default(),
            effects: effects.iter().map(|&(node, effect)| (node.to_owned(), effect)).collect(),
            life: AtomicUsize::new(0),
            every_node,
            undone: Mutex::default(),
            stored: Mutex::default(),
            broken: Mutex::default(),
        }
    }

    /// Reads the current log, and applies `look` to it.
    pub(crate) async fn look<T>(&self, run: &RunKey, look: impl FnOnce(&Stored) -> T) -> T {
        let records = records(&self.store, run).await;
        let mut stored = self.stored.lock().unwrap();
        stored.follow(&records);
        look(&stored)
    }

    /// Records that a node is running. Checks that everything is durable that its effect requires.
    pub(crate) async fn enter(&self, cx: &NodeContext) {
        let activation = (cx.node().to_string(), cx.visit().get());
        let life = self.life.load(Ordering::SeqCst);
        let entry = Entry { life, activation, attempt: cx.attempt(), key: cx.idempotency_key() };
        let effect = self.effect(cx.node().as_str());
        let found = self.look(cx.run(), Stored::clone).await;
        if !matches!(effect, Effect::Pure | Effect::Read) && (self.every_node || effect == Effect::External) {
            for input in cx.inputs() {
                let from = (input.from.to_string(), input.visit.get());
                if !found.done.contains(&from) {
                    self.broken(format!("{:?} began before {from:?} was durable", entry.activation));
                }
            }
        }
        if effect == Effect::External && !found.intents.contains(&entry.activation) {
            self.broken(format!("{:?} began without a durable intent", entry.activation));
        }
        if found.done.contains(&entry.activation) {
            self.broken(format!("{:?} is recorded and ran again", entry.activation));
        }
        if found.failed.get(&entry.activation).is_some_and(|&failed| entry.attempt <= failed) {
            self.broken(format!(
                "attempt {} of {:?} is recorded and ran again",
                entry.attempt, entry.activation
            ));
        }
        self.entries.lock().unwrap().push(entry);
    }

    /// Records that the work of a step runs. It must not run after its result is recorded.
    pub(crate) async fn works(&self, cx: &NodeContext, name: &str) {
        let note = note(cx, name);
        if self.look(cx.run(), |stored| stored.note(&note).is_some()).await {
            self.broken(format!("the step {note:?} is recorded and was done again"));
        }
    }

    /// Records that a node has received the result of a wait. The result must be recorded, unless the node's effect allows it to run ahead.
    pub(crate) async fn given(&self, cx: &NodeContext, name: &str) {
        let (note, stored) = (note(cx, name), self.look(cx.run(), Stored::clone).await);
        let (activation, name) = &note;
        let is_on_record = stored.is_closed(&format!("{}@{}:{name}", activation.0, activation.1))
            || stored.note(&note).is_some_and(|what| what.get("until").is_none());
        let is_weak = matches!(self.effect(&activation.0), Effect::Pure | Effect::Read);
        if !(is_on_record || is_weak) {
            self.broken(format!("{note:?} was given before it was on record"));
        }
    }

    /// Records that a timer fired. It must not fire before its recorded time.
    pub(crate) async fn rang(&self, cx: &NodeContext, name: &str) {
        let (note, stored) = (note(cx, name), self.look(cx.run(), Stored::clone).await);
        let until = stored.note(&note).and_then(|what| what["until"].as_i64());
        match until.map(Timestamp::from_unix_ms) {
            Some(until) if until <= self.clock.now() => {}
            Some(until) => self.broken(format!("{note:?} rang before {until}")),
            // A timer of such a node may fire without a record, because the next attempt would wait again.
            None if matches!(self.effect(cx.node().as_str()), Effect::Pure | Effect::Read) => {}
            None => self.broken(format!("{note:?} rang and is not on record")),
        }
    }

    pub(crate) fn effect(&self, node: &str) -> Effect {
        self.effects.get(node).copied().unwrap_or_default()
    }

    fn broken(&self, what: String) {
        self.broken.lock().unwrap().push(what);
    }

    /// Records that a node did nothing and reports this.
    pub(crate) fn undo(&self, cx: &NodeContext) {
        let activation = (cx.node().to_string(), cx.visit().get());
        *self.undone.lock().unwrap().entry(activation).or_default() += 1;
    }

    pub(crate) fn undone(&self, activation: &Activation) -> usize {
        self.undone.lock().unwrap().get(activation).copied().unwrap_or_default()
    }

    pub(crate) fn ran(&self, activation: &Activation) -> bool {
        self.entries.lock().unwrap().iter().any(|entry| entry.activation == *activation)
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }
}

fn note(cx: &NodeContext, name: &str) -> Note {
    ((cx.node().to_string(), cx.visit().get()), name.to_owned())
}
