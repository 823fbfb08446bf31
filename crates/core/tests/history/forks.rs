//! A fork continues as the run would have continued from that record, and its source does not change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::runtime::{Outcome, Position, Runtime};
use ferrata_core::state::{Context, Draft, Op, Patch};
use ferrata_core::store::MemoryStore;
use ferrata_core::{ErrorKind, Seq, Timestamp};
use ferrata_testing::ManualClock;

use super::chance::Chance;
use super::prunes::cut_at;
use super::random_runs::{Log, RandomRun, end, key, last, records};
use super::seeds;

async fn process(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).build().await.unwrap()
}

/// A fork at a record must behave like the run itself when another process claims it at that record.
///
/// Guarantees: FORK-1.
#[tokio::test]
async fn fork_and_resumed_run_reach_same_end() {
    let mut forks = 0;
    for seed in seeds(35) {
        let random_run = RandomRun::of(seed);
        let mut chance = Chance::new(seed ^ 3);
        let store = random_run.live().await;
        let (run, graph) = (key("r"), random_run.graph());
        let log = Log::of(&store, &run).await;
        let to = last(&store, &run).await;
        let runtime = random_run.process(&store, 3).await;
        for nth in 0..6 {
            let at = chance.below(usize::try_from(to + 1).unwrap()) as u64;
            let label = format!("seed {seed}, forked at {at} of {to}");
            let edits = [None, Some(Patch::from_ops(&[Op::Set("n".into(), nth.into())]).unwrap())];
            let edit = edits[chance.below(2)].clone();
            let mut request = runtime.fork(&run, Seq::new(at)).id(format!("f{nth}"));
            if let Some(edit) = &edit {
                request = request.edit(edit.clone());
            }
            let fork = request.drive(&graph).checkpoints(random_run.policy).await;

            let world = log.as_of(at).await;
            let other = random_run.process(&world, 4).await;
            let status = other.head(&run).await.unwrap().unwrap().status;
            if status == RunStatus::Completed {
                assert_eq!(fork.unwrap_err().kind(), ErrorKind::Invalid, "{label}");
                continue;
            }
            let fork = fork.unwrap_or_else(|error| panic!("{label}: {error}"));
            let forked = end(random_run.go_on(&[&runtime], &graph, fork, false).await);
            let verified = runtime.verify(&graph, &key(&format!("f{nth}"))).await.unwrap();
            assert_eq!(verified.divergence, None, "{label}");
            runtime.check_log(&key(&format!("f{nth}"))).await.unwrap_or_else(|e| panic!("{label}: {e}"));
            if status == RunStatus::Failed {
                other.retry(&run).await.unwrap();
            }
            if let Some(edit) = edit {
                other.edit(&run, edit).check_with(&graph).await.unwrap();
            }
            let handle = other.resume(&graph, "r").take_over().checkpoints(random_run.policy).await.unwrap();
            let itself = end(random_run.go_on(&[&other], &graph, handle, false).await);
            assert_eq!(forked, itself, "{label}");
            // A run with retries and edits still agrees with its graph.
            let verified = other.verify(&graph, &run).await.unwrap();
            assert_eq!(verified.divergence, None, "{label}");
            other.check_log(&run).await.unwrap_or_else(|error| panic!("{label}: {error}"));
            forks += 1;
        }
        assert_eq!(records(&store, &run).await, log.records, "seed {seed}: the source changed");
    }
    assert!(forks > 100, "only {forks} forks");
}

/// A fork shares no record with its source: each continues after the other was pruned or purged.
///
/// Guarantees: FORK-2.
#[tokio::test]
async fn forks_survive_prune_and_purge_of_source() {
    for seed in seeds(20) {
        let random_run = RandomRun::of(seed).finely();
        let store = random_run.live().await;
        let (run, graph) = (key("r"), random_run.graph());
        let runtime = random_run.process(&store, 5).await;
        let to = last(&store, &run).await;
        let fork = runtime.fork(&run, Seq::new(to / 2)).id("f").drive(&graph).await.unwrap();
        cut_at(&store, &run, to).await;
        assert!(runtime.purge(&run).await.unwrap().records > 0);
        let forked = end(random_run.go_on(&[&runtime], &graph, fork, false).await);
        let line = runtime.lineage(&key("f")).await.unwrap();
        assert_eq!((line[0].run.clone(), line[0].status), (run.clone(), None), "seed {seed}");
        let again = runtime.fork(&key("f"), Seq::new(0)).id("g").drive(&graph).await.unwrap();
        let handle = end(random_run.go_on(&[&runtime], &graph, again, false).await);
        assert_eq!(handle, forked, "seed {seed}");
    }
}

/// A fork has the same frontier as its source, including the open questions, and no id of the source's run.
///
/// Guarantees: FORK-1.
#[tokio::test]
async fn fork_starts_with_source_state_and_frontier() {
    for seed in seeds(30) {
        let random_run = RandomRun::of(seed);
        let store = random_run.live().await;
        let (run, graph) = (key("r"), random_run.graph());
        let runtime = random_run.process(&store, 6).await;
        for at in 0..last(&store, &run).await {
            let id = format!("f{at}");
            runtime.fork(&run, Seq::new(at)).id(&id).drive(&graph).await.unwrap();
            let (before, after) = (
                runtime.checkpoint(&run, Seq::new(at)).await.unwrap(),
                runtime.checkpoint(&key(&id), Seq::new(0)).await.unwrap(),
            );
            let label = format!("seed {seed}, forked at {at}");
            assert_eq!(after.kind, RecordKind::Base, "{label}");
            assert_eq!(after.state, before.state, "{label}");
            assert_eq!(after.visited, before.visited, "{label}");
            assert_eq!(after.waiting, before.waiting, "{label}");
            assert_eq!(after.unread, before.unread, "{label}");
            let nodes = |of: &ferrata_core::runtime::Checkpoint| {
                let mut nodes: Vec<_> = of
                    .next
                    .iter()
                    .map(|p| (p.node.clone(), p.visit, p.item.clone(), p.steps.clone()))
                    .collect();
                nodes.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
                nodes
            };
            assert_eq!(nodes(&after), nodes(&before), "{label}");
            assert!(after.next.iter().all(|pending| pending.failed == 0 && !pending.stopped), "{label}");
            assert_eq!((after.questions.len(), after.epoch.get()), (0, 1), "{label}");
            assert_eq!(after.parent.map(|parent| (parent.run, parent.at.seq.get())), Some((run.clone(), at)));
        }
        // No process owns the remaining runs.
        runtime.shutdown(std::time::Duration::from_secs(5)).await.unwrap();
    }
}

/// A run under an id, and the run that it was forked from.
#[derive(Clone, Debug)]
struct Known {
    id: String,
    parent: Option<usize>,
}

/// Runs are started, forked, pruned and purged, and their ids are used again. A lineage lists the existing ancestors, and ends with the first purged
/// one, even if its id is in use again.
///
/// Guarantees: HISTORY-5.
#[tokio::test]
async fn a_line_tells_lives_and_no_names() {
    let graph = Graph::<Context>::builder("w");
    let graph = graph.node("a", async |_cx, _s| Ok(())).node("b", async |_cx, _s| Ok(()));
    let graph = graph.entry("a").edge("a", "b").build().unwrap();
    let mut ended = 0;
    for seed in seeds(12) {
        let mut chance = Chance::new(seed ^ 17);
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let runtime = Runtime::builder(store.clone()).clock(Arc::clone(&clock) as _).build().await.unwrap();
        let (mut lives, mut there): (Vec<Known>, BTreeMap<String, usize>) = <_>::default();
        for _ in 0..24 {
            // Creation time identifies a pruned run, so no two runs may start at the same time.
            clock.advance(Duration::from_millis(1));
            let id = format!("r{}", chance.below(5));
            let others: Vec<usize> = there.values().copied().collect();
            match there.get(&id) {
                Some(_) if chance.one_in(2) => {
                    runtime.purge(&key(&id)).await.unwrap();
                    there.remove(&id);
                }
                Some(_) => cut_at(&store, &key(&id), last(&store, &key(&id)).await).await,
                None => {
                    let parent = (!others.is_empty() && !chance.one_in(4)).then(|| *chance.pick(&others));
                    let handle = match parent {
                        None => runtime.start(&graph, Context::new()).id(&id).await,
                        Some(parent) => {
                            let source = key(&lives[parent].id);
                            let at = last(&store, &source).await;
                            runtime.fork(&source, Seq::new(at)).id(&id).start_at("a").drive(&graph).await
                        }
                    };
                    handle.unwrap().completed().await.unwrap();
                    there.insert(id.clone(), lives.len());
                    lives.push(Known { id, parent });
                }
            }
            for (id, &random_run) in &there {
                let mut expected = Vec::new();
                let mut next = Some(random_run);
                while let Some(random_run) = next {
                    let known = &lives[random_run];
                    let is_there = there.get(&known.id) == Some(&random_run);
                    expected.insert(0, (known.id.clone(), is_there));
                    next = known.parent.filter(|_| is_there);
                    ended += u32::from(!is_there);
                }
                let line = runtime.lineage(&key(id)).await.unwrap();
                let line: Vec<_> =
                    line.iter().map(|one| (one.run.run.to_string(), one.status.is_some())).collect();
                assert_eq!(line, expected, "seed {seed}, {id}");
            }
        }
    }
    assert!(ended > 50, "only {ended} lines end early");
}

/// Guarantees: HISTORY-1.
#[tokio::test]
async fn fork_at_missing_position_fails() {
    let random_run = RandomRun::of(1).finely();
    let store = random_run.live().await;
    let (run, graph) = (key("r"), random_run.graph());
    let runtime: Runtime = random_run.process(&store, 7).await;
    let to = last(&store, &run).await;
    cut_at(&store, &run, to - 1).await;
    for at in [Position::Seq(Seq::new(to + 1)), Position::Seq(Seq::new(0)), "nowhere@1".parse().unwrap()] {
        let error = runtime.fork(&run, at.clone()).id("f").drive(&graph).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{at}: {error}");
    }
    assert!(store_is_without(&runtime, "f").await);
}

async fn store_is_without(runtime: &Runtime, id: &str) -> bool {
    runtime.head(&key(id)).await.unwrap().is_none()
}

/// Without checkpoints, a fork still lists the effects that it would repeat, although no record mentions a single node.
///
/// Guarantees: FORK-3.
#[tokio::test]
async fn fork_without_checkpoints_lists_repeated_effects() {
    let effects = [("look", Effect::Read), ("pay", Effect::External), ("write", Effect::Write)];
    let builder = effects.into_iter().fold(Graph::<Context>::builder("w"), |builder, (node, effect)| {
        builder.node(node, async |_cx, _s| Ok(())).effect(effect)
    });
    let graph = builder.entry("look").edge("look", "pay").edge("pay", "write").build().unwrap();
    let runtime = process(&MemoryStore::new()).await;
    let start = runtime.start(&graph, Context::new()).id("r");
    let policy = CheckpointPolicy::default().with_frequency(CheckpointFrequency::Disabled);
    start.checkpoints(policy).await.unwrap().completed().await.unwrap();
    let head = runtime.head(&key("r")).await.unwrap().unwrap().seq;
    let (pay, write) = (("pay", Effect::External), ("write", Effect::Write));
    let before_the_end = Seq::new(head.get() - 1);
    for (at, again) in [(Seq::new(0), &[pay, write][..]), (before_the_end, &[write]), (head, &[])] {
        let repeats = runtime.fork(&key("r"), at).repeated_effects().await.unwrap();
        let told: Vec<_> =
            repeats.iter().map(|repeat| (repeat.node.as_str(), repeat.effect.unwrap())).collect();
        assert_eq!(told, again, "at {at}");
    }
}

/// A fork reports running and once failed attempts of all nodes, not only of those that must not repeat.
///
/// Guarantees: FORK-3.
#[tokio::test]
async fn fork_lists_running_and_retrying_nodes() {
    for fails in [false, true] {
        let begun = Arc::new(AtomicU32::new(0));
        let work = {
            let begun = Arc::clone(&begun);
            move |_cx: NodeContext, _s: Draft<Context>| {
                begun.fetch_add(1, Ordering::Relaxed);
                async move {
                    match fails {
                        true => Err(NodeError::from("once more")),
                        false => std::future::pending::<Result<(), NodeError>>().await,
                    }
                }
            }
        };
        let policy = RetryPolicy::none().with_attempts(2).with_delay(Duration::from_secs(3_600));
        let graph =
            Graph::<Context>::builder("works").node("look", async |_cx, _s| Ok(())).effect(Effect::Pure);
        let graph =
            graph.node("write", work).retry(policy).entry("look").edge("look", "write").build().unwrap();
        let store = MemoryStore::new();
        let (one, two) = (process(&store).await, process(&store).await);
        let _run = one.start(&graph, Context::new()).id("r").await.unwrap();
        while begun.load(Ordering::Relaxed) == 0 || last(&store, &key("r")).await < 1 + u64::from(fails) {
            tokio::task::yield_now().await;
        }
        let repeats = two.fork(&key("r"), Position::Latest).repeated_effects().await.unwrap();
        let told: Vec<_> = repeats.iter().map(|repeat| (repeat.node.as_str(), repeat.effect)).collect();
        assert_eq!(told, [("write", Some(Effect::Write))], "fails: {fails}");
    }
    // A node that waits for an answer asks again, and does not count as running.
    let graph = Graph::<Context>::builder("asks").node("ask", async |cx: NodeContext, _s: Draft<Context>| {
        cx.ask::<bool>("ok", "Go on?").await?;
        Ok::<_, NodeError>(())
    });
    let (runtime, graph) = (process(&MemoryStore::new()).await, graph.entry("ask").build().unwrap());
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    assert_eq!(runtime.fork(&key("r"), Position::Latest).repeated_effects().await.unwrap(), []);
}
