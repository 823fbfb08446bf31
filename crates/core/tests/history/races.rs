//! Retention concurrent with other operations: no data is lost, no record is dropped twice, and no reader sees a gap.
//!
//! At every call of the store, a seed chooses the next task. The clock stands still, because timed work would also draw numbers and make a seed
//! unrepeatable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RetentionPolicy, Runtime, RuntimeBuilder, SweepLimits, SweepReport};
use ferrata_core::state::{Context, Draft, Reducer};
use ferrata_core::store::{CheckpointStore, MemoryStore, Order, Page, RunQuery, delegate};
use ferrata_core::{ErrorKind, Seq};
use ferrata_testing::ManualClock;

use super::chance::Chance;
use super::random_runs::{key, records};
use super::seeds;

async fn turns(many: usize) {
    for _ in 0..many {
        tokio::task::yield_now().await;
    }
}

/// A store that yields at random before and after each call.
#[derive(Clone, Debug)]
struct Jittery {
    inner: MemoryStore,
    chance: Arc<Mutex<Chance>>,
}

impl Jittery {
    fn new(seed: u64) -> Self {
        let inner = MemoryStore::with_clock(Arc::new(ManualClock::default()));
        Self { inner, chance: Arc::new(Mutex::new(Chance::new(seed))) }
    }

    async fn turn(&self) {
        let many = self.chance.lock().unwrap().below(6);
        turns(many).await;
    }

    async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        self.turn().await;
        let result = call.await;
        self.turn().await;
        result
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Jittery {
    fn transactions(&self) -> Option<&dyn ferrata_core::store::Transactions> {
        None
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn ferrata_core::store::Relay> {
        None
    }

    delegate! { |this| this.inner; capabilities, setup, heartbeat, part, subscribe }
    delegate! {
        |this| this.inner, |call| this.around(call);
        append, load, load_since, headers, head, runs, prune, purge, is_alive
    }
}

/// A graph that loops `of` times and records each round. Its log has several bases.
pub(crate) fn rounds(of: u32) -> Graph<Context> {
    Graph::<Context>::builder("rounds")
        .channel("seen", Reducer::Append)
        .max_steps(10_000)
        .node("round", async |cx, _s| {
            let text = "x".repeat(600);
            Ok(Context::update().append("seen", [cx.visit().get()]).set("text", text))
        })
        .max_visits(10_000)
        .node("out", async |_cx, _s| Ok(()))
        .entry("round")
        .route("round", ["round", "out"], move |_s, cx| if cx.visit().get() < of { "round" } else { "out" })
        .build()
        .unwrap()
}

/// A process whose clock stands still.
fn still(store: &Jittery) -> RuntimeBuilder {
    Runtime::builder(store.clone()).clock(Arc::new(ManualClock::default()))
}

async fn process(store: &Jittery) -> Runtime {
    still(store).build().await.unwrap()
}

fn keep(last: u32) -> RetentionPolicy {
    RetentionPolicy::keep_all().keep_last(last)
}

/// Sweeps until a complete sweep finds nothing to do after `over` reports that all writers are done.
async fn sweep_on(runtime: &Runtime, policy: RetentionPolicy, over: &Mutex<bool>) -> (u64, u64) {
    let (mut records, mut purged) = (0, 0);
    loop {
        let last = *over.lock().unwrap();
        let report = sweep(runtime, &policy).await;
        records += report.records;
        purged += report.purged;
        if last {
            return (records, purged);
        }
    }
}

async fn sweep(runtime: &Runtime, policy: &RetentionPolicy) -> SweepReport {
    let report = runtime.sweep(policy, SweepLimits::default(), false).await.unwrap();
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    report
}

/// Checks that no retained record is missing, and that every state is that of its round.
async fn check_whole(store: &Jittery, label: &str) {
    let run = key("r");
    let head = store.inner.head(&run).await.unwrap().unwrap();
    let kept = records(&store.inner, &run).await;
    assert_eq!(kept[0].header.seq, head.first, "{label}");
    assert!(kept[0].header.base, "{label}");
    for pair in kept.windows(2) {
        assert_eq!(pair[1].header.prev, Some(pair[0].header.id), "{label}: a record is missing");
    }
    let runtime = Runtime::builder(store.inner.clone()).build().await.unwrap();
    for record in &kept {
        let seen = runtime.checkpoint(&run, record.header.seq).await.unwrap();
        let rounds = u64::from(seen.visited.get("round").copied().unwrap_or_default());
        let done = seen.history.iter().filter(|past| past.node.as_str() == "round").count();
        assert!(done as u64 == rounds || done as u64 + 1 == rounds, "{label}");
        let noted = seen.state["seen"].as_array().map_or(0, Vec::len);
        assert_eq!(noted, done, "{label}: at {}", record.header.seq);
    }
}

/// One process prunes its active run, others sweep the same store, and one cuts at the same record repeatedly.
///
/// Guarantees: RETAIN-4.
#[tokio::test]
async fn active_run_survives_concurrent_prunes() {
    for seed in seeds(60) {
        let label = format!("seed {seed}");
        let store = Jittery::new(seed);
        let graph = rounds(60);
        let small = seed % 2 == 0;
        let builder = still(&store);
        let builder = if small { builder.retention(keep(16)) } else { builder };
        let driving = builder.build().await.unwrap();
        let (one, two, three) = (process(&store).await, process(&store).await, process(&store).await);
        let run = driving.start(&graph, Context::new()).id("r").await.unwrap();
        let over = Mutex::new(false);
        let (end, first, second, third) = tokio::join!(
            async {
                let end = run.wait().await.unwrap();
                *over.lock().unwrap() = true;
                end
            },
            sweep_on(&one, keep(5), &over),
            sweep_on(&two, keep(9), &over),
            async {
                let mut dropped = 0;
                while !*over.lock().unwrap() {
                    dropped += three.apply_retention(&key("r"), &keep(2)).await.unwrap().records;
                }
                dropped
            },
        );
        let Outcome::Completed(state) = end else { panic!("{label}: {end:?}") };
        let seen: Vec<u32> = state.get("seen").unwrap().unwrap();
        assert_eq!(seen, (1..=60).collect::<Vec<_>>(), "{label}");
        check_whole(&store, &label).await;
        let head = store.inner.head(&key("r")).await.unwrap().unwrap();
        // Each dropped record was counted by exactly one of the callers.
        let dropped = first.0 + second.0 + third;
        let gone = head.first.get();
        assert!(gone > 0, "{label}");
        if small {
            assert!(dropped <= gone, "{label}: {dropped} of {gone}");
        } else {
            assert_eq!(dropped, gone, "{label}");
        }
    }
}

/// A fork needs its source record only until its first record is written completely.
///
/// Guarantees: FORK-2.
#[tokio::test]
async fn fork_is_atomic_while_source_is_purged() {
    let (mut made, mut refused) = (0, 0);
    for seed in seeds(80) {
        let label = format!("seed {seed}");
        let store = Jittery::new(seed);
        let graph = rounds(30);
        let (one, two) = (process(&store).await, process(&store).await);
        one.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
        let mut chance = Chance::new(seed ^ 11);
        let at = 2 + chance.below(28) as u64;
        let (late, wait) = (chance.below(24), chance.below(24));
        let purges = seed % 3 == 0;
        let fork = async {
            turns(late).await;
            two.fork(&key("r"), Seq::new(at)).id("f").drive(&graph).await
        };
        let (forked, ()) = tokio::join!(fork, async {
            turns(wait).await;
            match purges {
                true => assert!(one.purge(&key("r")).await.unwrap().records > 0),
                false => assert!(one.apply_retention(&key("r"), &keep(3)).await.unwrap().records > 0),
            }
        },);
        match forked {
            Ok(fork) => {
                let state = fork.wait().await.unwrap().completed().unwrap();
                let seen: Vec<u32> = state.get("seen").unwrap().unwrap();
                assert_eq!(seen, (1..=30).collect::<Vec<_>>(), "{label}");
                made += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{label}: {error}");
                assert!(
                    store.inner.head(&key("f")).await.unwrap().is_none(),
                    "{label}: the fork is incomplete"
                );
                refused += 1;
            }
        }
    }
    assert!(made >= 10 && refused >= 10, "made {made}, refused {refused}");
}

/// Two sweeps and a purge by hand: each run is removed and counted once.
///
/// Guarantees: RETAIN-5.
#[tokio::test]
async fn concurrent_sweeps_count_each_removed_run_once() {
    for seed in seeds(40) {
        let label = format!("seed {seed}");
        let store = Jittery::new(seed);
        let graph = rounds(3);
        let (one, two) = (process(&store).await, process(&store).await);
        let mut written = 0;
        for id in 0..12 {
            let run = one.start(&graph, Context::new()).id(format!("r{id}")).await.unwrap();
            run.wait().await.unwrap();
            written += one.head(run.run()).await.unwrap().unwrap().seq.get() + 1;
        }
        let policy = RetentionPolicy::keep_all().purge_after(RunStatus::Completed, Duration::ZERO);
        let (first, second, by_hand) = tokio::join!(sweep(&one, &policy), sweep(&two, &policy), async {
            let mut purged = (0, 0);
            for id in [11, 5, 0] {
                let gone = two.purge(&key(&format!("r{id}"))).await.unwrap();
                purged = (purged.0 + u64::from(gone.records > 0), purged.1 + gone.records);
            }
            purged
        });
        assert_eq!(first.purged + second.purged + by_hand.0, 12, "{label}");
        assert_eq!(first.records + second.records + by_hand.1, written, "{label}");
        let left = store.inner.runs(&RunQuery::default(), Page::first(100)).await.unwrap().items;
        assert!(left.is_empty(), "{label}");
    }
}

/// A reader of a whole log during a prune gets the retained records without a gap. Otherwise an export would join two separate parts, and a
/// verification would report a false difference.
///
/// Guarantees: HISTORY-3.
#[tokio::test]
async fn reading_log_during_prune_finds_no_gap() {
    let mut cut_short = 0;
    for seed in seeds(80) {
        let label = format!("seed {seed}");
        let store = Jittery::new(seed);
        let graph = rounds(120);
        let (one, two) = (process(&store).await, process(&store).await);
        one.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
        let run = key("r");
        let bases = one.history(&run, Page::first(1_000)).await.unwrap().items;
        assert!(bases.iter().filter(|header| header.base).count() > 2, "{label}");
        let mut chance = Chance::new(seed ^ 13);
        let (wait, cuts) =
            (chance.below(2), [110 - chance.below(20), 80 - chance.below(20), 50 - chance.below(20), 10]);
        let (text, verified, told, ()) = tokio::join!(
            two.export(&run),
            two.verify(&graph, &run),
            two.checkpoint(&run, ferrata_core::runtime::Position::Latest),
            async {
                for cut in cuts {
                    turns(wait).await;
                    one.apply_retention(&run, &keep(u32::try_from(cut).unwrap())).await.unwrap();
                }
            },
        );
        let (text, verified) = (text.unwrap(), verified.unwrap());
        assert!(verified.divergence.is_none(), "{label}: {}", verified.divergence.unwrap());
        assert_eq!(told.unwrap().history.len(), 121, "{label}");
        let lines: Vec<serde_json::Value> =
            text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        for pair in lines.windows(2) {
            assert_eq!(
                pair[1]["h"]["prev"], pair[0]["h"]["id"],
                "{label}: a record is missing in the export"
            );
        }
        cut_short += u32::from(lines[0]["h"]["seq"] != 0);
        one.import(&text, Some(key("copy"))).await.unwrap();
        let copy = one.state_at(&graph, &key("copy"), Seq::new(lines.len() as u64 - 1)).await.unwrap();
        assert_eq!(copy.get::<Vec<u32>>("seen").unwrap().unwrap().len(), 120, "{label}");
    }
    // Holds for other seeds, too: about one export in six is cut short.
    assert!(cut_short >= 3, "only {cut_short} exports were cut short");
}

/// A writer of a purged run is refused in the restarted run, whoever purged it, at any time.
///
/// Guarantees: DURABLE-4, PURGE-2.
#[tokio::test]
async fn reused_id_refuses_writers_of_purged_run() {
    for seed in seeds(40) {
        let label = format!("seed {seed}");
        let store = Jittery::new(seed);
        let graph = rounds(40);
        let (one, two) = (process(&store).await, process(&store).await);
        let old = one.start(&graph, Context::new()).id("r").await.unwrap();
        let mut input = Context::new();
        input.set("new", true).unwrap();
        let (lost, new) = tokio::join!(old.wait(), async {
            turns(Chance::new(seed).below(200)).await;
            // Another process drives the run, so the purge is allowed here.
            two.purge(&key("r")).await.unwrap();
            // No other caller starts the run again.
            two.start(&graph, input).id("r").await.unwrap().wait().await.unwrap()
        });
        let Outcome::Completed(state) = new else { panic!("{label}: {new:?}") };
        assert_eq!(state.get::<bool>("new").unwrap(), Some(true), "{label}");
        assert_eq!(state.get::<Vec<u32>>("seen").unwrap().unwrap(), (1..=40).collect::<Vec<_>>(), "{label}");
        if let Err(error) = &lost {
            let refused = [ErrorKind::NotFound, ErrorKind::Fenced, ErrorKind::Conflict];
            assert!(refused.contains(&error.kind()), "{label}: {error}");
        }
        check_whole(&store, &label).await;
    }
}

/// Guarantees: HISTORY-3.
#[tokio::test]
async fn listing_history_during_prune_finds_no_gap() {
    for seed in seeds(40) {
        let store = Jittery::new(seed);
        let graph = rounds(80);
        let (one, two) = (process(&store).await, process(&store).await);
        one.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
        let run = key("r");
        let (listed, ()) = tokio::join!(
            async {
                let (mut page, mut seen) = (Page::first(7).with_order(Order::NewestFirst), Vec::new());
                loop {
                    let found = two.history(&run, page).await.unwrap();
                    seen.extend(found.items.iter().map(|header| header.seq.get()));
                    match found.next {
                        Some(next) => page = Page::first(7).with_order(Order::NewestFirst).with_cursor(next),
                        None => return seen,
                    }
                }
            },
            async {
                for cut in [60, 30, 10] {
                    one.apply_retention(&run, &keep(cut)).await.unwrap();
                }
            },
        );
        for pair in listed.windows(2) {
            assert_eq!(pair[0], pair[1] + 1, "seed {seed}");
        }
        assert!(listed.len() >= 10, "seed {seed}");
    }
}

/// A sweep must not purge a failed run after a retry was acknowledged, because a new start of the id would repeat all work.
///
/// Guarantees: PURGE-3.
#[tokio::test]
async fn sweep_never_removes_acknowledged_retry() {
    let (mut swept, mut kept) = (0, 0);
    for seed in seeds(60) {
        let store = Jittery::new(seed);
        let (one, two) = (process(&store).await, process(&store).await);
        let broken = Arc::new(AtomicBool::new(true));
        let graph = {
            let broken = Arc::clone(&broken);
            let node = move |_cx: NodeContext, s: Draft<Context>| {
                let broken = broken.load(Ordering::Relaxed);
                async move { if broken { Err("broken".into()) } else { Ok(s) } }
            };
            Graph::<Context>::builder("mended").node("n", node).entry("n").build().unwrap()
        };
        let run = one.start(&graph, Context::new()).id("r").await.unwrap();
        assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
        broken.store(false, Ordering::Relaxed);
        let policy = RetentionPolicy::keep_all().purge_after(RunStatus::Failed, Duration::ZERO);
        let late = Chance::new(seed ^ 19).below(24);
        let retry = async {
            turns(late).await;
            one.retry(&key("r")).await
        };
        let (report, retried) = tokio::join!(sweep(&two, &policy), retry);
        match (report.purged, retried) {
            (1, Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "seed {seed}: {error}");
                assert!(one.head(&key("r")).await.unwrap().is_none(), "seed {seed}");
                swept += 1;
            }
            (0, Ok(())) => {
                let handle = one.resume(&graph, "r").await.unwrap();
                assert!(matches!(handle.wait().await.unwrap(), Outcome::Completed(_)), "seed {seed}");
                kept += 1;
            }
            (purged, retried) => panic!("seed {seed}: {purged} purged, retried: {retried:?}"),
        }
    }
    assert!(swept > 5 && kept > 5, "{swept} purged by the sweep, {kept} kept");
}
