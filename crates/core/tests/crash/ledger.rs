//! What the nodes did, outside of the store, and what the log says they did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrata_core::RunKey;
use ferrata_core::graph::Effect;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RecordKind;
use ferrata_core::store::{At, CheckpointStore, MemoryStore};

/// An activation: which node, which visit.
pub(crate) type Activation = (String, u32);

/// That a node was at work: outside the store, as a payment provider would know it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) life: usize,
    pub(crate) activation: Activation,
    pub(crate) attempt: u32,
    pub(crate) key: String,
}

pub(crate) struct Ledger {
    store: MemoryStore,
    entries: Mutex<Vec<Entry>>,
    effects: BTreeMap<String, Effect>,
    pub(crate) life: AtomicUsize,
    /// Whether every end is written by itself, so that a writing node may ask for its inputs.
    every_node: bool,
    /// Promises that were seen broken while nodes ran.
    pub(crate) broken: Mutex<Vec<String>>,
}

impl Ledger {
    pub(crate) fn new(store: &MemoryStore, effects: &[(&str, Effect)], every_node: bool) -> Self {
        Self {
            store: store.clone(),
            entries: Mutex::default(),
            effects: effects.iter().map(|&(node, effect)| (node.to_owned(), effect)).collect(),
            life: AtomicUsize::new(0),
            every_node,
            broken: Mutex::default(),
        }
    }

    /// Notes that a node is at work, and looks whether everything is durable that must be by now.
    pub(crate) async fn enter(&self, cx: &NodeContext) {
        let activation = (cx.node().to_string(), cx.visit().get());
        let life = self.life.load(Ordering::SeqCst);
        let entry = Entry { life, activation, attempt: cx.attempt(), key: cx.idempotency_key() };
        let effect = self.effect(cx.node().as_str());
        let found = Stored::load(&self.store, cx.run()).await;
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

    pub(crate) fn effect(&self, node: &str) -> Effect {
        self.effects.get(node).copied().unwrap_or_default()
    }

    fn broken(&self, what: String) {
        self.broken.lock().unwrap().push(what);
    }

    pub(crate) fn ran(&self, activation: &Activation) -> bool {
        self.entries.lock().unwrap().iter().any(|entry| entry.activation == *activation)
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }
}

/// What the log says was done.
#[derive(Default)]
pub(crate) struct Stored {
    pub(crate) done: BTreeSet<Activation>,
    pub(crate) intents: BTreeSet<Activation>,
    pub(crate) failed: BTreeMap<Activation, u32>,
    /// How often an activation is recorded as done: never more than once.
    pub(crate) twice: Vec<Activation>,
}

impl Stored {
    pub(crate) async fn load(store: &MemoryStore, run: &RunKey) -> Self {
        let mut stored = Self::default();
        let Some(records) = store.load(run, At::Latest).await.unwrap() else { return stored };
        assert_eq!(records[0].header.seq.get(), 0, "these runs are short: only the start is a base");
        for record in records {
            let body: serde_json::Value = serde_json::from_slice(&record.body).unwrap();
            let activation = |of: &serde_json::Value| {
                let visit = u32::try_from(of["visit"].as_u64().unwrap()).unwrap();
                (of["node"].as_str().unwrap().to_owned(), visit)
            };
            match record.header.kind {
                RecordKind::Node => {
                    for done in body["done"].as_array().unwrap() {
                        let done = activation(done);
                        if !stored.done.insert(done.clone()) {
                            stored.twice.push(done);
                        }
                    }
                }
                RecordKind::Intent => drop(stored.intents.insert(activation(&body))),
                RecordKind::Attempt => {
                    let failed = u32::try_from(body["failed"].as_u64().unwrap()).unwrap();
                    stored.failed.insert(activation(&body), failed);
                }
                _ => {}
            }
        }
        stored
    }
}
