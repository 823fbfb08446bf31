//! The cost of reading history: a long run is read page by page, and a list reads no record bodies.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::Graph;
use ferrata_core::record::{Record, RecordKind};
use ferrata_core::runtime::{Outcome, Position, RetentionPolicy, Runtime, SweepLimits};
use ferrata_core::state::Context;
use ferrata_core::store::{
    At, CheckpointStore, HeaderRange, Headers, MemoryStore, Order, Page, Paged, PruneCut, Removed, RunAppend,
    RunHead, RunQuery, delegate,
};
use ferrata_core::{Clock as _, ErrorKind, HeadRef, Result, RunKey, Seq};
use ferrata_testing::ManualClock;

use super::random_runs::key;

/// Number of calls of each store method, and number of records that they returned.
#[derive(Debug, Default)]
struct Counts {
    load: AtomicU64,
    loaded: AtomicU64,
    history: AtomicU64,
    listed: AtomicU64,
    head: AtomicU64,
    runs: AtomicU64,
    prune: AtomicU64,
    purge: AtomicU64,
    append: AtomicU64,
    largest_page: Mutex<usize>,
}

impl Counts {
    /// The calls since the last time: load, history, head, append, prune.
    fn taken(&self) -> [u64; 5] {
        let all = [&self.load, &self.history, &self.head, &self.append, &self.prune];
        let taken = all.map(|count| count.swap(0, Relaxed));
        for rest in [&self.loaded, &self.listed, &self.runs, &self.purge] {
            rest.store(0, Relaxed);
        }
        taken
    }
}

#[derive(Clone, Debug)]
struct Counting {
    inner: MemoryStore,
    counts: Arc<Counts>,
    /// The clock on which each listing takes time: the first one 10 ms, and each further one 10 ms more.
    slow: Option<Arc<ManualClock>>,
}

impl Counting {
    fn new() -> Self {
        Self { inner: MemoryStore::new(), counts: Arc::default(), slow: None }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Counting {
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.counts.append.fetch_add(1, Relaxed);
        self.inner.append(batch).await
    }
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.counts.load.fetch_add(1, Relaxed);
        let loaded = self.inner.load(run, at).await?;
        self.counts.loaded.fetch_add(loaded.as_ref().map_or(0, Vec::len) as u64, Relaxed);
        Ok(loaded)
    }
    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.counts.load.fetch_add(1, Relaxed);
        let loaded = self.inner.load_since(run, known).await?;
        self.counts.loaded.fetch_add(loaded.as_ref().map_or(0, Vec::len) as u64, Relaxed);
        Ok(loaded)
    }
    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.counts.history.fetch_add(1, Relaxed);
        let found = self.inner.headers(run, range).await?;
        self.counts.listed.fetch_add(found.items.len() as u64, Relaxed);
        let mut largest = self.counts.largest_page.lock().unwrap();
        *largest = found.items.len().max(*largest);
        Ok(found)
    }
    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.counts.head.fetch_add(1, Relaxed);
        self.inner.head(run).await
    }
    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let before = self.counts.runs.fetch_add(1, Relaxed);
        if let Some(clock) = &self.slow {
            clock.advance(Duration::from_millis(10 + 10 * before));
        }
        self.inner.runs(query, page).await
    }
    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.counts.prune.fetch_add(1, Relaxed);
        self.inner.prune(run, cut).await
    }
    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.counts.purge.fetch_add(1, Relaxed);
        self.inner.purge(run, expected).await
    }
    fn transactions(&self) -> Option<&dyn ferrata_core::store::Transactions> {
        None
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn ferrata_core::store::Relay> {
        None
    }

    delegate! { |this| this.inner; capabilities, setup, heartbeat, is_alive, part, subscribe }
}

/// A graph that loops `of` times, with one record per round.
fn rounds(of: u64) -> Graph<Context> {
    Graph::<Context>::builder("rounds")
        .max_steps(of + 10)
        .node("round", async |cx, _s| Ok(Context::update().set("n", cx.visit().get())))
        .max_visits(u32::try_from(of + 10).unwrap())
        .node("out", async |_cx, _s| Ok(()))
        .entry("round")
        .route(
            "round",
            ["round", "out"],
            move |_s, cx| {
                if u64::from(cx.visit().get()) < of { "round" } else { "out" }
            },
        )
        .build()
        .unwrap()
}

async fn long(records: u64) -> (Arc<Counts>, Runtime) {
    let store = Counting::new();
    let counts = Arc::clone(&store.counts);
    let runtime = Runtime::builder(store).build().await.unwrap();
    let run = runtime.start(&rounds(records), Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
    counts.taken();
    (counts, runtime)
}

/// Guarantees: HISTORY-2.
#[tokio::test]
async fn history_of_ten_thousand_checkpoints_is_paged() {
    let (counts, runtime) = long(10_000).await;
    let run = key("r");
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let (mut page, mut seen, mut pages) = (Page::first(500).with_order(order), Vec::new(), 0);
        loop {
            let found = runtime.history(&run, page).await.unwrap();
            // Each page takes one call of the store, and no call reads bodies.
            assert_eq!(counts.taken(), [0, 1, 0, 0, 0]);
            assert!(found.items.len() <= 500);
            pages += 1;
            seen.extend(found.items.iter().map(|header| header.seq.get()));
            match found.next {
                Some(next) => page = Page::first(500).with_order(order).with_cursor(next),
                None => break,
            }
        }
        if order == Order::NewestFirst {
            seen.reverse();
        }
        assert_eq!(seen, (0..=10_001).collect::<Vec<_>>());
        assert_eq!(pages, 21);
    }
}

/// The cost of reading one position does not depend on the length of the run, unless the position names an activation.
///
/// Guarantees: HISTORY-2.
#[tokio::test]
async fn read_cost_is_independent_of_log_length() {
    let mut costs = Vec::new();
    for records in [500, 4_000] {
        let (counts, runtime) = long(records).await;
        let (run, graph) = (key("r"), rounds(records));
        let mut cost = Vec::new();
        runtime.state_at(&graph, &run, Position::Latest).await.unwrap();
        cost.push(counts.taken());
        runtime.state_at(&graph, &run, Seq::new(records / 2)).await.unwrap();
        cost.push(counts.taken());
        runtime.diff(&run, Seq::new(1), Seq::new(records)).await.unwrap();
        cost.push(counts.taken());
        runtime.lineage(&run).await.unwrap();
        cost.push(counts.taken());
        // The search starts at the last records.
        runtime
            .state_at(&graph, &run, format!("round@{records}").parse::<Position>().unwrap())
            .await
            .unwrap();
        cost.push(counts.taken());
        costs.push(cost);
    }
    assert_eq!(costs[0], costs[1]);
    assert_eq!(
        costs[0],
        [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [2, 0, 0, 0, 0], [0, 0, 1, 0, 0], [1, 1, 0, 0, 0]]
    );
}

/// A long log is read in segments, and each record once.
///
/// Guarantees: HISTORY-2.
#[tokio::test]
async fn reading_a_whole_log_reads_each_record_once() {
    let (counts, runtime) = long(3_000).await;
    let (run, graph) = (key("r"), rounds(3_000));
    let text = runtime.export(&run).await.unwrap();
    assert_eq!(counts.loaded.load(Relaxed), 3_002);
    assert_eq!(counts.history.load(Relaxed), 4);
    assert_eq!(text.lines().count(), 3_003);
    counts.taken();
    runtime.verify(&graph, &run).await.unwrap();
    assert_eq!(counts.loaded.load(Relaxed), 3_002);
    assert!(*counts.largest_page.lock().unwrap() <= Page::MAX as usize);
    let kinds = runtime.history(&run, Page::first(3)).await.unwrap().items;
    assert_eq!(kinds.iter().filter(|header| header.kind == RecordKind::Node).count(), 3);
}

/// A sweep uses the heads that the listing returned, reads headers once, and reads pins together with the base.
#[tokio::test]
async fn sweep_reads_headers_and_pins_once() {
    let (counts, runtime) = long(50).await;
    let policy = RetentionPolicy::keep_all().keep_last(10);
    let dry = runtime.sweep(&policy, SweepLimits::default(), true).await.unwrap();
    assert_eq!(counts.taken(), [0, 1, 0, 0, 0]);
    let done = runtime.sweep(&policy, SweepLimits::default(), false).await.unwrap();
    // The load makes the base at the cut, and returns the pins.
    assert_eq!(counts.taken(), [1, 0, 0, 0, 1]);
    assert_eq!((dry.records, dry.bytes), (done.records, done.bytes));
    assert!(done.records > 30, "{done:?}");
    // A pin is a signal, so the sweep reads the run to find the record that it protects.
    let run = key("r");
    let last = runtime.head(&run).await.unwrap().unwrap().seq.get();
    runtime.pin(&run, Seq::new(last - 5)).await.unwrap();
    counts.taken();
    let one = RetentionPolicy::keep_all().keep_last(1);
    let pinned = runtime.sweep(&one, SweepLimits::default(), true).await.unwrap();
    assert_eq!(counts.taken(), [1, 1, 0, 0, 0]);
    assert_eq!(pinned.records, 4, "of the ten retained records");
}

/// A dry run counts records beyond one page from the oldest record, and returns the same numbers as the sweep.
#[tokio::test]
async fn dry_sweep_counts_match_sweep() {
    let (_, runtime) = long(2_500).await;
    for keep in [2_400, 1_200, 10] {
        let policy = RetentionPolicy::keep_all().keep_last(keep);
        let dry = runtime.sweep(&policy, SweepLimits::default(), true).await.unwrap();
        let done = runtime.sweep(&policy, SweepLimits::default(), false).await.unwrap();
        assert_eq!((dry.records, dry.bytes), (done.records, done.bytes), "{keep} kept");
        assert!(done.records > 90, "{done:?}");
    }
}

/// With many retained records, a prune of older ones is shared by many records. It does not happen with every record.
///
/// Guarantees: RETAIN-4.
#[tokio::test]
async fn continuous_retention_costs_constant_share_per_record() {
    for keep in [16, 64] {
        let store = Counting::new();
        let counts = Arc::clone(&store.counts);
        let policy = RetentionPolicy::keep_all().keep_last(keep);
        let runtime = Runtime::builder(store).retention(policy.clone()).build().await.unwrap();
        let run = runtime.start(&rounds(2_000), Context::new()).id("r").await.unwrap();
        run.wait().await.unwrap();
        let prunes = counts.prune.load(Relaxed);
        let looks = 2_002 / u64::from(keep);
        assert!(prunes <= looks, "{prunes} prunes, {looks} at most");
        assert!(prunes >= looks / 4, "{prunes} prunes of {looks}");
        // A prune reads the headers that are retained, and those dropped since the last one.
        assert!(counts.listed.load(Relaxed) <= looks * 1_000);
        assert!(counts.load.load(Relaxed) <= 2 * looks + 2, "{:?} loads", counts.load);
    }
}

#[tokio::test]
async fn sweep_without_work_reads_no_bodies() {
    let (counts, runtime) = long(50).await;
    let policy = RetentionPolicy::keep_all().keep_last(100);
    let report = runtime.sweep(&policy, SweepLimits::default(), false).await.unwrap();
    assert_eq!((report.runs, report.pruned), (1, 0));
    // The head contains the number of records.
    assert_eq!(counts.taken(), [0, 0, 0, 0, 0]);
    let young = RetentionPolicy::keep_all()
        .purge_after(ferrata_core::record::RunStatus::Completed, Duration::from_secs(60));
    runtime.sweep(&young, SweepLimits::default(), false).await.unwrap();
    assert_eq!(counts.taken()[0], 0);
}

const DAY: Duration = Duration::from_secs(86_400);

/// A process with 250 runs to sweep, which are three pages. Their listings take 10 ms, 20 ms and 30 ms.
async fn three_pages() -> (Arc<ManualClock>, Arc<Counts>, Runtime) {
    let store = Counting::new();
    let starter = Runtime::builder(store.inner.clone()).build().await.unwrap();
    for run in 0..250 {
        starter.start(&rounds(1), Context::new()).id(format!("r{run}")).await.unwrap().wait().await.unwrap();
    }
    let (clock, counts) = (Arc::new(ManualClock::default()), Arc::clone(&store.counts));
    let store = Counting { slow: Some(Arc::clone(&clock)), ..store };
    let builder = Runtime::builder(store).clock(Arc::clone(&clock) as _).heartbeat_ttl(DAY);
    let runtime = builder.build().await.unwrap();
    // The heartbeat sleeps for longer than any pause of the sweep.
    clock.until_sleepers(1).await;
    counts.taken();
    (clock, counts, runtime)
}

/// Waits until the sweep pauses, and ends the pause. Returns the length of the pause.
async fn rested(clock: &ManualClock) -> Duration {
    loop {
        clock.until_sleepers(2).await;
        match clock.advance_to_next_sleeper() {
            Some(rest) if !rest.is_zero() => return rest,
            // The previous pause has ended, and the sweep has not noticed yet.
            _ => tokio::task::yield_now().await,
        }
    }
}

/// No pause follows the last page, and the pauses of a sweep in parts equal those of one sweep.
///
/// Guarantees: RETAIN-6.
#[tokio::test]
async fn nice_sweep_rests_in_proportion_to_page_time() {
    const MS: Duration = Duration::from_millis(1);
    let (clock, counts, runtime) = three_pages().await;
    let policy = RetentionPolicy::keep_all().keep_last(1_000);
    let cases = [
        (0.0, vec![]),
        (0.5, vec![5 * MS, 10 * MS]),
        (1.0, vec![10 * MS, 20 * MS]),
        (SweepLimits::MAX_NICE_RATIO, vec![1_000 * MS, 2_000 * MS]),
    ];
    for ((ratio, rests), runs) in cases.iter().flat_map(|case| [(case, 1_000), (case, 100)]) {
        counts.taken();
        let begun = clock.monotonic();
        let sweep = async {
            let (mut limits, mut looked) =
                (SweepLimits::default().with_runs(runs).with_nice_ratio(*ratio), 0);
            loop {
                let report = runtime.sweep(&policy, limits.clone(), false).await.unwrap();
                looked += report.runs;
                let Some(next) = report.next else { return looked };
                limits = limits.with_cursor(next);
            }
        };
        let waits = async {
            for rest in rests {
                assert_eq!(rested(&clock).await, *rest, "ratio {ratio}, {runs} runs");
            }
        };
        let (looked, ()) = tokio::join!(sweep, waits);
        assert_eq!((looked, clock.sleepers()), (250, 1), "ratio {ratio}, {runs} runs");
        assert_eq!(clock.monotonic() - begun, 60 * MS + rests.iter().sum::<Duration>());
    }
}

/// A sweep with an invalid ratio is refused before any store call.
///
/// Guarantees: RETAIN-6.
#[tokio::test]
async fn sweep_refuses_invalid_nice_ratio() {
    let (_, counts, runtime) = three_pages().await;
    for ratio in [-0.1, 100.1, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let limits = SweepLimits::default().with_nice_ratio(ratio);
        let error = runtime.sweep(&RetentionPolicy::keep_all(), limits, true).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("use 0 to 100"), "{error}");
    }
    assert_eq!(counts.runs.load(Relaxed), 0);
}

/// If the caller drops the sweep during a pause, the sweep continues.
///
/// Guarantees: RETAIN-6.
#[tokio::test]
async fn sweep_continues_after_caller_is_dropped() {
    let (clock, counts, runtime) = three_pages().await;
    let (policy, limits) = (RetentionPolicy::keep_all().keep_last(1), SweepLimits::gentle());
    tokio::select! {
        biased;
        () = clock.until_sleepers(2) => {}
        report = runtime.sweep(&policy, limits, false) => panic!("the sweep did not pause: {report:?}"),
    }
    assert_eq!((counts.runs.load(Relaxed), counts.prune.load(Relaxed)), (1, 100));
    for _ in 0..2 {
        rested(&clock).await;
    }
    while counts.prune.load(Relaxed) < 250 {
        tokio::task::yield_now().await;
    }
    assert_eq!((counts.runs.load(Relaxed), clock.sleepers()), (3, 1));
}
