//! Statements of the page about a run's history, each with the smallest run that could falsify it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::graph::{
    CheckpointFrequency, CheckpointPolicy, Effect, Graph, GraphBuilder, Join, RetryPolicy,
};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::{FailureKind, Resolution, RunStatus};
use ferrata_core::runtime::{Outcome, Position, RetentionPolicy, Runtime, SweepLimits};
use ferrata_core::state::{Context, Draft, Op, Patch, Reducer, Update};
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Clock, ErrorKind, Seq, Timestamp};
use ferrata_testing::ManualClock;

use super::random_runs::{RandomRun, key, last};
use super::seeds;

async fn plain(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).build().await.unwrap()
}

fn patch(op: Op) -> Patch {
    Patch::from_ops(&[op]).unwrap()
}

/// A chain of nodes that do nothing.
fn chain(name: &str, nodes: &[&str]) -> GraphBuilder<Context> {
    let mut builder = Graph::<Context>::builder(name).entry(nodes[0]);
    for node in nodes {
        builder = builder.node(*node, async |_cx, _s| Ok(()));
    }
    nodes.windows(2).fold(builder, |builder, pair| builder.edge(pair[0], pair[1]))
}

async fn completed(runtime: &Runtime, graph: &Graph<Context>, id: &str) {
    let run = runtime.start(graph, Context::new()).id(id).await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
}

/// A fork that starts at other nodes has unused joins, even if its source had completed a quorum. So the join and the nodes after it run.
///
/// Guarantees: FORK-1.
#[tokio::test]
async fn a_fork_that_starts_elsewhere_runs_its_joins() {
    let graph = Graph::<Context>::builder("quorum")
        .channel("ran", Reducer::Append)
        .node("s", async |_cx, _s| Ok(()))
        .node("a", async |_cx, _s| Ok(()))
        .node("b", async |_cx, _s| Ok(()))
        .node("j", async |_cx, _s| Ok(Context::update().append("ran", ["j"])))
        .join(Join::AtLeast(1.try_into().unwrap()))
        .node("e", async |_cx, _s| Ok(Context::update().append("ran", ["e"])))
        .entry("s")
        .edge("s", ["a", "b"])
        .edge(["a", "b"], "j")
        .edge("j", "e")
        .build()
        .unwrap();
    let store = MemoryStore::new();
    let runtime = plain(&store).await;
    completed(&runtime, &graph, "r").await;
    for at in 0..=last(&store, &key("r")).await {
        for from in ["s", "a", "j"] {
            let (typed, untyped) = (format!("t{at}{from}"), format!("u{at}{from}"));
            let empty = patch(Op::Remove("ran".into(), Vec::new()));
            let fork = runtime.fork(&key("r"), Seq::new(at)).id(&typed).start_at(from);
            let mut handles = vec![fork.edit(empty.clone()).drive(&graph).await.unwrap()];
            let fork = runtime.fork(&key("r"), Seq::new(at)).id(&untyped).start_at(from);
            // The first record of a run contains the nodes of the graph.
            fork.edit(empty).await.unwrap();
            handles.push(runtime.resume(&graph, &*untyped).await.unwrap());
            for handle in handles {
                let state = handle.completed().await.unwrap();
                let ran = state.get::<Vec<String>>("ran").unwrap();
                assert_eq!(
                    ran.as_deref(),
                    Some(&["j".to_owned(), "e".to_owned()][..]),
                    "at {at} from {from}"
                );
            }
        }
    }
}

/// An operator's resolution of an attempt is part of a fork, so the fork does not run the attempt again.
///
/// Guarantees: FORK-4.
#[tokio::test]
async fn fork_keeps_resolution_of_unknown_outcome() {
    for (resolution, again, paid) in [
        (Resolution::Supply(patch(Op::Set("paid".into(), 7.into()))), 0, Some(7)),
        (Resolution::Skip, 0, None),
        (Resolution::Retry, 1, Some(1)),
    ] {
        let begun = Arc::new(AtomicU32::new(0));
        let graph = {
            let begun = Arc::clone(&begun);
            let pay = move |_cx: NodeContext, mut s: Draft<Context>| {
                let first = begun.fetch_add(1, Ordering::Relaxed) == 0;
                async move {
                    if first {
                        std::future::pending::<()>().await;
                    }
                    s.set("paid", 1)?;
                    Ok(s)
                }
            };
            let builder = Graph::<Context>::builder("pays").node("pay", pay).effect(Effect::External);
            builder.entry("pay").build().unwrap()
        };
        let store = MemoryStore::new();
        let (one, two) = (plain(&store).await, plain(&store).await);
        let _run = one.start(&graph, Context::new()).id("r").await.unwrap();
        while begun.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let run = two.resume(&graph, "r").take_over().await.unwrap();
        assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
        let repeats = async |at: Position, nodes: &[&str]| -> usize {
            two.fork(&key("r"), at).start_at(nodes).repeated_effects().await.unwrap().len()
        };
        let first = Position::Seq(Seq::new(0));
        assert_eq!((repeats(first.clone(), &[]).await, repeats(Position::Latest, &[]).await), (1, 1));
        let said = two.respond(&key("r"), "pay@1", Answer::from(resolution.clone()));
        said.await.unwrap();
        // A fork that takes over an answer does not repeat its effect. A fork from before the answer repeats it.
        let settled = usize::from(resolution != Resolution::Retry);
        assert_eq!((repeats(first, &[]).await, repeats(Position::Latest, &[]).await), (settled, 0));
        assert_eq!(repeats(Position::Latest, &["pay"]).await, settled);
        let fork = two.fork(&key("r"), Position::Latest).id("f").drive(&graph).await.unwrap();
        let state = fork.completed().await.unwrap();
        assert_eq!(begun.load(Ordering::Relaxed), 1 + again, "{resolution:?}");
        assert_eq!(state.get::<u32>("paid").unwrap(), paid, "{resolution:?}");
        // A graph with the next state version gets the state in the new form.
        let next = Graph::<Context>::builder("pays").state_version(2).migrate(1, |channels| {
            if let Some(paid) = channels.remove("paid") {
                channels.insert("sum".into(), paid);
            }
            Ok(())
        });
        let next = next.node("pay", async |_cx, mut s| {
            s.set("sum", 1)?;
            Ok(s)
        });
        let next = next.effect(Effect::External).entry("pay").build().unwrap();
        let fork = two.fork(&key("r"), Position::Latest).id("g").drive(&next).await.unwrap();
        let state = fork.completed().await.unwrap();
        assert_eq!(state.get::<u32>("sum").unwrap(), paid, "{resolution:?}");
    }
}

/// If the route after a resolved attempt fails, the run fails with this error, and is not reported as corrupt.
///
/// Guarantees: DURABLE-12, FORK-4.
#[tokio::test]
async fn resolution_with_failing_route_fails_run() {
    for (resolution, kind) in [
        (Resolution::Supply(patch(Op::Set("paid".into(), 7.into()))), FailureKind::Route),
        (Resolution::Skip, FailureKind::Route),
        (Resolution::Fail("no".into()), FailureKind::Operator),
    ] {
        let graph = Graph::<Context>::builder("pays")
            .node("pay", async |_cx, _s| std::future::pending::<Result<(), NodeError>>().await)
            .effect(Effect::External)
            .node("end", async |_cx, _s| Ok(()))
            .entry("pay")
            .route("pay", ["end"], |_s: &Context, _cx| "nowhere")
            .build()
            .unwrap();
        let store = MemoryStore::new();
        let (one, two) = (plain(&store).await, plain(&store).await);
        let _run = one.start(&graph, Context::new()).id("r").await.unwrap();
        while last(&store, &key("r")).await == 0 {
            tokio::task::yield_now().await;
        }
        let run = two.resume(&graph, "r").take_over().await.unwrap();
        assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
        two.respond(&key("r"), "pay@1", Answer::from(resolution.clone())).await.unwrap();
        let outcome = two.resume(&graph, "r").await.unwrap().wait().await;
        let Ok(Outcome::Failed { failure, state }) = outcome else { panic!("{resolution:?}: {outcome:?}") };
        assert_eq!((failure.kind, state.is_empty()), (kind, true), "{resolution:?}: {failure}");
        // The fork does not take over the answer, so it repeats the effect.
        let repeats = two.fork(&key("r"), Position::Latest).repeated_effects().await.unwrap();
        let told: Vec<_> = repeats.iter().map(|repeat| (repeat.node.as_str(), repeat.effect)).collect();
        assert_eq!(told, [("pay", Some(Effect::External))], "{resolution:?}");
    }
}

/// An edit of a run with older state writes a base in the new form. Its patch, which has the new form too, applies to the migrated state.
///
/// Guarantees: MIGRATE-2.
#[tokio::test]
async fn an_edit_that_migrates_leaves_a_sound_log() {
    let graph = |version: u32| {
        let builder = Graph::<Context>::builder("w").state_version(version).channel("log", Reducer::Append);
        let builder = match version {
            1 => builder,
            _ => builder.migrate(1, |channels| {
                let first = channels.remove("log").unwrap_or_default();
                channels.insert("log".into(), serde_json::json!([first]));
                Ok(())
            }),
        };
        builder
            .node("ask", async |cx, _s| {
                let _: bool = cx.ask("q", "?").await?;
                Ok(())
            })
            .entry("ask")
            .build()
            .unwrap()
    };
    let store = MemoryStore::new();
    let runtime = plain(&store).await;
    let mut input = Context::new();
    input.set("log", "first").unwrap();
    runtime.start(&graph(1), input).id("r").await.unwrap().wait().await.unwrap();
    let more = patch(Op::Append("log".into(), vec!["second".into()]));
    runtime.edit(&key("r"), more).check_with(&graph(2)).await.unwrap();
    let state = runtime.state_at(&graph(2), &key("r"), Position::Latest).await.unwrap();
    assert_eq!(state.get::<Vec<String>>("log").unwrap().unwrap(), ["first", "second"]);
    runtime.check_log(&key("r")).await.unwrap();
    assert_eq!(runtime.verify(&graph(2), &key("r")).await.unwrap().divergence, None);
}

/// An undeclared channel accepts every operation, because an older state version may have used another name for it.
///
/// Guarantees: VERIFY-1.
#[tokio::test]
async fn verify_finds_no_difference_where_there_is_none() {
    let append = |channel: &'static str| {
        move |_cx: NodeContext, _s: Draft<Context>| async move {
            Ok(Update::from(Context::update().append(channel, ["x"])))
        }
    };
    let store = MemoryStore::new();
    let runtime = plain(&store).await;
    let undeclared = Graph::<Context>::builder("w").node("a", append("log")).entry("a").build().unwrap();
    completed(&runtime, &undeclared, "undeclared").await;
    assert_eq!(runtime.verify(&undeclared, &key("undeclared")).await.unwrap().divergence, None);

    let old = Graph::<Context>::builder("w").channel("notes", Reducer::Append);
    let old = old.node("a", append("notes")).entry("a").build().unwrap();
    completed(&runtime, &old, "renamed").await;
    let new = Graph::<Context>::builder("w").state_version(2).channel("log", Reducer::Append);
    // The new version uses the old name for a channel of another kind.
    let new = new.channel("notes", Reducer::Last).migrate(1, |channels| {
        let notes = channels.remove("notes").unwrap_or_default();
        channels.insert("log".into(), notes);
        Ok(())
    });
    let new = new.node("a", append("log")).entry("a").build().unwrap();
    assert_eq!(runtime.verify(&new, &key("renamed")).await.unwrap().divergence, None);
}

/// Guarantees: VERIFY-2.
#[tokio::test]
async fn verify_finds_another_entry() {
    let store = MemoryStore::new();
    let runtime = plain(&store).await;
    completed(&runtime, &chain("w", &["a", "b"]).build().unwrap(), "r").await;
    let today = chain("w", &["pre", "a", "b"]).build().unwrap();
    let found = runtime.verify(&today, &key("r")).await.unwrap().divergence.unwrap();
    assert_eq!(
        (found.seq, &*found.what),
        (Seq::new(0), "the run started at a, and today would start at pre")
    );
}

/// The fork's first record identifies its source. A newer run with the source's id is not an ancestor.
///
/// Guarantees: HISTORY-5.
#[tokio::test]
async fn lineage_names_no_stranger() {
    let store = MemoryStore::new();
    let runtime = plain(&store).await;
    let graph = chain("w", &["a", "b", "c"]).build().unwrap();
    for cut in [false, true] {
        let name = |id: &str| format!("{id}{cut}");
        let (p, f) = (name("p"), name("f"));
        completed(&runtime, &graph, &p).await;
        let fork = runtime.fork(&key(&p), Seq::new(1)).id(&f).drive(&graph).await.unwrap();
        fork.completed().await.unwrap();
        let line = async || {
            let line = runtime.lineage(&key(&f)).await.unwrap();
            line.into_iter().map(|one| (one.run.run.to_string(), one.status)).collect::<Vec<_>>()
        };
        let done = Some(RunStatus::Completed);
        // A source that was pruned beyond the fork's record is still the ancestor.
        runtime.apply_retention(&key(&p), &RetentionPolicy::keep_all().keep_last(1)).await.unwrap();
        assert_eq!(line().await, [(p.clone(), done), (f.clone(), done)]);
        runtime.purge(&key(&p)).await.unwrap();
        assert_eq!(line().await, [(p.clone(), None), (f.clone(), done)]);
        // Ensure that the new run starts later than the fork.
        ferrata_core::SystemClock::new().sleep(Duration::from_millis(2)).await;
        completed(&runtime, &graph, &p).await;
        if cut {
            runtime.apply_retention(&key(&p), &RetentionPolicy::keep_all().keep_last(1)).await.unwrap();
        }
        assert_eq!(line().await, [(p.clone(), None), (f.clone(), done)], "cut: {cut}");
    }
}

/// After an operator's retry, an activation may end again in a record that is named after another activation.
///
/// Guarantees: HISTORY-1.
#[tokio::test]
async fn visit_after_retry_resolves_to_last_end() {
    let tries = Arc::new(AtomicU32::new(0));
    let mut builder = Graph::<Context>::builder("w").entry("a").node("a", {
        let tries = Arc::clone(&tries);
        move |_cx: NodeContext, mut s: Draft<Context>| {
            let first = tries.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                if first {
                    return Err("broken".into());
                }
                s.set("mended", true)?;
                Ok(s)
            }
        }
    });
    for node in ["b", "c"] {
        builder = builder.node(node, async |_cx, _s| Ok(()));
    }
    let graph = builder.edge("a", "b").edge("b", "c").build().unwrap();
    let store = MemoryStore::new();
    let runtime = plain(&store).await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
    runtime.retry(&key("r")).await.unwrap();
    let policy =
        CheckpointPolicy::default().with_frequency(CheckpointFrequency::EveryNth(10.try_into().unwrap()));
    runtime.resume(&graph, "r").checkpoints(policy).await.unwrap().completed().await.unwrap();
    let at = |text: &str| text.parse::<Position>().unwrap();
    let state = runtime.state_at(&graph, &key("r"), at("a@1")).await.unwrap();
    assert_eq!(state.get::<bool>("mended").unwrap(), Some(true));
    let run = key("r");
    let a = runtime.checkpoint(&run, at("a@1")).await.unwrap();
    let c = runtime.checkpoint(&run, at("c@1")).await.unwrap();
    assert_eq!(a.index, c.index);
}

/// With every checkpoint frequency, the position of an ended activation is the record in which it ended.
///
/// Guarantees: HISTORY-1.
#[tokio::test]
async fn an_activation_is_found_where_it_is_told() {
    let mut found = 0;
    for seed in seeds(24) {
        let store = RandomRun::of(seed).live().await;
        let runtime = plain(&store).await;
        let told = runtime.checkpoint(&key("r"), Position::Latest).await.unwrap();
        for past in &told.history {
            let position = Position::Visit(past.node.clone(), past.visit);
            let there = runtime.checkpoint(&key("r"), position.clone()).await.unwrap();
            assert_eq!(Some(there.index), past.index, "seed {seed}, {position}");
            found += 1;
        }
    }
    assert!(found > 200, "only {found}");
}

/// Guarantees: CHECKPOINT-6.
#[tokio::test]
async fn results_are_those_of_the_last_time() {
    let graph = Graph::<Context>::builder("w")
        .node("a", async |cx, _s| {
            let update = Update::from(Context::update());
            Ok(if cx.visit().get() == 1 { update.with_output(7) } else { update })
        })
        .max_visits(5)
        .node("e", async |_cx, _s| Ok(Update::from(Context::update()).with_output(8)))
        .entry("a")
        .route("a", ["a", "e"], |_s, cx| if cx.visit().get() < 2 { "a" } else { "e" })
        .build()
        .unwrap();
    let runtime = plain(&MemoryStore::new()).await;
    completed(&runtime, &graph, "r").await;
    let results = async |at: &str| {
        let told = runtime.checkpoint(&key("r"), at.parse::<Position>().unwrap()).await.unwrap();
        serde_json::to_value(told.results).unwrap()
    };
    assert_eq!(results("a@1").await, serde_json::json!({ "a": 7 }));
    assert_eq!(results("a@2").await, serde_json::json!({}));
    assert_eq!(results("latest").await, serde_json::json!({ "e": 8 }));
}

/// The history lists each failed attempt and the time of the next one. The last failure is that of the activation and of the run.
///
/// Guarantees: CHECKPOINT-3.
#[tokio::test]
async fn what_failed_is_told_attempt_by_attempt() {
    let graph = Graph::<Context>::builder("w")
        .node("a", async |cx: NodeContext, _s: Draft<Context>| {
            Err::<Update<Context>, _>(format!("attempt {} came to nothing", cx.attempt()).into())
        })
        .retry(RetryPolicy::none().with_attempts(3).with_delay(Duration::from_micros(10)))
        .entry("a")
        .build()
        .unwrap();
    let runtime = plain(&MemoryStore::new()).await;
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
    let told = runtime.checkpoint(&key("r"), Position::Latest).await.unwrap();
    assert_eq!(told.diagnostics.len(), 3);
    for (attempt, one) in (1..).zip(&told.diagnostics) {
        assert_eq!((one.node.as_str(), one.visit.get(), one.attempt), ("a", 1, attempt));
        assert_eq!(one.failure.message, format!("attempt {attempt} came to nothing"));
        assert_eq!(one.retry_at.is_some(), attempt < 3, "attempt {attempt}");
    }
    let last = Some(&told.diagnostics[2].failure);
    assert_eq!((told.failure.as_ref(), told.history[0].failure.as_ref()), (last, last));
    assert_eq!((told.history[0].ok, told.history[0].attempts), (false, Some(3)));
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!((&json["failure"]["kind"], &json["failure"]["node"]), (&"node".into(), &"a".into()));
}

/// An edit that does not fit the state is an error of the caller, and no corruption or changed graph.
///
/// Guarantees: FORK-5.
#[tokio::test]
async fn edit_that_misfits_fork_is_invalid() {
    let graph = chain("w", &["a", "b"]).build().unwrap();
    let runtime = plain(&MemoryStore::new()).await;
    let mut input = Context::new();
    input.set("n", 1).unwrap();
    let run = runtime.start(&graph, input).id("r").await.unwrap();
    run.completed().await.unwrap();
    for op in [
        Op::Append("n".into(), vec![1.into()]),
        Op::Merge("n".into(), serde_json::Map::new()),
        Op::Remove("n".into(), vec!["k".into()]),
    ] {
        let fork = runtime.fork(&key("r"), Seq::new(0)).edit(patch(op.clone())).drive(&graph);
        let untyped = runtime.fork(&key("r"), Seq::new(0)).edit(patch(op.clone()));
        for error in [fork.await.unwrap_err(), untyped.await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{op:?}: {error}");
        }
    }
}

struct World {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    runtime: Runtime,
}

impl World {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let builder = Runtime::builder(store.clone()).clock(Arc::clone(&clock) as _);
        let runtime = builder.build().await.unwrap();
        Self { store, clock, runtime }
    }
}

/// The oldest retained record is a base with the full state. Its size must not cause an idle run to write a record at every poll.
///
/// Guarantees: RETAIN-3.
#[tokio::test]
async fn looking_again_drops_nothing_more() {
    let names: Vec<String> = (0..20).map(|at| format!("n{at}")).collect();
    let graph = chain("w", &names.iter().map(String::as_str).collect::<Vec<_>>()).build().unwrap();
    let world = World::new().await;
    let mut input = Context::new();
    input.set("text", "x".repeat(2_000)).unwrap();
    for (at, bytes) in [300, 800, 1_500, 2_500, 6_000].into_iter().enumerate() {
        let id = format!("r{at}");
        let run = world.runtime.start(&graph, input.clone()).id(&id).await.unwrap();
        run.completed().await.unwrap();
        for policy in [
            RetentionPolicy::keep_all().keep_bytes(bytes),
            RetentionPolicy::keep_all().keep_last(5),
            RetentionPolicy::keep_all().keep_for(Duration::from_secs(1)).keep_last(3).keep_bytes(bytes / 4),
        ] {
            world.runtime.apply_retention(&key(&id), &policy).await.unwrap();
            let first = world.store.head(&key(&id)).await.unwrap().unwrap().first;
            for _ in 0..3 {
                let again = world.runtime.apply_retention(&key(&id), &policy).await.unwrap();
                assert_eq!(again.records, 0, "{bytes} bytes, {policy:?}, from {first}");
            }
        }
    }
}

/// The age of an ended run counts from its end, not from its last signal. The filter for pruning does not restrict purging.
///
/// Guarantees: RETAIN-3.
#[tokio::test]
async fn retention_removes_run_by_end_time() {
    let graph = chain("w", &["a", "b"]).build().unwrap();
    let world = World::new().await;
    let second = Duration::from_secs(1);
    completed(&world.runtime, &graph, "r").await;
    world.runtime.pin(&key("r"), Seq::new(0)).await.unwrap();
    world.clock.advance(second);
    world.runtime.unpin(&key("r"), Seq::new(0)).await.unwrap();
    let purged = async |age: Duration| {
        let policy = RetentionPolicy::keep_all().purge_after(RunStatus::Completed, age);
        let policy = policy.keep_last(1).only([RunStatus::Failed]);
        let report = world.runtime.sweep(&policy, SweepLimits::default(), false).await.unwrap();
        assert!(report.failed.is_empty() && report.pruned == 0);
        report.purged
    };
    assert_eq!(purged(second * 2).await, 0);
    assert_eq!(purged(second).await, 1);
    assert!(world.clock.now().unix_ms() > 1_000_000);
}
