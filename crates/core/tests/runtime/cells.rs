//! APIs for libraries: runs that start paused, state that several processes change, and a node's access to its runtime.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Graph};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{CellChanges, Position, RetentionPolicy, RunChange, Runtime, StateCell};
use ferrata_core::state::{Channels, Context, Draft, Op, Patch};
use ferrata_core::store::MemoryStore;
use ferrata_core::{Epoch, ErrorKind, Seq};
use ferrata_testing::{Fault, World};

use super::counted::{Counted, Reads};

fn graph() -> Graph<Context> {
    let work = async |_cx: NodeContext, mut s: Draft<Context>| {
        s.set("done", true)?;
        Ok::<_, NodeError>(s)
    };
    Graph::<Context>::builder("held").node("work", work).entry("work").build().unwrap()
}

#[tokio::test]
async fn a_run_begins_paused_in_one_write() {
    for fault in [None, Some(Fault::CrashBefore), Some(Fault::CrashAfter)] {
        let world = World::new();
        let (one, other) = (world.process().await.unwrap(), world.process().await.unwrap());
        one.serve(&graph()).unwrap();
        other.serve(&graph()).unwrap();
        let before = one.writes();
        if let Some(fault) = fault {
            one.fail_write(0, fault);
        }
        let started = world.pass(one.start(&graph(), Context::new()).id("paused").on_hold("not yet")).await;
        let run = "paused".try_into().unwrap();
        let Some(head) = other.head(&run).await.unwrap() else {
            assert_eq!(fault, Some(Fault::CrashBefore));
            continue;
        };
        assert_eq!(one.writes() - before, 1);
        assert_eq!((head.status, head.epoch, head.owner), (RunStatus::Interrupted, Epoch::NEVER, None));
        drop(started);
        // No process claims the paused run, and it exists once.
        world.pass_for(Duration::from_secs(86_400)).await;
        assert_eq!(other.head(&run).await.unwrap().unwrap().seq, head.seq);
        let again =
            world.pass(other.start(&graph(), Context::new()).id("paused").on_hold("not yet")).await.unwrap();
        assert_eq!(other.head(&run).await.unwrap().unwrap().seq, head.seq);
        other.unpause(&run).await.unwrap();
        let state = world.pass(again.completed()).await.unwrap();
        assert_eq!(state.get::<bool>("done").unwrap(), Some(true));
    }
    let world = World::new();
    let process = world.process().await.unwrap();
    let none = CheckpointPolicy::default().with_frequency(CheckpointFrequency::Disabled);
    let start = process.start(&graph(), Context::new()).checkpoints(none).on_hold("no");
    assert_eq!(start.await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// A start that asks for a paused run must not claim or drive a run that already exists under this id.
#[tokio::test]
async fn paused_start_leaves_existing_run_unchanged() {
    let world = World::new();
    let (one, other) = (world.process().await.unwrap(), world.process().await.unwrap());
    let waits = async |_cx: NodeContext, s: Draft<Context>| {
        std::future::pending::<()>().await;
        Ok::<_, NodeError>(s)
    };
    let graph = Graph::<Context>::builder("waits").node("work", waits).entry("work").build().unwrap();
    drop(one.start(&graph, Context::new()).id("there").await.unwrap());
    one.crash().await;
    let run = "there".try_into().unwrap();
    let before = other.head(&run).await.unwrap().unwrap();
    let held = other.start(&graph, Context::new()).id("there").on_hold("not yet").await.unwrap();
    let after = other.head(&run).await.unwrap().unwrap();
    assert_eq!((after.epoch, after.seq, after.owner), (before.epoch, before.seq, before.owner));
    assert!(!held.is_driven_here());
}

#[tokio::test]
async fn the_id_is_known_before_the_start() {
    let world = World::new();
    let process = world.process().await.unwrap();
    let mut start = process.start(&graph(), Context::new());
    let run = start.choose_id().unwrap();
    assert_eq!(start.choose_id().unwrap(), run);
    assert_eq!(start.await.unwrap().run(), &run);
    let mut start = process.start(&graph(), Context::new()).tenant("acme").id("seven");
    assert_eq!(start.choose_id().unwrap().to_string(), "acme/seven");
    assert_eq!(
        process.start(&graph(), Context::new()).id("").choose_id().unwrap_err().kind(),
        ErrorKind::Invalid
    );
}

/// Adds one to the count, and retries until the append succeeds.
async fn add(cell: &mut StateCell, runtime: &Runtime) -> ferrata_core::Result<u64> {
    let read = |channels: &Channels| channels.get("count").and_then(serde_json::Value::as_u64).unwrap_or(0);
    loop {
        let count = read(cell.load(runtime).await?.0) + 1;
        let patch = Patch::from_ops(&[Op::Set("count".to_owned(), count.into())])?;
        match cell.append(runtime, patch, "counter").await {
            Err(error) if error.kind() == ErrorKind::Conflict => tokio::task::yield_now().await,
            appended => return appended.map(|()| count),
        }
    }
}

#[tokio::test]
async fn concurrent_cell_changes_refuse_one() {
    let world = World::new();
    let (one, other) = (world.process().await.unwrap(), world.process().await.unwrap());
    let run = one
        .start(&graph(), Context::new())
        .id("counter")
        .on_hold("it is a counter")
        .await
        .unwrap()
        .run()
        .clone();
    let (mut here, mut there) = (StateCell::new(run.clone()), StateCell::new(run.clone()));
    assert!(!here.is_current(&one).await.unwrap(), "a load must read nothing");
    let nothing = Patch::from_ops(&[]).unwrap();
    assert_eq!(here.append(&one, nothing, "counter").await.unwrap_err().kind(), ErrorKind::Invalid);
    for _ in 0..50 {
        let both = async { tokio::join!(add(&mut here, &one), add(&mut there, &other)) };
        let (a, b) = world.pass(both).await;
        assert_ne!(a.unwrap(), b.unwrap());
    }
    let channels = one.channels_at(&run, Position::Latest).await.unwrap();
    assert_eq!(channels.get("count"), Some(&100.into()));
    assert!(here.is_current(&one).await.unwrap() != there.is_current(&other).await.unwrap());
    // The state that is folded from the log equals the counted state.
    one.check_log(&run).await.unwrap();
    assert!(one.timeline(&run, Seq::new(0)).await.unwrap().len() >= 100);
    // A patch that does not fit the state writes nothing.
    let misfit = Patch::from_ops(&[Op::Append("count".to_owned(), vec![1.into()])]).unwrap();
    let (_, _) = here.load(&one).await.unwrap();
    assert_eq!(here.append(&one, misfit, "counter").await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(add(&mut here, &one).await.unwrap(), 101);
    one.cancel(&run, "away with it").await.unwrap();
    here.forget();
    assert_eq!(here.load(&one).await.unwrap_err().kind(), ErrorKind::WrongStatus);
    one.purge(&run).await.unwrap();
    here.forget();
    assert_eq!(here.load(&one).await.unwrap_err().kind(), ErrorKind::NotFound);
    // A cell that loaded the purged run must notice that a new run has the same id.
    one.start(&graph(), Context::new()).id("counter").on_hold("it is a counter").await.unwrap();
    assert_eq!(add(&mut there, &other).await.unwrap(), 1);
}

/// Two processes change a large state. Each reads only the other's changes, not the whole state.
#[tokio::test]
async fn cell_reads_only_remote_changes() {
    let store = MemoryStore::new();
    let reads = Arc::new(Reads::default());
    let counted = Counted { inner: store.clone(), reads: Arc::clone(&reads) };
    let one = Runtime::builder(store).build().await.unwrap();
    let other = Runtime::builder(counted).build().await.unwrap();
    let mut many = Context::new();
    let entries: BTreeMap<String, String> =
        (0..10_000).map(|n| (format!("entry-{n}"), "x".repeat(40))).collect();
    many.set("line", &entries).unwrap();
    let run = one.start(&graph(), many).id("line").on_hold("it is a line").await.unwrap().run().clone();
    let (mut here, mut there) = (StateCell::new(run.clone()), StateCell::new(run.clone()));
    assert!(matches!(there.load(&other).await.unwrap(), (_, CellChanges::All)));
    let all = reads.bytes.swap(0, Ordering::Relaxed);
    assert!(all > 500_000, "{all} bytes");
    let change =
        |n: usize| Patch::from_ops(&[Op::Remove("line".to_owned(), vec![format!("entry-{n}")])]).unwrap();
    for n in 0..100 {
        here.load(&one).await.unwrap();
        here.append(&one, change(n), "test").await.unwrap();
        assert!(!there.is_current(&other).await.unwrap());
        let (channels, news) = there.load(&other).await.unwrap();
        let gone = Op::Remove("line".to_owned(), vec![format!("entry-{n}")]);
        assert_eq!(news, CellChanges::Changes(vec![gone]));
        assert_eq!(channels.get("line").unwrap().as_object().unwrap().len(), 9_999 - n);
        assert!(there.is_current(&other).await.unwrap());
        assert_eq!(there.load(&other).await.unwrap().1, CellChanges::Changes(Vec::new()));
    }
    let since = reads.bytes.load(Ordering::Relaxed);
    assert!(since < 100 * 500, "{since} bytes were read for 100 changes, and {all} for all");
    // What was pruned meanwhile cannot be followed, and is read whole.
    here.load(&one).await.unwrap();
    here.append(&one, change(100), "test").await.unwrap();
    here.load(&one).await.unwrap();
    here.append(&one, change(101), "test").await.unwrap();
    one.apply_retention(&run, &RetentionPolicy::keep_all().keep_last(1)).await.unwrap();
    assert!(!there.is_current(&other).await.unwrap());
    let (channels, news) = there.load(&other).await.unwrap();
    assert_eq!((news, channels.get("line").unwrap().as_object().unwrap().len()), (CellChanges::All, 9_898));
}

/// If an append fails or its outcome is unknown, the cell reverts the change. The next load finds the change if it was recorded.
#[tokio::test]
async fn failed_cell_change_is_reverted_by_next_load() {
    let world = World::new();
    let process = world.process_with(|b| b.store_retries(0, Duration::from_millis(1))).await.unwrap();
    let run =
        process.start(&graph(), Context::new()).id("cell").on_hold("it is one").await.unwrap().run().clone();
    let set = |n: u64| vec![Op::Merge("set".to_owned(), [(format!("n{n}"), n.into())].into_iter().collect())];
    let mut cell = StateCell::new(run.clone());
    // The state of a caller that applies the cell's changes.
    let mut known = cell.load(&process).await.unwrap().0.clone();
    for n in 0..60 {
        let fault = [None, Some(Fault::Before), Some(Fault::After)][usize::try_from(n % 3).unwrap()];
        if let Some(fault) = fault {
            process.fail_write(0, fault);
        }
        let patch = Patch::from_ops(&set(n)).unwrap();
        known.apply(&patch).unwrap();
        let appended = world.pass(cell.append(&process, patch, "test")).await;
        let (channels, news) = cell.load(&process).await.unwrap();
        let CellChanges::Changes(changes) = news else { panic!("{n}: the whole state was read again") };
        match &appended {
            Ok(()) => assert_eq!(changes, Vec::new()),
            Err(_) => changes.into_iter().for_each(|change| known.apply_op(change).unwrap()),
        }
        assert_eq!(&known, channels, "{n}: {appended:?}");
        let stored = process.channels_at(&run, Position::Latest).await.unwrap();
        assert_eq!(&stored, channels, "{n}: {appended:?}");
        assert_eq!(appended.is_ok(), fault.is_none(), "{n}: {appended:?}");
        assert_eq!(
            stored.get("set").unwrap().get(format!("n{n}")).is_some(),
            fault != Some(Fault::Before),
            "{n}"
        );
    }
    process.check_log(&run).await.unwrap();
}

/// A state that is too large for a base still accepts changes, so that a change can shrink it.
#[tokio::test]
async fn cell_larger_than_base_limit_can_shrink() {
    let world = World::new();
    let process = world.process_with(|b| b.max_body(64 * 1024)).await.unwrap();
    assert_eq!(StateCell::size_limit(&process), 64 * 1024);
    let run =
        process.start(&graph(), Context::new()).id("grows").on_hold("it grows").await.unwrap().run().clone();
    let mut cell = StateCell::new(run.clone());
    let value = "x".repeat(1_000);
    let names: Vec<String> = (0..500).map(|n| format!("value-{n}")).collect();
    for name in &names {
        cell.load(&process).await.unwrap();
        let patch = Patch::from_ops(&[Op::Set(name.clone(), value.as_str().into())]).unwrap();
        cell.append(&process, patch, "test").await.unwrap();
    }
    // Another process can read the state.
    let mut there = StateCell::new(run.clone());
    let (channels, _) = there.load(&process).await.unwrap();
    assert_eq!(channels.len(), names.len());
    assert!(channels.to_json().unwrap().len() > 7 * StateCell::size_limit(&process));
    for name in &names {
        there.load(&process).await.unwrap();
        there
            .append(&process, Patch::from_ops(&[Op::Remove(name.clone(), Vec::new())]).unwrap(), "test")
            .await
            .unwrap();
    }
    // The run writes bases again as soon as the state fits.
    for n in 0..1_200 {
        there.load(&process).await.unwrap();
        let patch = Patch::from_ops(&[Op::Set("value".to_owned(), format!("{value}{n}").into())]).unwrap();
        there.append(&process, patch, "test").await.unwrap();
    }
    process.check_log(&run).await.unwrap();
    let log = process.timeline(&run, Seq::new(0)).await.unwrap();
    let last = log.iter().rposition(|entry| entry.header.base).unwrap();
    assert!(last > 1_000, "the last base is record {last} of {}", log.len());
}

struct Kept(&'static str);

#[tokio::test]
async fn node_finds_runtime_and_app_services() {
    let world = World::new();
    let process = world.process().await.unwrap();
    let kept = process.extension(|| Kept("first"));
    assert_eq!((kept.0, process.extension(|| Kept("second")).0), ("first", "first"));
    let work = async |cx: NodeContext, mut s: Draft<Context>| {
        let runtime = Runtime::of(&cx)?;
        s.set("kept", runtime.extension(|| Kept("third")).0)?;
        s.set("is_its", runtime.executor().to_string())?;
        Ok::<_, NodeError>(s)
    };
    let graph = Graph::<Context>::builder("asks").node("work", work).entry("work").build().unwrap();
    let mut news = process.run_changes();
    let run = process.start(&graph, Context::new()).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<String>("kept").unwrap().as_deref(), Some("first"));
    assert_eq!(state.get::<String>("is_its").unwrap(), Some(process.executor().to_string()));
    let Some(RunChange::Left(left)) = world.pass(news.recv()).await else {
        panic!("the first change must be the end of the run here")
    };
    let end = process.head(run.run()).await.unwrap().unwrap().seq;
    assert_eq!((&left.run, left.ended_at), (run.run(), Some(end)));
    assert_eq!(left.facts.unwrap().workflow.as_str(), "asks");
    process.purge(run.run()).await.unwrap();
    let Some(RunChange::Purged { run: purged, facts, .. }) = news.recv().await else {
        panic!("the next change must be the purge")
    };
    assert_eq!((&purged, facts.workflow.as_str()), (run.run(), "asks"));
    let weak = process.downgrade();
    assert!(weak.upgrade().is_some());
}
