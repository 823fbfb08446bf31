//! A store that loses the end of its log, as a promoted replica does: a process that knew durable records reports their loss, and work that must not
//! repeat becomes a question.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeContext;
use ferrata_core::record::{Record, Resolution};
use ferrata_core::runtime::{Event, Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{
    At, Capabilities, CheckpointStore, HeaderRange, Headers, MemoryStore, Notices, Page, Paged, PruneCut,
    Removed, RunAppend, RunHead, RunQuery,
};
use ferrata_core::{ErrorKind, ExecutorId, HeadRef, Result, RunKey};
use tokio::sync::Notify;

use super::world::World;

/// A primary with a replica that follows until `cut`, and takes over at `promote`. It sends no notices.
pub(crate) struct Replicated {
    primary: MemoryStore,
    replica: MemoryStore,
    is_cut: AtomicBool,
    is_promoted: AtomicBool,
}

impl Replicated {
    /// Creates the pair, with the store of a world as the primary.
    pub(crate) fn new(world: &World) -> Self {
        let replica = MemoryStore::with_clock(Arc::clone(&world.clock) as _);
        let (is_cut, is_promoted) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { primary: world.store.clone(), replica, is_cut, is_promoted }
    }

    fn store(&self) -> &MemoryStore {
        if self.is_promoted.load(Ordering::SeqCst) { &self.replica } else { &self.primary }
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    fn promote(&self) {
        self.is_promoted.store(true, Ordering::SeqCst);
    }
}

impl fmt::Debug for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated").finish_non_exhaustive()
    }
}

#[async_trait]
impl CheckpointStore for Replicated {
    fn capabilities(&self) -> Capabilities {
        self.primary.capabilities().with_notices(false)
    }

    async fn setup(&self) -> Result<()> {
        self.primary.setup().await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let is_followed = !self.is_cut.load(Ordering::SeqCst);
        let results = self.store().append(batch.clone()).await;
        if is_followed {
            self.replica.append(batch).await;
        }
        results
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.store().load(run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.store().load_since(run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.store().headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.store().head(run).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.store().runs(query, page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.store().prune(run, cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.store().purge(run, expected).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.primary.heartbeat(executor, ttl).await?;
        self.replica.heartbeat(executor, ttl).await
    }

    fn subscribe(&self) -> Option<Notices> {
        None
    }
}

/// Counts of started payments, and the signals that let them end.
#[derive(Default)]
struct Payments {
    begun: [AtomicU32; 3],
    may_end: [Notify; 3],
}

impl Payments {
    fn begun(&self) -> [u32; 3] {
        [0, 1, 2].map(|at| self.begun[at].load(Ordering::SeqCst))
    }

    async fn until(&self, begun: [u32; 3]) {
        for _ in 0..10_000 {
            if self.begun() == begun {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{:?} began", self.begun());
    }
}

/// Three payments in sequence.
fn graph(payments: &Arc<Payments>) -> Graph<Context> {
    let names = ["one", "two", "three"];
    let mut graph = Graph::<Context>::builder("g").entry("one").edge("one", "two").edge("two", "three");
    for (at, name) in names.into_iter().enumerate() {
        let payments = Arc::clone(payments);
        graph = graph
            .node(name, move |_cx: NodeContext, s: Draft<Context>| {
                let payments = Arc::clone(&payments);
                async move {
                    payments.begun[at].fetch_add(1, Ordering::SeqCst);
                    payments.may_end[at].notified().await;
                    Ok(s)
                }
            })
            .effect(Effect::External);
    }
    graph.build().unwrap()
}

/// After the store lost records of a started `External` node, the next process asks about the node instead of paying again.
///
/// Guarantees: DURABLE-11.
#[tokio::test]
async fn data_loss_asks_about_started_external_nodes() {
    for is_idle in [true, false] {
        let world = World::new();
        let (store, payments) = (Arc::new(Replicated::new(&world)), Arc::new(Payments::default()));
        let graph = graph(&payments);
        let runtime = Runtime::builder_with(Arc::clone(&store) as _).clock(Arc::clone(&world.clock) as _);
        let runtime = runtime.build().await.unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        let mut events = runtime.events();
        payments.until([1, 0, 0]).await;
        store.cut();
        payments.may_end[0].notify_one();
        payments.until([1, 1, 0]).await;
        store.promote();
        if !is_idle {
            // The idle process must find the loss at one of its polls.
            payments.may_end[1].notify_one();
        }
        let error = world.pass(run.wait()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("lost acknowledged records"), "{error}");
        let mut told = 0;
        while let Ok(Ok(Some(event))) = tokio::select! { biased; event = events.next() => Ok(event), () = tokio::task::yield_now() => Err(()) }
        {
            told += u32::from(matches!(event.event, Event::RecordsLost { .. }));
        }
        assert_eq!(told, 1);

        for (question, begun) in [("one@1", [1, 1, 0]), ("two@1", [1, 1, 0])] {
            let resumed = runtime.resume(&graph, "r").await.unwrap();
            let outcome = world.pass(resumed.wait()).await.unwrap();
            let Outcome::Interrupted(questions) = outcome else { panic!("{outcome:?}") };
            assert_eq!((&*questions[0].id, questions.len()), (question, 1));
            assert_eq!(payments.begun(), begun);
            runtime.check_log(&RunKey::try_from("r").unwrap()).await.unwrap();
            runtime.respond(resumed.run(), question, Resolution::Skip).await.unwrap();
        }
        payments.may_end[2].notify_one();
        let resumed = runtime.resume(&graph, "r").await.unwrap();
        let outcome = world.pass(resumed.wait()).await.unwrap();
        assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
        assert_eq!(payments.begun(), [1, 1, 1]);
    }
}
