//! Store calls of a run and of a child, counted exactly.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ferrata_core::graph::{Effect, Graph, Route};
use ferrata_core::node::NodeContext;
use ferrata_core::record::Record;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft, Reducer};
use ferrata_core::store::{
    At, CheckpointStore, HeaderRange, Headers, MemoryStore, Notices, Page, Paged, RunAppend, RunHead,
    RunQuery, delegate,
};
use ferrata_core::{HeadRef, Result, RunKey};
use ferrata_testing::ManualClock;

use super::family::*;

#[derive(Debug, Default)]
struct Counts {
    heads: AtomicUsize,
    loads: AtomicUsize,
    /// Listings of runs and of headers.
    lists: AtomicUsize,
    /// Appends to the parent, and to all other runs.
    to_parent: AtomicUsize,
    to_others: AtomicUsize,
    /// Records of the parent.
    records: AtomicUsize,
}

/// A store that counts its calls, sends notices only if the test enables them, and yields before each append, as a store on a network does.
#[derive(Clone, Debug)]
pub(crate) struct Counting {
    inner: MemoryStore,
    counts: Arc<Counts>,
    tells: bool,
}

impl Counting {
    pub(crate) fn of(store: &MemoryStore) -> Self {
        Self { inner: store.clone(), counts: Arc::default(), tells: false }
    }
}

#[async_trait]
impl CheckpointStore for Counting {
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        for append in &batch {
            let Counts { to_parent, to_others, records, .. } = &*self.counts;
            if append.run == key("p") {
                to_parent.fetch_add(1, Ordering::Relaxed);
                records.fetch_add(append.records.len(), Ordering::Relaxed);
            } else {
                to_others.fetch_add(1, Ordering::Relaxed);
            }
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.inner.append(batch).await
    }
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.counts.loads.fetch_add(1, Ordering::Relaxed);
        self.inner.load(run, at).await
    }
    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.counts.loads.fetch_add(1, Ordering::Relaxed);
        self.inner.load_since(run, known).await
    }
    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.counts.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.headers(run, range).await
    }
    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.counts.heads.fetch_add(1, Ordering::Relaxed);
        self.inner.head(run).await
    }
    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.counts.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.runs(query, page).await
    }
    /// Polls for notices are counted, too.
    fn subscribe(&self) -> Option<Notices> {
        if self.tells { self.inner.subscribe() } else { None }
    }

    delegate! { |this| this.inner; capabilities, setup, prune, purge, heartbeat, part }
}

const CHILDREN: u32 = 200;

/// A graph with one node that starts `CHILDREN` children.
fn over() -> Graph<Context> {
    let child = double();
    Graph::<Context>::builder("over")
        .node(
            "map",
            using!(child; cx, mut s => {
                let ended = cx.children(&child, (0..CHILDREN).map(with)).await?;
                s.set("ended", ended.len())?;
                Ok(s)
            }),
        )
        .entry("map")
        .build()
        .unwrap()
}

/// A graph with a map: one node activation for each of the `CHILDREN` children.
fn mapped() -> Graph<Context> {
    Graph::<Context>::builder("mapped")
        .channel("ended", Reducer::Sum)
        .node("split", async |_cx, s| Ok(s))
        .child(
            "each",
            &double(),
            |_s: &Context, cx| Ok(with(cx.item()?)),
            |s: &mut Context, _child: Context| s.set("ended", 1),
        )
        .max_running(64)
        .entry("split")
        .route("split", ["each"], |_s, _cx| Route::each("each", 0..CHILDREN))
        .build()
        .unwrap()
}

async fn counted(graph: &Graph<Context>) -> Arc<Counts> {
    let store = Counting::of(&MemoryStore::new());
    let counts = Arc::clone(&store.counts);
    // The clock stands still, so that a slow machine does not cause additional polls.
    let runtime = Runtime::builder(store).clock(Arc::new(ManualClock::default())).build().await.unwrap();
    let run = runtime.start(graph, Context::new()).id("p").await.unwrap();
    let state = run.completed().await.unwrap();
    assert_eq!(state.get::<u32>("ended").unwrap(), Some(CHILDREN));
    counts
}

fn all(counts: &Counts) -> [usize; 5] {
    let Counts { heads, loads, to_parent, to_others, records, .. } = counts;
    [heads, loads, to_parent, to_others, records].map(|count| count.load(Ordering::Relaxed))
}

/// A parent does not read children that run in the same process from the store.
#[tokio::test]
async fn parent_reads_no_local_child_from_store() {
    for graph in [over(), mapped()] {
        let counts = counted(&graph).await;
        let [heads, loads, ..] = all(&counts);
        println!("{counts:?}");
        // The driver polls the head of the parent now and then.
        assert!(heads + loads <= 10, "{}: {counts:?}", graph.name());
    }
}

/// The records of all children of a node share a few appends. They are not appended one child after the other.
///
/// Guarantees: CHILD-21.
#[tokio::test]
async fn the_children_of_a_node_are_noted_together() {
    for graph in [over(), mapped()] {
        let counts = counted(&graph).await;
        let [.., to_parent, to_others, records] = all(&counts);
        println!("{counts:?}");
        assert!(to_parent <= CHILDREN as usize / 4, "{}: {counts:?}", graph.name());
        assert_eq!(to_others, 2 * CHILDREN as usize, "each child appends its start and its only node");
        // Each child adds three records: the note, the note of its start, and the note of its result. A map adds one node per child.
        let own = if graph.name().as_str() == "mapped" { 2 + CHILDREN as usize } else { 2 };
        assert_eq!(records, 3 * CHILDREN as usize + own, "{}: {counts:?}", graph.name());
    }
}

/// A node that yields often, so that other tasks can run.
fn at_work() -> Graph<Context> {
    Graph::<Context>::builder("at-work")
        .node("again", async |_cx, s: Draft<Context>| {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            Ok(s)
        })
        .effect(Effect::Write)
        .entry("again")
        .route(
            "again",
            ["again"],
            |_s, cx| if cx.visit().get() < 20 { Route::to("again") } else { Route::none() },
        )
        .build()
        .unwrap()
}

/// A driver does not read its own records from the store when it receives the notices of its own writes.
#[tokio::test]
async fn run_does_not_read_its_own_writes() {
    let store = MemoryStore::new();
    let counting = Counting { tells: true, ..Counting::of(&store) };
    let counts = Arc::clone(&counting.counts);
    let runtime = Runtime::builder(counting).clock(Arc::new(ManualClock::default())).build().await.unwrap();
    let run = runtime.start(&at_work(), Context::new()).id("p").await.unwrap();
    run.completed().await.unwrap();
    let [heads, loads, ..] = all(&counts);
    assert_eq!(heads + loads, 0, "{counts:?}");
}
