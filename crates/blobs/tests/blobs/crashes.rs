//! Crashes at every write of the store and of the object store, with compression and encryption of records, labels and values. The next process
//! continues, and no plain text is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferrata_blobs::{Blob, Blobs, CollectOptions, ObjectStore};
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_store::{CheckpointStore, Error, MemoryStore, Page, RunKey, RunQuery, Seq};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, LabelKey};
use ferrata_testing::{Fault, FaultPlan, FaultStore, ManualClock, SeqIds};
use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;

use super::keys;
use super::world::Failing;

/// Part of every value, text and label.
const MARKER: &str = "Ann-Fowler";

/// Number of pages that a run writes.
const PAGES: usize = 3;

/// Number of yields before the clock advances, and the maximum number of half seconds of any wait.
const TURNS: u32 = 32;
const MOMENTS: u32 = 7_200;

/// The connection of a process to the store. When the process dies, the connection is cut.
#[derive(Debug)]
struct Line(Arc<FaultStore<MemoryStore>>);

/// The data that outlives processes.
struct World {
    clock: Arc<ManualClock>,
    inside: MemoryStore,
    place: Arc<Failing>,
    graph: Graph<Context>,
    lives: AtomicU64,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let inside = MemoryStore::with_clock(Arc::clone(&clock) as _);
        Self { clock, inside, place: Arc::default(), graph: book(), lives: AtomicU64::new(0) }
    }

    fn blobs(&self) -> Blobs {
        Blobs::new(Arc::clone(&self.place) as Arc<dyn ObjectStore>).with_keys(keys(&[1]))
    }

    fn layers<S: CheckpointStore>(&self, store: S) -> EnvelopeStore<S> {
        let options = EnvelopeOptions::default().with_keys(keys(&[1])).with_compress_from(Some(0));
        EnvelopeStore::new(store, options.with_label_key(LabelKey::new(&Key::from_bytes([2; 32]))))
    }

    /// Runs a process until the run has ended or the process has died. Returns the number of writes that it started.
    async fn live(&self, plan: FaultPlan) -> (Result<Context, Error>, u64) {
        let line = Arc::new(FaultStore::new(self.inside.clone(), plan));
        let life = self.lives.fetch_add(1, Ordering::Relaxed) + 1;
        let runtime = Runtime::builder(self.layers(Arc::clone(&line)))
            .clock(Arc::clone(&self.clock) as _)
            .ids(Arc::new(SeqIds::new(life)))
            .resource(self.blobs())
            .resource(Line(Arc::clone(&line)))
            .store_retries(1, Duration::from_millis(1))
            .build();
        let runtime = self.pass(runtime).await.unwrap();
        let run = async {
            let run = match runtime.head(&key()).await? {
                Some(head) if head.status != RunStatus::Completed => {
                    runtime.resume(&self.graph, "r").take_over().await?
                }
                // An existing run is not started again.
                _ => {
                    let start = runtime.start(&self.graph, Context::new()).id("r");
                    start.label("patient", MARKER).user(MARKER).await?
                }
            };
            run.wait().await
        };
        let ended = self.pass(run).await;
        line.crash();
        let ended = ended.map(|outcome| match outcome {
            Outcome::Completed(state) => state,
            outcome => panic!("the run did not complete: {outcome:?}"),
        });
        (ended, line.operations())
    }

    async fn pass<T>(&self, done: impl Future<Output = T>) -> T {
        let time = async {
            for _ in 0..MOMENTS {
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
                self.clock.advance(Duration::from_millis(500));
            }
        };
        tokio::select! {
            biased;
            done = done => done,
            () = time => panic!("the future is not ready after an hour of the test's clock"),
        }
    }

    /// Checks the stored data, and that it contains no plain text.
    async fn check(&self, state: &Context, label: &str) {
        let pages: Vec<Blob> = state.get("pages").unwrap().unwrap();
        assert_eq!(pages.len(), PAGES, "{label}");
        for (at, page) in pages.iter().enumerate() {
            assert_eq!(self.blobs().get(page).await.unwrap(), page_of(at), "{label}");
        }
        let store = self.layers(self.inside.clone());
        let mut query = RunQuery::default();
        query.labels.push(("patient".into(), MARKER.into()));
        query.user = Some(MARKER.into());
        assert_eq!(store.runs(&query, Page::first(2)).await.unwrap().items.len(), 1, "{label}");
        // Collection removes exactly the values that a process left without a record.
        for _ in 0..2 {
            let options = CollectOptions::default().with_grace(Duration::ZERO);
            assert_eq!(
                self.blobs().collect(&[&store], options).await.unwrap().named,
                PAGES as u64,
                "{label}"
            );
        }
        let head = self.inside.head(&key()).await.unwrap().unwrap();
        assert!(!format!("{head:?}").contains(MARKER), "{label}");
        let mut stored = Vec::new();
        let take = |record: &ferrata_store::Record| {
            stored.push(record.body.clone());
            Ok(())
        };
        assert!(ferrata_store::for_each_record(&self.inside, &head, take).await.unwrap(), "{label}");
        assert_eq!(Seq::new(stored.len() as u64), head.seq.next(), "{label}");
        let objects: Vec<_> = self.place.list(None).try_collect().await.unwrap();
        for object in objects {
            assert!(!object.location.to_string().contains(MARKER), "{label}");
            stored.push(self.place.get(&object.location).await.unwrap().bytes().await.unwrap());
        }
        let is_seen = |body: &[u8]| body.windows(MARKER.len()).any(|part| part == MARKER.as_bytes());
        assert!(!stored.iter().any(|body| is_seen(body)), "{label}: a plain text is stored");
        assert!(is_seen(&page_of(0)), "without encryption, the search must find the marker");
    }
}

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

fn page_of(at: usize) -> Vec<u8> {
    format!("page {at} of {MARKER} ").repeat(100).into_bytes()
}

/// A run whose node puts a page at each visit, and names it next to a text.
fn book() -> Graph<Context> {
    Graph::<Context>::builder("book")
        .node("write", async |cx, mut s: Draft<Context>| {
            let mut pages: Vec<Blob> = s.get("pages")?.unwrap_or_default();
            match cx.resource::<Blobs>().put(page_of(pages.len())).await {
                Ok(page) => pages.push(page),
                Err(error) => {
                    // The process is dead, so its further calls reach nothing.
                    cx.resource::<Line>().0.crash();
                    return Err(error.into());
                }
            }
            s.set("title", format!("{MARKER}, {} pages", pages.len()))?;
            s.set("pages", pages)?;
            Ok(s)
        })
        .retry(RetryPolicy::none())
        .entry("write")
        .route("write", ["write"], |s: &Context, _| {
            let pages: Vec<Blob> = s.get("pages").ok().flatten().unwrap_or_default();
            (pages.len() < PAGES).then_some("write")
        })
        .build()
        .unwrap()
}

#[tokio::test]
async fn next_process_recovers_crash_with_all_layers() {
    let calm = World::new();
    let (state, writes) = calm.live(FaultPlan::new()).await;
    calm.check(&state.unwrap(), "calm").await;
    assert!(writes > PAGES as u64, "only {writes} writes");
    for at in 0..writes {
        for fault in Fault::ALL {
            let label = format!("{fault:?} at write {at} of the store");
            let world = World::new();
            let (ended, _) = world.live(FaultPlan::new().with_fault(at, fault)).await;
            let state = match ended {
                Ok(state) => state,
                Err(_) => world.live(FaultPlan::new()).await.0.unwrap(),
            };
            world.check(&state, &label).await;
        }
    }
    // Each page consists of a value and its index entry.
    for at in 0..2 * PAGES as u64 {
        let label = format!("dead at write {at} of the place");
        let world = World::new();
        world.place.luck.store(at, Ordering::Relaxed);
        assert!(world.live(FaultPlan::new()).await.0.is_err(), "{label}");
        world.place.luck.store(u64::MAX, Ordering::Relaxed);
        let state = world.live(FaultPlan::new()).await.0.unwrap();
        world.check(&state, &label).await;
    }
}
