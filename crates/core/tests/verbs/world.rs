//! One run with one external resource, its processes, and its visible effects.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::ask::Answer;
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::runtime::{OutboxMessage, OutboxSink, Runtime, SinkError};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, HeaderRange, MemoryStore, Page, RunHead, RunQuery};
use ferrata_core::{ErrorKind, RunKey};
use ferrata_testing::{Fault, FaultPlan, FaultStore, ManualClock, SeqIds};

use super::things::{TOPIC, Thing, kid};

/// Slightly longer than the validity of a heartbeat.
const DEAD: Duration = Duration::from_secs(20);

/// The actions of nodes and sinks.
#[derive(Default)]
pub(crate) struct Outside {
    /// The received messages: run, key and text.
    pub(crate) letters: Mutex<Vec<(String, String, String)>>,
    /// Number of stored values.
    pub(crate) puts: AtomicU32,
    /// Number of executions of the cached node.
    pub(crate) looks: AtomicU32,
    /// The write at which the node `beside` fails, if any.
    pub(crate) fails_at: Mutex<Option<u64>>,
    /// Whether the run did not reach that write.
    pub(crate) is_too_late: AtomicBool,
    /// The store of the current process, which counts the writes.
    store: Mutex<Option<Arc<FaultStore<MemoryStore>>>>,
}

impl Outside {
    pub(crate) fn writes(&self) -> u64 {
        self.store.lock().unwrap().as_ref().map_or(0, |store| store.operations())
    }
}

/// A sink that accepts every message.
struct Mail(Arc<Outside>);

#[async_trait]
impl OutboxSink for Mail {
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError> {
        let mut letters = self.0.letters.lock().unwrap();
        for letter in batch {
            letters.push((letter.run.run.to_string(), letter.key(), letter.payload::<String>().unwrap()));
        }
        Ok(())
    }
}

pub(crate) struct Process {
    pub(crate) store: Arc<FaultStore<MemoryStore>>,
    pub(crate) runtime: Runtime,
}

pub(crate) struct World {
    pub(crate) thing: Thing,
    pub(crate) label: String,
    pub(crate) store: MemoryStore,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) outside: Arc<Outside>,
    processes: AtomicU64,
}

pub(crate) fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

impl World {
    pub(crate) fn new(thing: Thing, label: impl Into<String>) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self {
            thing,
            label: format!("{thing:?}, {}", label.into()),
            store: MemoryStore::with_clock(Arc::clone(&clock) as _),
            clock,
            outside: Arc::default(),
            processes: AtomicU64::new(0),
        }
    }

    /// Creates a process that serves no workflow yet, and crashes at its fault.
    pub(crate) async fn process_with(&self, plan: FaultPlan) -> Process {
        let store = Arc::new(FaultStore::new(self.store.clone(), plan));
        *self.outside.store.lock().unwrap() = Some(Arc::clone(&store));
        let number = self.processes.fetch_add(1, Ordering::SeqCst) + 1;
        let runtime = Runtime::builder_with(Arc::clone(&store) as Arc<dyn CheckpointStore>)
            .clock(Arc::clone(&self.clock) as _)
            .ids(Arc::new(SeqIds::new(number)))
            .resource(Arc::clone(&self.outside))
            .resource(Arc::clone(&self.clock))
            .sink(TOPIC, Mail(Arc::clone(&self.outside)))
            .release_after(Duration::from_millis(300))
            .build();
        Process { store, runtime: runtime.await.unwrap() }
    }

    pub(crate) async fn process(&self) -> Process {
        self.process_with(FaultPlan::new()).await
    }

    pub(crate) fn serve(&self, process: &Process) {
        process.runtime.serve(&self.thing.graph()).unwrap();
        process.runtime.serve(&kid()).unwrap();
    }

    /// Starts the run in a process that crashes after this write. Returns false if the run ended before.
    pub(crate) async fn live_until(&self, write: u64) -> bool {
        let process = self.process_with(FaultPlan::new().with_fault(write, Fault::CrashAfter)).await;
        self.serve(&process);
        let ended = self.live(&process).await;
        drop(process);
        self.clock.advance(DEAD);
        !ended
    }

    /// Starts the run in its own process, and lets it fail at this write, next to the node that uses the resource. Returns none if the run does not
    /// reach that write.
    pub(crate) async fn fail_at(&self, write: u64) -> Option<Process> {
        *self.outside.fails_at.lock().unwrap() = Some(write);
        let process = self.process().await;
        self.serve(&process);
        self.live(&process).await;
        assert_eq!(self.head("r").await.unwrap().status, RunStatus::Failed, "{}", self.label);
        (!self.outside.is_too_late.load(Ordering::SeqCst)).then_some(process)
    }

    /// Starts the run, and continues it until it has ended or its process has crashed. Returns whether the run has ended.
    pub(crate) async fn live(&self, process: &Process) -> bool {
        let ended = async {
            let _run = process.runtime.start(&self.thing.graph(), Context::new()).id("r").await;
            loop {
                let ended = self.head("r").await.is_some_and(|head| head.status.is_finished());
                if ended || process.store.is_crashed() {
                    return ended;
                }
                self.answer(process, "r").await;
                tokio::task::yield_now().await;
            }
        };
        self.pass(ended).await
    }

    /// Advances the clock until `done` is ready.
    pub(crate) async fn pass<T>(&self, done: impl Future<Output = T>) -> T {
        let mut done = std::pin::pin!(done);
        for _ in 0..40_000 {
            tokio::select! {
                biased;
                done = &mut done => return done,
                () = tokio::task::yield_now() => self.clock.advance(Duration::from_millis(50)),
            }
        }
        panic!("{}: the future is not ready after 2,000 s of the test's clock", self.label);
    }

    /// Answers the questions of a run.
    async fn answer(&self, process: &Process, run: &str) {
        let Ok(questions) = process.runtime.questions(&key(run)).await else { return };
        for question in questions {
            let answer = Answer::accept(true).unwrap();
            match process.runtime.respond(&key(run), &question.id, answer).await {
                Err(error)
                    if !matches!(
                        error.kind(),
                        ErrorKind::AlreadyExists
                            | ErrorKind::WrongStatus
                            | ErrorKind::NotFound
                            | ErrorKind::Closed
                    ) =>
                {
                    panic!("{}: {run}: {error:?}", self.label)
                }
                _ => {}
            }
        }
    }

    /// Waits until a run has this status.
    pub(crate) async fn until(&self, run: &str, wanted: RunStatus) {
        let there = async {
            while self.head(run).await.is_none_or(|head| head.status != wanted) {
                tokio::task::yield_now().await;
            }
        };
        self.pass(there).await;
    }

    /// Continues a run until it has completed. Returns its state.
    pub(crate) async fn finish(&self, process: &Process, run: &str) -> Context {
        let ended = async {
            loop {
                match self.head(run).await.map(|head| head.status) {
                    Some(RunStatus::Completed) => return,
                    Some(RunStatus::Failed) => {
                        let told = process.runtime.post_mortem(&key(run)).await.unwrap();
                        panic!("{}: {run} failed: {told}", self.label)
                    }
                    None | Some(RunStatus::Cancelled) => panic!("{}: {run} is gone or cancelled", self.label),
                    _ => self.answer(process, run).await,
                }
                tokio::task::yield_now().await;
            }
        };
        self.pass(ended).await;
        self.state(process, run).await
    }

    pub(crate) async fn state(&self, process: &Process, run: &str) -> Context {
        let head = self.head(run).await.unwrap();
        process.runtime.state_at(&self.thing.graph(), &key(run), head.seq).await.unwrap()
    }

    /// Waits until every run has ended and every message was delivered. Checks that nothing is left over.
    pub(crate) async fn settle(&self, process: &Process) {
        let settled = async {
            let is_open = |head: &RunHead| !head.status.is_finished() || head.is_delivering();
            while self.runs(&RunQuery::default()).await.iter().any(is_open) {
                tokio::task::yield_now().await;
            }
        };
        self.pass(settled).await;
        assert_eq!(process.runtime.stalled().len(), 0, "{}: {:?}", self.label, process.runtime.stalled());
        for head in self.runs(&RunQuery::default()).await {
            assert_eq!(head.owner, None, "{}: {}", self.label, head.run);
            process.runtime.check_log(&head.run).await.unwrap();
            let mut ended = std::collections::BTreeSet::new();
            let headers = self.store.headers(&head.run, HeaderRange::newest(1_000)).await.unwrap().items;
            for header in headers.into_iter().filter(|header| header.kind == RecordKind::Node) {
                // The node `beside` fails, and ends again after a retry.
                let end = header.node.clone().zip(header.visit).filter(|(node, _)| node.as_str() != "beside");
                assert!(end.is_none() || ended.insert(end.clone()), "{}: {end:?} ended twice", self.label);
            }
        }
    }

    pub(crate) async fn head(&self, run: &str) -> Option<RunHead> {
        self.store.head(&key(run)).await.unwrap()
    }

    pub(crate) async fn runs(&self, query: &RunQuery) -> Vec<RunHead> {
        self.store.runs(query, Page::first(1_000)).await.unwrap().items
    }

    /// The runs that a run started, by their labels.
    pub(crate) async fn started_by(&self, run: &str) -> Vec<RunHead> {
        let mut query = RunQuery::default();
        query.labels.push(("ferrata.parent".to_owned(), run.to_owned()));
        self.runs(&query).await
    }

    /// The texts of a run's messages, without duplicates by key.
    pub(crate) fn letters_of(&self, run: &str) -> Vec<String> {
        let letters = self.outside.letters.lock().unwrap();
        let mut by_key = std::collections::BTreeMap::new();
        for (of, key, text) in letters.iter().filter(|(of, ..)| of == run) {
            let before = by_key.insert(key.clone(), text.clone());
            assert!(
                before.is_none_or(|before| before == *text),
                "{}: {of}: {key} belongs to two messages",
                self.label
            );
        }
        let mut texts: Vec<_> = by_key.into_values().collect();
        texts.sort();
        texts
    }

    /// The stream of a run for a watcher that reads from its start.
    pub(crate) async fn stream_of(&self, process: &Process, run: &str) -> String {
        let mut events = process.runtime.watch(&key(run)).await.unwrap();
        let mut text = String::new();
        while let Some(event) = events.next().await.unwrap() {
            for chunk in event.chunks() {
                if chunk.number == 0 {
                    text.clear();
                }
                text.push_str(&chunk.read::<String>().unwrap());
            }
        }
        text
    }
}

/// The state of a run at a moment, by its log.
pub(crate) struct Moment {
    /// Its exported log.
    pub(crate) log: String,
    /// Whether the node that uses the resource has ended.
    pub(crate) used: bool,
}

impl Moment {
    pub(crate) fn notes(&self, what: &str) -> bool {
        self.log.contains(&format!("\"{what}\""))
    }

    /// Reads a run in its current state, or in that before a record.
    pub(crate) async fn of(world: &World, process: &Process, before: Option<u64>) -> Self {
        let run = key("r");
        let log = match before {
            None => process.runtime.export(&run).await,
            Some(before) => process.runtime.export_before(&run, ferrata_core::Seq::new(before)).await,
        };
        let seq = match before {
            None => world.head("r").await.unwrap().seq,
            Some(before) => ferrata_core::Seq::new(before - 1),
        };
        let channels = process.runtime.channels_at(&run, seq).await.unwrap().to_json().unwrap();
        Self { log: log.unwrap(), used: channels.contains("\"used\"") }
    }
}
