//! One store, and the processes that live and die on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ask::Question;
use ferrata_core::graph::{CheckpointPolicy, Effect, Graph};
use ferrata_core::record::{Resolution, RunStatus};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Patch};
use ferrata_core::store::{CheckpointStore, Fault, FaultPlan, FaultStore, MemoryStore, Page};
use ferrata_core::testing::SeqIds;
use ferrata_core::{Error, ErrorKind, RunKey};

use super::graphs::{Case, trace};
use super::ledger::{Entry, Ledger, Stored};

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
        let ledger = Ledger::new(&store, &case.effects, policy == CheckpointPolicy::default());
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
                            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
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
        // Whatever happened, the same graph would have gone the same way.
        let (_, runtime) = self.process(FaultPlan::new()).await;
        let verified = runtime.verify(&self.graph, &Self::key()).await.unwrap();
        if let Some(divergence) = verified.divergence {
            panic!("{}: {divergence}", self.label);
        }
        self.ledger.life.fetch_sub(1, Ordering::SeqCst);
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
