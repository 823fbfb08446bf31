//! Pruning does not change retained records: for every cut and every later record, the fold is equal.

use std::sync::Arc;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Checkpoint, RetentionPolicy, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{At, CheckpointStore, MemoryStore, Removed};
use ferrata_core::{RunKey, Seq};
use ferrata_testing::{FaultPlan, FaultStore};

use super::chance::Chance;
use super::random_runs::{Log, RandomRun, end, key, last, records};
use super::seeds;

/// Drops all records before `seq`.
pub(crate) async fn cut_at(store: &MemoryStore, run: &RunKey, seq: u64) {
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let keep = last(store, run).await - seq + 1;
    let policy = RetentionPolicy::keep_all().keep_last(u32::try_from(keep).unwrap());
    runtime.apply_retention(run, &policy).await.unwrap();
    assert_eq!(store.head(run).await.unwrap().unwrap().first, Seq::new(seq));
}

/// The whole run as of a record, encoded like the base that a prune writes there. It contains the complete state and machine.
async fn fold(store: &MemoryStore, run: &RunKey, seq: u64) -> Vec<u8> {
    cut_at(store, run, seq).await;
    let base = store.load(run, At::Seq(Seq::new(seq))).await.unwrap().unwrap();
    assert_eq!(base.len(), 1);
    base[0].body.to_vec()
}

/// A checkpoint without the data that only records before the cut contain.
fn after_cut(mut checkpoint: Checkpoint, cut: u64) -> serde_json::Value {
    checkpoint.input = None;
    checkpoint.gates.clear();
    for past in &mut checkpoint.history {
        // The record at the cut is retained with its data.
        if past.index.is_none_or(|index| index.get() < cut) {
            (past.attempts, past.took_ms, past.at, past.index) = (None, None, None, None);
            (past.notes, past.failure) = (None, None);
            past.led_to.clear();
        }
        past.effect = None;
    }
    checkpoint.diagnostics.clear();
    checkpoint.results.clear();
    serde_json::to_value(&checkpoint).unwrap()
}

/// Guarantees: RETAIN-1.
#[tokio::test]
async fn folding_after_a_prune_equals_folding_before() {
    for seed in seeds(30) {
        let random_run = RandomRun::of(seed);
        let mut chance = Chance::new(seed);
        let store = random_run.live().await;
        let run = key("r");
        let end = last(&store, &run).await;
        let log = Log::of(&store, &run).await;
        let whole = Runtime::builder(store.clone()).build().await.unwrap();
        let (mut told, mut folds) = (Vec::new(), Vec::new());
        for seq in 0..=end {
            told.push(whole.checkpoint(&run, Seq::new(seq)).await.unwrap());
            folds.push(fold(&log.as_of(end).await, &run, seq).await);
        }
        for cut in 0..=end {
            let small = log.as_of(end).await;
            cut_at(&small, &run, cut).await;
            let runtime = Runtime::builder(small.clone()).build().await.unwrap();
            let seq = cut + chance.below(usize::try_from(end - cut + 1).unwrap()) as u64;
            for seq in [seq, cut] {
                let label = format!("seed {seed}, cut at {cut} of {end}, folded at {seq}");
                let place = usize::try_from(seq).unwrap();
                let after = runtime.checkpoint(&run, Seq::new(seq)).await.unwrap();
                assert_eq!(after_cut(after, cut), after_cut(told[place].clone(), cut), "{label}");
            }
            // This operation prunes the log, too.
            assert!(
                fold(&small, &run, seq).await == folds[usize::try_from(seq).unwrap()],
                "seed {seed}, cut at {cut} of {end}, then at {seq}"
            );
        }
    }
}

/// A run that is pruned at any point while it is active has the same end.
///
/// Guarantees: RETAIN-1.
#[tokio::test]
async fn run_reaches_same_end_after_any_prune() {
    for seed in seeds(40) {
        let random_run = RandomRun::of(seed);
        let mut chance = Chance::new(seed ^ 7);
        let store = random_run.live().await;
        let run = key("r");
        let graph = random_run.graph();
        let to = last(&store, &run).await;
        let log = Log::of(&store, &run).await;
        for _ in 0..6 {
            let at = chance.below(usize::try_from(to).unwrap()) as u64;
            let mut ends = Vec::new();
            for cut in [None, Some(chance.below(usize::try_from(at + 1).unwrap()) as u64)] {
                let world = log.as_of(at).await;
                if let Some(cut) = cut {
                    cut_at(&world, &run, cut).await;
                }
                let runtime = random_run.process(&world, 2).await;
                let handle = runtime.resume(&graph, "r").take_over().checkpoints(random_run.policy).await;
                let handle = handle.unwrap_or_else(|error| panic!("seed {seed}, {at}, {cut:?}: {error}"));
                ends.push(end(random_run.go_on(&[&runtime], &graph, handle, false).await));
            }
            assert_eq!(ends[0], ends[1], "seed {seed}: as of {at}");
        }
    }
}

/// A prune that read a purged run must not prune the run that was restarted with its id, and reports no error of the caller.
#[tokio::test]
async fn prune_spares_restarted_run() {
    let (memory, run) = (MemoryStore::new(), key("r"));
    let store = Arc::new(FaultStore::new(memory.clone(), FaultPlan::new()));
    let (there, here) = (Runtime::builder(memory.clone()), Runtime::builder(Arc::clone(&store)));
    let (there, here) = (there.build().await.unwrap(), here.build().await.unwrap());
    let mut graph = Graph::<Context>::builder("g").node("n0", async |_cx, s| Ok(s)).entry("n0");
    for at in 1..8 {
        let (from, to) = (format!("n{}", at - 1), format!("n{at}"));
        graph = graph.node(to.clone(), async |_cx, s| Ok(s)).edge(from, to);
    }
    let graph = graph.build().unwrap();
    there.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    let (end, purger, named) = (last(&memory, &run).await, there.clone(), run.clone());
    store.before(store.operations(), async move {
        purger.purge(&named).await.unwrap();
        purger.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    });
    let policy = RetentionPolicy::keep_all().keep_last(2);
    assert_eq!(here.apply_retention(&run, &policy).await.unwrap(), Removed::default());
    let head = memory.head(&run).await.unwrap().unwrap();
    assert_eq!((head.first.get(), head.seq.get()), (0, end));
}

/// Retention is checked even for a run that becomes idle after a few records.
///
/// Guarantees: RETAIN-4.
#[tokio::test]
async fn log_of_often_idle_run_stays_small() {
    for messages_at_a_time in [1, 2, 3] {
        let store = MemoryStore::new();
        let policy = RetentionPolicy::keep_all().keep_last(16);
        let runtime = Runtime::builder(store.clone()).retention(policy).build().await.unwrap();
        let hears = async |cx: NodeContext, mut s: Draft<Context>| {
            s.set("heard", cx.receive::<u32>().await?)?;
            Ok(s)
        };
        let graph = Graph::<Context>::builder("hears")
            .node("hears", hears)
            .max_visits(10_000)
            .max_steps(10_000)
            .entry("hears")
            .edge("hears", "hears")
            .build()
            .unwrap();
        let run = key("r");
        let mut most = 0;
        runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
        for _ in 0..100 {
            for message in 0..messages_at_a_time {
                runtime.send(&run, message).await.unwrap();
            }
            runtime.resume(&graph, "r").await.unwrap().wait().await.unwrap();
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            most = most.max(records(&store, &run).await.len());
        }
        let last = last(&store, &run).await;
        assert!(last > 300, "{last}");
        assert!(most < 80, "{messages_at_a_time} at a time: it had {most} of {last} records");
    }
}
