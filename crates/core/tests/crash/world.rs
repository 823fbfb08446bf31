//! One store, the processes that live and die on it, and what the nodes did outside of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::graph::{CheckpointPolicy, Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::record::{RecordKind, Resolution, RunStatus};
use ferrata_core::runtime::{Outcome, Question, Runtime};
use ferrata_core::state::{Context, Patch};
use ferrata_core::store::{At, CheckpointStore, Fault, FaultPlan, FaultStore, MemoryStore, Page};
use ferrata_core::testing::SeqIds;
use ferrata_core::{Error, ErrorKind, RunKey};

use super::graphs::{Case, trace};

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
    life: AtomicUsize,
    /// Whether every end is written by itself, so that a writing node may ask for its inputs.
    every_node: bool,
    /// Promises that were seen broken while nodes ran.
    broken: Mutex<Vec<String>>,
}

impl Ledger {
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

    fn effect(&self, node: &str) -> Effect {
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
    twice: Vec<Activation>,
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

pub(crate) struct World {
    label: String,
    graph: Graph<Context>,
    policy: CheckpointPolicy,
    pub(crate) store: MemoryStore,
    pub(crate) ledger: Arc<Ledger>,
    attempts: u32,
    operations: AtomicU64,
    stored: Mutex<Stored>,
}

impl World {
    pub(crate) fn new(case: &Case, policy: CheckpointPolicy, label: &str) -> Self {
        let store = MemoryStore::new();
        let ledger = Ledger {
            store: store.clone(),
            entries: Mutex::default(),
            effects: case.effects.iter().map(|&(node, effect)| (node.to_owned(), effect)).collect(),
            life: AtomicUsize::new(0),
            every_node: policy == CheckpointPolicy::default(),
            broken: Mutex::default(),
        };
        Self {
            label: label.to_owned(),
            graph: case.graph.clone(),
            policy,
            store,
            ledger: Arc::new(ledger),
            attempts: 1,
            operations: AtomicU64::new(0),
            stored: Mutex::default(),
        }
    }

    /// Lets processes try an append again.
    pub(crate) fn patient(mut self) -> Self {
        self.attempts = 3;
        self
    }

    /// How many writes the last life made.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::SeqCst)
    }

    /// How many processes there were.
    pub(crate) fn lives(&self) -> usize {
        self.ledger.life.load(Ordering::SeqCst)
    }

    pub(crate) fn key() -> RunKey {
        RunKey::try_from("r").unwrap()
    }

    /// Makes the next process.
    pub(crate) async fn process(&self, plan: FaultPlan) -> (Arc<FaultStore<MemoryStore>>, Runtime) {
        let store = Arc::new(FaultStore::new(self.store.clone(), plan));
        let life = self.ledger.life.fetch_add(1, Ordering::SeqCst) + 1;
        let runtime = Runtime::builder_with(Arc::clone(&store) as Arc<dyn CheckpointStore>)
            .ids(Arc::new(SeqIds::new(life as u64)))
            .resource(Arc::clone(&self.ledger))
            .store_retries(self.attempts, Duration::from_millis(1))
            .build()
            .await;
        (store, runtime.unwrap())
    }

    /// Lets processes live one after the other, each dying at its fault, and the last one to the end of the run.
    pub(crate) async fn live(&self, faults: &[(u64, Fault)]) -> serde_json::Value {
        for &(at, fault) in faults {
            let (store, runtime) = self.process(FaultPlan::new().with_fault(at, fault)).await;
            let ended = self.go_on(&runtime).await;
            self.operations.store(store.operations(), Ordering::SeqCst);
            store.crash();
            drop(runtime);
            if let Ok(state) = ended {
                return self.close(state).await;
            }
        }
        let (store, runtime) = self.process(FaultPlan::new()).await;
        let state = self.go_on(&runtime).await.unwrap_or_else(|error| panic!("{}: {error:?}", self.label));
        self.operations.store(store.operations(), Ordering::SeqCst);
        self.close(state).await
    }

    /// Starts the run or resumes it, answers what is asked, and waits for its end.
    pub(crate) async fn go_on(&self, runtime: &Runtime) -> Result<Context, Error> {
        loop {
            let run = match runtime.head(&Self::key()).await? {
                Some(head) if head.status != RunStatus::Completed => {
                    runtime.resume(&self.graph, "r").take_over().checkpoints(self.policy).await?
                }
                _ => runtime.start(&self.graph, Context::new()).id("r").checkpoints(self.policy).await?,
            };
            match run.wait().await? {
                Outcome::Completed(state) => return Ok(state),
                Outcome::Interrupted(questions) => {
                    assert!(!questions.is_empty(), "{}: interrupted without a question", self.label);
                    for question in questions {
                        let answer = self.answer(&question);
                        match runtime.respond(run.run(), &question.id, answer).await {
                            // Somebody else has answered it.
                            Err(error) if error.kind() == ErrorKind::NotFound => {}
                            answered => answered?,
                        }
                    }
                }
                outcome => panic!("{}: {outcome:?}", self.label),
            }
        }
    }

    /// Whether a process that resumed the run now would have to ask.
    pub(crate) async fn in_doubt(&self) -> bool {
        let stored = Stored::load(&self.store, &Self::key()).await;
        stored.intents.difference(&stored.done).next().is_some()
    }

    /// What an operator finds out who asks the ledger.
    pub(crate) fn answer(&self, question: &Question) -> Resolution {
        let activation = (question.node.to_string(), question.visit.get());
        if !self.ledger.ran(&activation) {
            return Resolution::Retry;
        }
        match activation.0.as_str() {
            "mail" => Resolution::Skip,
            node => Resolution::Supply(Patch::from_ops(&[trace(node, activation.1)]).unwrap()),
        }
    }

    /// Reads the log once more, and the state whatever the order of concurrent nodes.
    pub(crate) async fn close(&self, state: Context) -> serde_json::Value {
        *self.stored.lock().unwrap() = Stored::load(&self.store, &Self::key()).await;
        self.check_chain().await;
        let mut state = serde_json::to_value(state).unwrap();
        if let Some(trace) = state["trace"].as_array_mut() {
            trace.sort_by_key(ToString::to_string);
        }
        state
    }

    /// The log is one line: dense, each record naming the one before, epochs never falling.
    pub(crate) async fn check_chain(&self) {
        let page = Page::first(1_000);
        let mut headers = self.store.history(&Self::key(), page).await.unwrap().items;
        headers.sort_by_key(|header| header.seq);
        let mut before = None;
        let mut epoch = headers[0].epoch;
        for (at, header) in headers.iter().enumerate() {
            assert_eq!(header.seq.get(), at as u64, "{}: dense", self.label);
            assert_eq!(header.prev, before, "{}: chained", self.label);
            assert!(header.epoch >= epoch, "{}: epochs", self.label);
            (before, epoch) = (Some(header.id), header.epoch);
        }
    }

    /// Checks what must hold whatever happened. Call it after the run has ended.
    pub(crate) fn check(&self) {
        let label = &self.label;
        assert_eq!(*self.ledger.broken.lock().unwrap(), Vec::<String>::new(), "{label}");
        let (entries, stored) = (self.ledger.entries(), self.stored.lock().unwrap());
        assert_eq!(stored.twice, [], "{label}: recorded twice");
        let mut keys = BTreeMap::new();
        let mut lived = BTreeSet::new();
        for entry in &entries {
            let Entry { life, activation, attempt, key } = entry;
            let (effect, first) = (self.ledger.effect(&activation.0), keys.entry(activation).or_insert(key));
            assert_eq!(*first, key, "{label}: {activation:?} ran with two keys");
            assert!(
                lived.insert((life, activation, attempt)),
                "{label}: {activation:?} ran twice in one life"
            );
            let times = entries.iter().filter(|other| other.activation == *activation).count();
            assert!(effect != Effect::External || times == 1, "{label}: {activation:?} ran {times} times");
        }
        for activation in &stored.done {
            assert!(self.ledger.ran(activation), "{label}: {activation:?} is recorded and never ran");
        }
    }
}
