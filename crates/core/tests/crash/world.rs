//! One store and its processes, which crash and restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ask::{Answer, Question, QuestionKind};
use ferrata_core::graph::{CheckpointPolicy, Effect, Graph};
use ferrata_core::record::{Resolution, RunStatus};
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::{Context, Op, Patch};
use ferrata_core::store::{CheckpointStore, HeaderRange, MemoryStore};
use ferrata_core::{Clock, Error, ErrorKind, RunKey};
use ferrata_testing::{Fault, FaultPlan, FaultStore, ManualClock, SeqIds};
use serde_json::json;

use super::graphs::{Case, Script, trace};
use super::ledger::{Entry, Ledger};
use super::log::Stored;
use super::pausing::DAY;
use crate::support::bounds;

/// Number of yields before the clock advances: enough for all tasks that are ready.
const PATIENCE: u32 = 32;

/// Maximum number of half seconds of any wait: longer than everything that a process waits for in memory.
const MOMENTS: u32 = 7_200;

/// Number of idle periods after which the run counts as endless.
const ROUNDS: u32 = 64;

pub(crate) struct World {
    label: String,
    graph: Graph<Context>,
    script: Script,
    policy: CheckpointPolicy,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: MemoryStore,
    pub(crate) ledger: Arc<Ledger>,
    attempts: u32,
    is_shared: bool,
    lives: AtomicU64,
    /// Number of messages of the script that were sent or are being sent.
    claimed: AtomicUsize,
    operations: AtomicU64,
    stored: Mutex<Stored>,
}

impl World {
    pub(crate) fn new(case: &Case, policy: CheckpointPolicy, label: &str) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let ledger = Ledger::new(&store, &clock, &case.effects, policy == CheckpointPolicy::default());
        Self {
            label: label.to_owned(),
            graph: case.graph.clone(),
            script: case.script.clone(),
            policy,
            clock,
            store,
            ledger: Arc::new(ledger),
            attempts: 1,
            is_shared: false,
            lives: AtomicU64::new(0),
            claimed: AtomicUsize::new(0),
            operations: AtomicU64::new(0),
            stored: Mutex::default(),
        }
    }

    /// Enables retries of appends.
    pub(crate) fn patient(mut self) -> Self {
        self.attempts = 3;
        self
    }

    /// Permits signals of other processes. The status at which a process stops may then be outdated.
    pub(crate) fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// Number of writes of the last process.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::SeqCst)
    }

    /// Number of processes so far.
    pub(crate) fn lives(&self) -> u64 {
        self.lives.load(Ordering::SeqCst)
    }

    pub(crate) fn graph(&self) -> &Graph<Context> {
        &self.graph
    }

    /// Sends the next message of the script, if any, even if another caller is still sending the one before.
    pub(crate) async fn send_next(&self, runtime: &Runtime) -> Result<bool, Error> {
        let sent = self.ledger.look(&Self::key(), |stored| stored.messages.len()).await;
        let next = self.claimed.load(Ordering::SeqCst).max(sent);
        let Some(message) = self.script.messages.get(next) else { return Ok(false) };
        self.claimed.store(next + 1, Ordering::SeqCst);
        let result = runtime.send(&Self::key(), message).await;
        if result.is_err() {
            // The outcome may be unknown, so count from the log.
            self.claimed.store(0, Ordering::SeqCst);
        }
        result.map(|()| true)
    }

    /// Checks that exactly the messages of the script were sent, and returns them in the order of the log. Call it after `close`.
    pub(crate) fn check_said(&self) -> Vec<serde_json::Value> {
        let said = self.stored.lock().unwrap().messages.clone();
        let sorted = |messages: &[serde_json::Value]| {
            let mut texts: Vec<_> = messages.iter().map(ToString::to_string).collect();
            texts.sort_unstable();
            texts
        };
        assert_eq!(sorted(&said), sorted(&self.script.messages), "{}", self.label);
        said
    }

    pub(crate) fn key() -> RunKey {
        RunKey::try_from("r").unwrap()
    }

    /// Creates the next process.
    pub(crate) async fn process(&self, plan: FaultPlan) -> (Arc<FaultStore<MemoryStore>>, Runtime) {
        let store = Arc::new(FaultStore::new(self.store.clone(), plan));
        let life = self.lives.fetch_add(1, Ordering::SeqCst) + 1;
        self.ledger.life.fetch_add(1, Ordering::SeqCst);
        let runtime = Runtime::builder_with(Arc::clone(&store) as Arc<dyn CheckpointStore>)
            .clock(Arc::clone(&self.clock) as _)
            .ids(Arc::new(SeqIds::new(life)))
            .resource(Arc::clone(&self.ledger))
            .store_retries(self.attempts, Duration::from_millis(1))
            .build()
            .await;
        (store, runtime.unwrap())
    }

    /// Runs processes one after the other. Each crashes at its fault, and the last one runs to the end.
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

    /// Starts or resumes the run, sends the script's operations, and waits for its end.
    pub(crate) async fn go_on(&self, runtime: &Runtime) -> Result<Context, Error> {
        self.pass(self.go_on_in_time(runtime)).await
    }

    async fn go_on_in_time(&self, runtime: &Runtime) -> Result<Context, Error> {
        for _ in 0..ROUNDS {
            // A new claim starts a new process lifetime. Within one lifetime, no node runs twice.
            self.ledger.life.fetch_add(1, Ordering::SeqCst);
            let run = match runtime.head(&Self::key()).await? {
                Some(head) if head.status != RunStatus::Completed => {
                    runtime.resume(&self.graph, "r").take_over().checkpoints(self.policy).await?
                }
                _ => runtime.start(&self.graph, Context::new()).id("r").checkpoints(self.policy).await?,
            };
            let outcome = run.wait().await?;
            if let Outcome::Completed(state) = outcome {
                return Ok(state);
            }
            self.move_on(runtime, outcome).await?;
        }
        panic!("{}: the run was idle {ROUNDS} times and did not end", self.label);
    }

    /// Waits for a run while the clock advances.
    pub(crate) async fn wait(&self, run: &RunHandle<Context>) -> Result<Outcome<Context>, Error> {
        self.pass(run.wait()).await
    }

    /// Advances the clock until `done` is ready.
    async fn pass<T>(&self, done: impl Future<Output = T>) -> T {
        let time = async {
            for _ in 0..MOMENTS {
                for _ in 0..PATIENCE {
                    tokio::task::yield_now().await;
                }
                self.clock.advance(Duration::from_millis(500));
            }
        };
        tokio::select! {
            biased;
            done = done => done,
            () = time => panic!("{}: the future is not ready after an hour of the test's clock", self.label),
        }
    }

    /// Performs the operation that an idle run needs. The operation may have happened before a crash, so check the log.
    async fn move_on(&self, runtime: &Runtime, outcome: Outcome<Context>) -> Result<(), Error> {
        let (run, stored) = (Self::key(), self.ledger.look(&Self::key(), Stored::clone).await);
        if self.script.is_held && !stored.has("edit by ann") {
            let patch = Patch::from_ops(&[Op::Append("edits".into(), vec!["by hand".into()])]).unwrap();
            runtime.edit(&run, patch).check_with(&self.graph).by("ann").await?;
        }
        if self.script.is_held && !stored.has("pause by ann") {
            one_of(runtime.pause(&run, "lunch").by("ann").await)?;
        }
        match outcome {
            Outcome::Interrupted(questions) => {
                assert!(!questions.is_empty(), "{}: the run is interrupted without a question", self.label);
                for question in &questions {
                    let is_closed = stored.is_closed(&question.id);
                    assert!(self.is_shared || !is_closed, "{}: `{}` is asked again", self.label, question.id);
                }
                if questions.iter().all(|question| question.deadline.is_some()) {
                    self.clock.advance(DAY);
                }
                for question in questions.iter().filter(|question| question.deadline.is_none()) {
                    one_of(runtime.respond(&run, &question.id, self.answer(question)).by("ann").await)?;
                }
                self.send_next(runtime).await?;
            }
            Outcome::AwaitingInput => {
                if !self.send_next(runtime).await? {
                    self.clock.advance(DAY);
                }
            }
            Outcome::Sleeping { until } => {
                self.clock.advance(until.since(self.clock.now()));
                self.send_next(runtime).await?;
            }
            Outcome::Paused { .. } => one_of(runtime.unpause(&run).await)?,
            outcome => panic!("{}: {outcome:?}", self.label),
        }
        Ok(())
    }

    /// Whether a process that resumed the run now would have to ask about an unknown outcome.
    pub(crate) async fn in_doubt(&self) -> bool {
        let in_doubt = |stored: &Stored| stored.intents.difference(&stored.done).next().is_some();
        self.ledger.look(&Self::key(), in_doubt).await
    }

    /// The resolution of an operator who checks the ledger.
    pub(crate) fn answer(&self, question: &Question) -> Answer {
        if question.kind != QuestionKind::Doubt {
            let number = u32::try_from(question.id.len()).unwrap();
            let value = match &question.expects {
                Some(shape) if shape.check("true").is_ok() => json!(true),
                // The first answer to a question for an odd number is even.
                Some(_) if question.id.ends_with(":odd") && question.problem.is_none() => json!(2),
                Some(_) if question.id.ends_with(":odd") => json!(7),
                Some(_) => json!(number),
                None => json!(null),
            };
            return Answer::accept(value).unwrap();
        }
        self.resolution(question).into()
    }

    fn resolution(&self, question: &Question) -> Resolution {
        let activation = (question.node.to_string(), question.visit.get());
        if !self.ledger.ran(&activation) {
            return Resolution::Retry;
        }
        match activation.0.as_str() {
            "mail" => Resolution::Skip,
            node => Resolution::Supply(Patch::from_ops(&[trace(node, activation.1)]).unwrap()),
        }
    }

    /// Reads the log again, and normalizes the order of concurrent nodes in the state.
    pub(crate) async fn close(&self, state: Context) -> serde_json::Value {
        *self.stored.lock().unwrap() = Stored::load(&self.store, &Self::key()).await;
        self.check_chain().await;
        bounds::hold(&self.store, self.clock.now(), &self.label).await;
        // The graph must agree with the log, whatever happened.
        let reader = Runtime::builder(self.store.clone()).build().await.unwrap();
        let verified = reader.verify(&self.graph, &Self::key()).await.unwrap();
        if let Some(divergence) = verified.divergence {
            panic!("{}: {divergence}", self.label);
        }
        let mut state = serde_json::to_value(state).unwrap();
        // Only messages have an order. The other channels are written by concurrent branches.
        for channel in ["trace", "got", "did"] {
            if let Some(items) = state.get_mut(channel).and_then(serde_json::Value::as_array_mut) {
                items.sort_by_key(ToString::to_string);
            }
        }
        state
    }

    /// The log has a single history: no record is missing, each names the one before, and epochs never decrease.
    pub(crate) async fn check_chain(&self) {
        let mut headers = self.store.headers(&Self::key(), HeaderRange::newest(1_000)).await.unwrap().items;
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

    /// Checks the invariants. Call it after the run has ended.
    pub(crate) fn check(&self) {
        let label = &self.label;
        assert_eq!(*self.ledger.broken.lock().unwrap(), Vec::<String>::new(), "{label}");
        let (entries, stored) = (self.ledger.entries(), self.stored.lock().unwrap());
        assert_eq!(stored.contradictions(), Vec::<String>::new(), "{label}");
        let mut keys = BTreeMap::new();
        let mut lived = BTreeSet::new();
        for entry in &entries {
            let Entry { life, activation, attempt, key } = entry;
            let (effect, first) = (self.ledger.effect(&activation.0), keys.entry(activation).or_insert(key));
            assert_eq!(*first, key, "{label}: {activation:?} ran with two keys");
            assert!(
                lived.insert((life, activation, attempt)),
                "{label}: {activation:?} ran twice in one process"
            );
            let times = entries.iter().filter(|other| other.activation == *activation).count();
            let most = 1 + self.ledger.undone(activation);
            assert!(effect != Effect::External || times <= most, "{label}: {activation:?} ran {times} times");
        }
        for activation in stored.done.iter().filter(|done| !self.script.silent.contains(&&*done.0)) {
            assert!(self.ledger.ran(activation), "{label}: {activation:?} is recorded but never ran");
        }
    }
}

/// Treats a refusal because of another caller's signal as success.
fn one_of(said: Result<(), Error>) -> Result<(), Error> {
    match said {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::WrongStatus
            ) =>
        {
            Ok(())
        }
        said => said,
    }
}
