//! `verify` accepts every run with an unchanged graph, and finds the record where a changed graph differs.

use ferrata_core::ask::Answer;
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Graph, Join};
use ferrata_core::runtime::{Outcome, Position, Runtime};
use ferrata_core::state::{Context, Draft, Op, Patch, Reducer};
use ferrata_core::store::MemoryStore;
use ferrata_testing::verify_golden;

use super::chance::Chance;
use super::prunes::cut_at;
use super::random_runs::{Change, Log, RandomRun, key, last};
use super::seeds;

async fn plain(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).build().await.unwrap()
}

/// Guarantees: VERIFY-1.
#[tokio::test]
async fn an_unchanged_graph_never_parts_from_its_runs() {
    let mut checked = 0;
    for seed in seeds(120) {
        let random_run = RandomRun::of(seed);
        let store = random_run.live().await;
        let (run, graph, runtime) = (key("r"), random_run.graph(), plain(&store).await);
        let whole = runtime.verify(&graph, &run).await.unwrap();
        assert!(whole.divergence.is_none(), "seed {seed}: {}", whole.divergence.unwrap());
        checked += whole.checked;
        runtime.check_log(&run).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let golden = runtime.export(&run).await.unwrap();
        assert_eq!(verify_golden(&graph, &golden).await.unwrap(), whole, "seed {seed}");
        let to = last(&store, &run).await;
        let cut = Chance::new(seed).below(usize::try_from(to + 1).unwrap()) as u64;
        cut_at(&store, &run, cut).await;
        let small = runtime.verify(&graph, &run).await.unwrap();
        assert!(small.divergence.is_none(), "seed {seed}, cut at {cut}: {}", small.divergence.unwrap());
        assert_eq!(small.records, to - cut + 1, "seed {seed}");
        let checked = runtime.check_log(&run).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!((checked.records, checked.first.get()), (to - cut + 1, cut), "seed {seed}");
    }
    assert!(checked > 1_000, "only {checked} activations");
}

/// Guarantees: VERIFY-2.
#[tokio::test]
async fn verification_finds_changed_graph_at_every_frequency() {
    let frequencies = [
        CheckpointFrequency::EveryNode,
        CheckpointFrequency::EveryNth(2.try_into().unwrap()),
        CheckpointFrequency::StatusChangeOnly,
    ];
    let mut found = [0; 4];
    for seed in seeds(40) {
        for frequency in frequencies {
            let mut random_run = RandomRun::of(seed);
            random_run.policy = CheckpointPolicy::default().with_frequency(frequency);
            let store = random_run.live().await;
            let runtime = plain(&store).await;
            let run = key("r");
            for (at, change) in
                [Change::Route, Change::Reducer, Change::Frontier, Change::Gone].into_iter().enumerate()
            {
                let verified = runtime.verify(&random_run.changed(change), &run).await.unwrap();
                let label = format!("seed {seed}, {frequency:?}, {change:?}");
                let Some(divergence) = verified.divergence else {
                    // If a record contains several activations, only the last is verified. A node that shares a record may have appended nothing.
                    let coarse = frequency != CheckpointFrequency::EveryNode;
                    let logs = runtime.checkpoint(&run, Position::Latest).await.unwrap();
                    let silent = change == Change::Reducer && logs.state.get("log").is_none();
                    assert!(silent || coarse && change != Change::Gone, "{label}");
                    continue;
                };
                found[at] += 1;
                let words = match change {
                    Change::Route => "turn",
                    Change::Reducer => "the channel `log`",
                    Change::Frontier => "n0",
                    _ => "end",
                };
                assert!(divergence.to_string().contains(words), "{label}: {divergence}");
            }
        }
    }
    assert!(found.iter().all(|found| *found >= 40), "{found:?}");
}

/// The state between the activations of one record is unknown. Removed nodes and edges are still found.
///
/// Guarantees: VERIFY-2.
#[tokio::test]
async fn verification_finds_removed_node_inside_coarse_record() {
    let chain = |order: &[&str]| {
        let mut builder = Graph::<Context>::builder("chain").entry(order[0]);
        for node in order {
            builder = builder.node(*node, async |_cx, _s| Ok(()));
        }
        for pair in order.windows(2) {
            builder = builder.edge(pair[0], pair[1]);
        }
        builder.build().unwrap()
    };
    let graph = chain(&["a", "b", "c", "d", "e"]);
    let store = MemoryStore::new();
    let runtime = plain(&store).await;
    let policy = CheckpointPolicy::default().with_frequency(CheckpointFrequency::StatusChangeOnly);
    runtime.start(&graph, Context::new()).id("r").checkpoints(policy).await.unwrap().wait().await.unwrap();
    let same = runtime.verify(&graph, &key("r")).await.unwrap();
    assert_eq!((same.checked, same.unchecked, same.divergence), (1, 4, None));
    for (order, node, says) in [
        (&["a", "b", "d", "e"][..], "b", "the node led to c, and no edge leads there today"),
        (&["a", "c", "b", "d", "e"], "a", "the node led to b, and no edge leads there today"),
        (&["a"], "a", "the node led to b, and no edge leads there today"),
        (&["x"], "", "the run started at a, and today would start at x"),
        (&["a", "x", "b"], "a", "the node led to b, and no edge leads there today"),
    ] {
        let found = runtime.verify(&chain(order), &key("r")).await.unwrap().divergence.unwrap();
        assert_eq!(found.node.as_ref().map_or("", |node| node.as_str()), node, "{found}");
        assert!(found.what.contains(says), "{found}");
    }
}

/// A run that stopped after a node and continued took the same path as a graph without the stop. A graph with an additional stop differs, because the
/// log contains no such stop.
#[tokio::test]
async fn stops_are_no_other_way() {
    let build = |stops: bool| {
        let graph = Graph::<Context>::builder("stops").node("a", async |_cx, _s| Ok(()));
        let graph = if stops { graph.interrupt_after() } else { graph };
        graph.node("b", async |_cx, _s| Ok(())).entry("a").edge("a", "b").build().unwrap()
    };
    for (then, today, differs) in
        [(true, false, None), (true, true, None), (false, true, Some("waits for an approval"))]
    {
        let store = MemoryStore::new();
        let runtime = plain(&store).await;
        let run = runtime.start(&build(then), Context::new()).id("r").await.unwrap();
        if let Outcome::Interrupted(questions) = run.wait().await.unwrap() {
            runtime.respond(&key("r"), &questions[0].id, Answer::accept(true).unwrap()).await.unwrap();
            runtime.resume(&build(false), "r").await.unwrap().wait().await.unwrap();
        }
        let found = runtime.verify(&build(today), &key("r")).await.unwrap().divergence;
        assert_eq!(found.is_some(), differs.is_some(), "{then} {today}: {found:?}");
        assert!(found.is_none_or(|found| found.what.contains(differs.unwrap_or_default())));
    }
}

/// A run with features that the random runs lack: joins that do not wait, missed goals, approvals, and a retried failure.
///
/// Guarantees: VERIFY-1.
#[tokio::test]
async fn verification_passes_for_every_graph_feature() {
    let build = |goal: u32| {
        Graph::<Context>::builder("all")
            .channel("log", Reducer::Append)
            .node("split", async |_cx, _s| Ok(()))
            .node("a", async |_cx, _s| Ok(()))
            .node("b", async |_cx, _s| Ok(()))
            .node("c", async |_cx, _s| Ok(()))
            .node("any", async |_cx, _s| Ok(Context::update().append("log", ["any"])))
            .join(Join::Any)
            .max_visits(20)
            .node("two", async |_cx, _s| Ok(Context::update().append("log", ["two"])))
            .join(Join::AtLeast(2.try_into().unwrap()))
            .node("draft", async |cx, _s| Ok(Context::update().set("draft", cx.visit().get())))
            .interrupt_after()
            .max_visits(20)
            .node("fails", async |_cx, s: Draft<Context>| match s.get::<bool>("mended") {
                Ok(Some(true)) => Ok(s),
                _ => Err("not mended".into()),
            })
            .node("goal", async |_cx, _s| Ok(()))
            .interrupt_before()
            .goal_gate(move |s| s.get::<u32>("draft").ok().flatten() >= Some(goal))
            .retry_target("draft")
            .max_visits(20)
            .entry("split")
            .edge("split", ["a", "b", "c"])
            .edge(["a", "b", "c"], "any")
            .edge(["a", "b", "c"], "two")
            .edge("two", "draft")
            .when(|s| s.get::<bool>("never").ok().flatten().is_none())
            .edge("two", "fails")
            .otherwise()
            .edge("draft", "fails")
            .edge("fails", "goal")
            .build()
            .unwrap()
    };
    let graph = build(3);
    let store = MemoryStore::new();
    let runtime = plain(&store).await;
    let run = key("r");
    let mut handle = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    for turn in 0.. {
        assert!(turn < 50, "the run does not end");
        match handle.wait().await.unwrap() {
            Outcome::Interrupted(questions) => {
                let agreed = Answer::accept(true).unwrap();
                for question in questions {
                    runtime.respond(&run, &question.id, agreed.clone()).await.unwrap();
                }
            }
            Outcome::Failed { .. } => {
                let mended = Patch::from_ops(&[Op::Set("mended".into(), true.into())]).unwrap();
                runtime.edit(&run, mended).check_with(&graph).await.unwrap();
                runtime.retry(&run).await.unwrap();
            }
            Outcome::Completed(_) => break,
            outcome => panic!("{outcome:?}"),
        }
        handle = runtime.resume(&graph, "r").await.unwrap();
    }
    let whole = runtime.verify(&graph, &run).await.unwrap();
    assert!(whole.divergence.is_none(), "{}", whole.divergence.unwrap());
    let told = runtime.checkpoint(&run, Position::Latest).await.unwrap();
    assert_eq!((told.visited["any"], told.visited["two"], told.visited["draft"]), (3, 1, 3));
    // The same holds for every cut.
    let log = Log::of(&store, &run).await;
    for cut in 0..=last(&store, &run).await {
        let small = log.as_of(last(&store, &run).await).await;
        cut_at(&small, &run, cut).await;
        let found = plain(&small).await.verify(&graph, &run).await.unwrap();
        assert_eq!(found.divergence, None, "cut at {cut}");
    }
    // A harder or easier goal is a difference at the end.
    for goal in [2, 4] {
        let found = runtime.verify(&build(goal), &run).await.unwrap().divergence.unwrap();
        assert_eq!(found.node.as_ref().map(|node| node.as_str()), Some("goal"), "{found}");
    }
}
