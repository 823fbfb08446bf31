//! State of another version: migrated step by step, or rejected with an error that leaves the run unchanged.

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Graph, GraphBuilder};
use ferrata_core::runtime::{Outcome, Position, Runtime};
use ferrata_core::state::{Context, Op, Patch};
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Error, ErrorKind, Seq, Timestamp};
use ferrata_testing::ManualClock;

use super::chance::Chance;
use super::prunes::cut_at;
use super::random_runs::{Change, Log, RandomRun, key, last, records};
use super::seeds;

fn of(version: u32) -> GraphBuilder<Context> {
    Graph::<Context>::builder("w").state_version(version)
}

fn built(builder: GraphBuilder<Context>) -> Graph<Context> {
    builder
        .node("first", async |_cx, mut s| {
            s.set("n", 1)?;
            Ok(s)
        })
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .node("last", async |_cx, _s| Ok(()))
        .entry("first")
        .edge("first", "ok")
        .edge("ok", "last")
        .build()
        .unwrap()
}

/// A run of version 2 whose question is answered, and which waits for a process.
async fn answered(store: &MemoryStore) -> Runtime {
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    runtime.start(&built(of(2)), Context::new()).id("r").await.unwrap().wait().await.unwrap();
    runtime.respond(&key("r"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    runtime
}

/// Every operation that needs the state in another form fails with the same error, and leaves the run unchanged.
async fn refused(graph: &Graph<Context>, says: &str) {
    let store = MemoryStore::new();
    let runtime = answered(&store).await;
    let before = records(&store, &key("r")).await;
    let edit = Patch::from_ops(&[Op::Set("n".into(), 2.into())]).unwrap();
    let errors: [Error; 4] = [
        runtime.resume(graph, "r").await.unwrap_err(),
        runtime.state_at(graph, &key("r"), Position::Latest).await.unwrap_err(),
        runtime.fork(&key("r"), Position::Latest).id("f").drive(graph).await.unwrap_err(),
        runtime.edit(&key("r"), edit).check_with(graph).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::GraphChanged, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.run(), Some(&key("r")), "{error}");
    }
    // A verification reports the difference.
    let divergence = runtime.verify(graph, &key("r")).await.unwrap().divergence.unwrap();
    assert!(divergence.what.contains(says), "{divergence}");
    assert_eq!(records(&store, &key("r")).await, before, "{says}: no claim and no base must be written");
    assert!(runtime.head(&key("f")).await.unwrap().is_none());
    // Without the graph, all data can be read.
    let told = runtime.checkpoint(&key("r"), Position::Latest).await.unwrap();
    assert_eq!(told.state["n"], 1);
    // The original graph can continue the run.
    let outcome = runtime.resume(&built(of(2)), "r").await.unwrap().wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)), "{says}");
}

/// Guarantees: MIGRATE-1.
#[tokio::test]
async fn missing_migration_step_leaves_run_unchanged() {
    refused(&built(of(4).migrate(2, |_| Ok(()))), "add `.migrate(3, ..)`").await;
}

/// Guarantees: MIGRATE-1.
#[tokio::test]
async fn a_step_that_fails_leaves_the_run_alone() {
    let graph = built(of(3).migrate(2, |_| Err("n is no name".into())));
    refused(&graph, "the migration from state version 2 failed: n is no name").await;
}

/// A panic in a migration step is an error of the call, and does not end the calling task.
///
/// Guarantees: MIGRATE-1.
#[tokio::test]
async fn panicking_migration_step_leaves_run_unchanged() {
    let graph = built(of(3).migrate(2, |channels| {
        channels.insert("n".into(), "half done".into());
        panic!("no such thing as {}", channels.len())
    }));
    refused(&graph, "the migration from state version 2 panicked: no such thing as 1").await;
}

/// Guarantees: MIGRATE-1.
#[tokio::test]
async fn a_downgrade_is_refused() {
    refused(&built(of(1)), "this program reads up to version 1").await;
}

/// Guarantees: MIGRATE-2.
#[tokio::test]
async fn migration_keeps_original_until_new_form_is_durable() {
    let store = MemoryStore::new();
    let runtime = answered(&store).await;
    let old = records(&store, &key("r")).await;
    let graph = built(
        of(4)
            .migrate(2, |channels| {
                let n = channels.remove("n").unwrap_or_default();
                channels.insert("m".into(), n);
                Ok(())
            })
            .migrate(3, |channels| {
                let n = channels.remove("m").unwrap_or_default();
                channels.insert("k".into(), n);
                Ok(())
            }),
    );
    // A read changes nothing.
    let state = runtime.state_at(&graph, &key("r"), Position::Latest).await.unwrap();
    assert_eq!((state.get::<i64>("k").unwrap(), state.get::<i64>("n").unwrap()), (Some(1), None));
    assert_eq!(records(&store, &key("r")).await, old);
    let outcome = runtime.resume(&graph, "r").await.unwrap().wait().await.unwrap();
    assert_eq!(outcome.completed().unwrap().get::<i64>("k").unwrap(), Some(1));
    let new = records(&store, &key("r")).await;
    assert_eq!(new[..old.len()], old, "the old records must be unchanged");
    assert!(new[old.len()].header.base, "the claim must contain the new form");
    // Each form reads positions of both forms, where it can.
    let before = runtime.state_at(&built(of(2)), &key("r"), Seq::new(1)).await.unwrap();
    assert_eq!(before.get::<i64>("n").unwrap(), Some(1));
    assert!(runtime.verify(&graph, &key("r")).await.unwrap().divergence.is_none());
}

/// A process claims the runs of its workflow version, and ignores those of other versions.
///
/// Guarantees: MIGRATE-1.
#[tokio::test]
async fn unknown_workflow_or_version_leaves_run_unchanged() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
    let process =
        async || Runtime::builder(store.clone()).clock(Arc::clone(&clock) as _).build().await.unwrap();
    let one = process().await;
    let unknown = Graph::<Context>::builder("unknown")
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .entry("ok")
        .build()
        .unwrap();
    one.start(&unknown, Context::new()).id("unknown").await.unwrap().wait().await.unwrap();
    one.start(&built(of(2)), Context::new()).id("newer").await.unwrap().wait().await.unwrap();
    one.start(&built(of(1)), Context::new()).id("known").await.unwrap().wait().await.unwrap();
    let other = process().await;
    for id in ["unknown", "newer", "known"] {
        other.respond(&key(id), "ok", Answer::accept(true).unwrap()).await.unwrap();
    }
    let before = (records(&store, &key("unknown")).await, records(&store, &key("newer")).await);
    other.serve(&built(of(1))).unwrap();
    // After the known run is claimed, the process has also checked the others at least twice.
    for turn in 0.. {
        assert!(turn < 100_000);
        let known = other.head(&key("known")).await.unwrap().unwrap();
        if known.status.is_finished() && other.stalled().iter().any(|stalled| stalled.tries > 1) {
            break;
        }
        clock.advance(Duration::from_millis(50));
        tokio::task::yield_now().await;
    }
    let stalled = other.stalled();
    assert_eq!(stalled.len(), 1, "{stalled:?}");
    assert_eq!((&stalled[0].run, stalled[0].error.kind()), (&key("newer"), ErrorKind::GraphChanged));
    let after = (records(&store, &key("unknown")).await, records(&store, &key("newer")).await);
    assert_eq!(after, before, "no attempt must count");
    assert!(store.head(&key("newer")).await.unwrap().unwrap().owner.is_none());
    let wrong = other.resume(&built(of(1)), "unknown").await.unwrap_err();
    assert!(wrong.to_string().contains("unknown"), "{wrong}");
    assert_eq!(records(&store, &key("unknown")).await, before.0);
}

/// A run that is claimed with the next version of its state has a valid log from then on, also after an edit, a fork or a prune. The new graph agrees
/// with it.
///
/// Guarantees: MIGRATE-2.
#[tokio::test]
async fn migrated_active_run_has_valid_log() {
    let mut looked = 0;
    for seed in seeds(24) {
        let random_run = RandomRun::of(seed);
        let mut chance = Chance::new(seed ^ 13);
        let store = random_run.live().await;
        let to = last(&store, &key("r")).await;
        let at = chance.below(usize::try_from(to).unwrap()) as u64;
        let label = format!("seed {seed}, migrated at {at} of {to}");
        let store = Log::of(&store, &key("r")).await.as_of(at).await;
        let runtime = random_run.process(&store, 2).await;
        let graph = random_run.changed(Change::Version);
        if runtime.head(&key("r")).await.unwrap().unwrap().status.is_finished() {
            continue;
        }
        if chance.one_in(3) {
            // The first edit migrates the state.
            let more = Patch::from_ops(&[Op::Append("notes".into(), vec!["edited".into()])]).unwrap();
            runtime.edit(&key("r"), more).check_with(&graph).await.unwrap();
            runtime.check_log(&key("r")).await.unwrap_or_else(|error| panic!("{label}, edited: {error}"));
        }
        let fork = runtime
            .fork(&key("r"), Position::Latest)
            .id("f")
            .drive(&graph)
            .checkpoints(random_run.policy)
            .await;
        let fork = fork.unwrap_or_else(|error| panic!("{label}: {error}"));
        let run = runtime.resume(&graph, "r").take_over().checkpoints(random_run.policy).await.unwrap();
        random_run.go_on(&[&runtime], &graph, run, chance.one_in(2)).await;
        random_run.go_on(&[&runtime], &graph, fork, false).await;
        for (run, cut) in [("r", false), ("f", false), ("r", true)] {
            let (run, end) = (key(run), last(&store, &key(run)).await);
            if cut {
                cut_at(&store, &run, chance.below(usize::try_from(end + 1).unwrap()) as u64).await;
            }
            runtime
                .check_log(&run)
                .await
                .unwrap_or_else(|error| panic!("{label}, {run}, cut {cut}: {error}"));
            let verified = runtime.verify(&graph, &run).await.unwrap();
            assert!(verified.divergence.is_none(), "{label}, {run}: {}", verified.divergence.unwrap());
            for seq in store.head(&run).await.unwrap().unwrap().first.get()..=end {
                let state = runtime.state_at(&graph, &run, Seq::new(seq)).await.unwrap();
                assert!(state.get::<Vec<String>>("log").unwrap().is_none(), "{label}, {run} at {seq}");
            }
            looked += 1;
        }
    }
    assert!(looked > 36, "only {looked} logs");
}
