//! Data that a prune must keep, retention policies, and the views of pruned, failed and cancelled runs.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::runtime::{Checkpoint, Outcome, Position, RetentionPolicy, Runtime, SweepLimits};
use ferrata_core::state::{Context, Draft, Reducer};
use ferrata_core::store::{CheckpointStore, MemoryStore, Order, Page, RunAppend};
use ferrata_core::{Clock, ErrorKind, Seq, Timestamp};
use ferrata_testing::ManualClock;

use super::prunes::cut_at;
use super::random_runs::{RandomRun, key, last, records};
use super::seeds;

const HOUR: Duration = Duration::from_secs(3_600);

struct World {
    store: MemoryStore,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
        Self { store: MemoryStore::with_clock(Arc::clone(&clock) as _), clock }
    }

    async fn process(&self) -> Runtime {
        let builder = Runtime::builder(self.store.clone()).clock(Arc::clone(&self.clock) as _);
        builder.store_retries(1, Duration::from_millis(1)).build().await.unwrap()
    }

    /// Prunes all records of the run `r` except the last.
    async fn cut_to_the_last(&self) {
        cut_at(&self.store, &key("r"), last(&self.store, &key("r")).await).await;
    }
}

async fn noted(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    Ok(Context::update().append("path", [cx.node().to_string()]).into())
}

pub(crate) fn chain(nodes: usize) -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("chain").channel("path", Reducer::Append).entry("n0");
    for at in 0..nodes {
        builder = builder.node(format!("n{at}"), noted);
        if at > 0 {
            builder = builder.edge(format!("n{}", at - 1), format!("n{at}"));
        }
    }
    builder.build().unwrap()
}

/// A graph with waits of every kind at once: a question after a step, a message that was set aside, and a timer.
fn waiting() -> Graph<Context> {
    Graph::<Context>::builder("waits")
        .channel("path", Reducer::Append)
        .node("split", noted)
        .node("asks", async |cx, mut s| {
            let stamp: i64 = cx.step("stamp", async || Ok::<_, std::io::Error>(17)).await?;
            let answer: i64 = cx.ask("q", "How much?").await?;
            s.set("asked", stamp + answer)?;
            Ok(s)
        })
        .node("sleeps", async |cx, mut s| {
            cx.sleep(HOUR).await?;
            s.set("slept", true)?;
            Ok(s)
        })
        .node("takes", async |cx, mut s| {
            let (one, two): (String, String) = (cx.receive().await?, cx.receive().await?);
            s.set("took", format!("{one} {two}"))?;
            Ok(s)
        })
        .node("join", noted)
        .entry("split")
        .edge("split", ["asks", "sleeps"])
        .edge(["asks", "sleeps"], "takes")
        .edge("takes", "join")
        .build()
        .unwrap()
}

/// Guarantees: CHECKPOINT-2.
#[tokio::test]
async fn questions_messages_timers_and_steps_outlive_a_prune() {
    let world = World::new();
    let graph = waiting();
    let one = world.process().await;
    let run = one.start(&graph, Context::new()).id("r").await.unwrap();
    while one.questions(&key("r")).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let asked = one.questions(&key("r")).await.unwrap();
    one.send(&key("r"), "hello").await.unwrap();
    one.send(&key("r"), "again").await.unwrap();
    one.shutdown(Duration::ZERO).await.unwrap();
    drop(run);
    let before = one.checkpoint(&key("r"), Position::Latest).await.unwrap();
    assert_eq!((before.unread, before.questions.len(), before.next.len()), (2, 1, 2));
    world.cut_to_the_last().await;
    let other = world.process().await;
    let after = other.checkpoint(&key("r"), Position::Latest).await.unwrap();
    assert_eq!((&after.questions, after.unread, &after.next), (&before.questions, 2, &before.next));
    assert_eq!(after.next.iter().find(|next| next.node.as_str() == "asks").unwrap().steps, ["stamp"]);
    assert_eq!(other.questions(&key("r")).await.unwrap(), asked);
    assert!(after.input.is_none() && before.input.is_some());

    other.respond(&key("r"), "asks", Answer::accept(3).unwrap()).await.unwrap();
    world.cut_to_the_last().await;
    let state = loop {
        world.clock.advance(HOUR);
        // The run may be idle because its timer has not expired.
        match other.resume(&graph, "r").await.unwrap().wait().await.unwrap() {
            Outcome::Completed(state) => break state,
            Outcome::Sleeping { .. } => {}
            outcome => panic!("{outcome:?}"),
        }
    };
    assert_eq!(state.get::<i64>("asked").unwrap(), Some(20));
    assert_eq!(state.get::<String>("took").unwrap().as_deref(), Some("hello again"));
    assert_eq!(state.get::<bool>("slept").unwrap(), Some(true));
}

/// Guarantees: CHECKPOINT-2.
#[tokio::test]
async fn prune_preserves_retry_counters_and_failed_frontier() {
    let world = World::new();
    let broken = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&broken);
    let graph = Graph::<Context>::builder("fails")
        .channel("path", Reducer::Append)
        .node("first", noted)
        .node("fails", move |_cx: NodeContext, s: Draft<Context>| {
            let broken = switch.load(Ordering::Relaxed);
            async move { if broken { Err("broken".into()) } else { Ok(s) } }
        })
        .retry(RetryPolicy::none().with_attempts(3).with_delay(HOUR))
        .node("last", noted)
        .entry("first")
        .edge("first", "fails")
        .edge("fails", "last")
        .build()
        .unwrap();
    let run = key("r");
    // Each attempt runs in another process, and only the record of the previous attempt is retained.
    for failed in 1..=2 {
        let runtime = world.process().await;
        let handle = match failed {
            1 => runtime.start(&graph, Context::new()).id("r").await.unwrap(),
            _ => runtime.resume(&graph, "r").await.unwrap(),
        };
        while runtime.checkpoint(&run, Position::Latest).await.unwrap().next.iter().all(|p| p.failed < failed)
        {
            tokio::task::yield_now().await;
        }
        runtime.shutdown(Duration::ZERO).await.unwrap();
        drop(handle);
        let before = runtime.checkpoint(&run, Position::Latest).await.unwrap();
        world.cut_to_the_last().await;
        let waits = runtime.checkpoint(&run, Position::Latest).await.unwrap();
        assert_eq!((waits.next[0].failed, waits.next[0].stopped), (failed, false));
        assert!(waits.next[0].retry_at > Some(world.clock.now()));
        assert_eq!(waits.next, before.next);
        world.clock.advance(HOUR);
    }
    let runtime = world.process().await;
    let Outcome::Failed { failure, .. } = runtime.resume(&graph, "r").await.unwrap().wait().await.unwrap()
    else {
        panic!("the third attempt must be the last one")
    };
    world.cut_to_the_last().await;
    let failed = runtime.checkpoint(&run, Position::Latest).await.unwrap();
    assert_eq!((failed.status, failed.failure.as_ref()), (RunStatus::Failed, Some(&failure)));
    let next = &failed.next[0];
    assert_eq!((next.node.as_str(), next.stopped, next.failed), ("fails", true, 3));
    let text = runtime.post_mortem(&run).await.unwrap();
    assert!(text.contains("`fails@1` stopped the run, 3 attempts failed"), "{text}");
    broken.store(false, Ordering::Relaxed);
    runtime.retry(&run).await.unwrap();
    world.cut_to_the_last().await;
    let state = runtime.resume(&graph, "r").await.unwrap().wait().await.unwrap().completed().unwrap();
    assert_eq!(state.get::<Vec<String>>("path").unwrap().unwrap(), ["first", "last"]);
}

/// Guarantees: FORK-5.
#[tokio::test]
async fn fork_of_aborted_cancelled_run_is_refused() {
    let world = World::new();
    let graph = waiting();
    let runtime = world.process().await;
    runtime.start(&graph, Context::new()).id("r").await.unwrap();
    runtime.cancel(&key("r"), "enough").await.unwrap();
    while runtime.head(&key("r")).await.unwrap().unwrap().status != RunStatus::Cancelled {
        tokio::task::yield_now().await;
    }
    let before = runtime.checkpoint(&key("r"), Position::Latest).await.unwrap();
    assert_eq!((before.status, before.cancelled.as_deref()), (RunStatus::Cancelled, Some("enough")));
    world.cut_to_the_last().await;
    let after = runtime.checkpoint(&key("r"), Position::Latest).await.unwrap();
    assert_eq!((after.status, after.cancelled.as_deref()), (RunStatus::Cancelled, Some("enough")));
    let error = runtime.fork(&key("r"), Position::Latest).drive(&graph).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound), "{error}");
    assert!(error.to_string().contains("start_at"), "the error must name the remedy: {error}");
    runtime.fork(&key("r"), Position::Latest).id("f").start_at("join").drive(&graph).await.unwrap();
}

/// With a coarse frequency, one record contains several activations, and each of their positions is this record.
///
/// Guarantees: CHECKPOINT-4, HISTORY-1.
#[tokio::test]
async fn coarse_record_lists_each_activation() {
    for nth in [2, 3, 100] {
        let world = World::new();
        let (runtime, graph) = (world.process().await, chain(7));
        let nth = CheckpointFrequency::EveryNth(nth.try_into().unwrap());
        let request = runtime.start(&graph, Context::new()).id("r");
        let policy = CheckpointPolicy::default().with_frequency(nth);
        request.checkpoints(policy).await.unwrap().wait().await.unwrap();
        let now = runtime.checkpoint(&key("r"), Position::Latest).await.unwrap();
        assert_eq!(now.history.len(), 7, "{nth:?}");
        for (at, past) in now.history.iter().enumerate() {
            assert_eq!(past.node.as_str(), format!("n{at}"), "{nth:?}");
            let position: Position = format!("n{at}@1").parse().unwrap();
            let there = runtime.checkpoint(&key("r"), position.clone()).await.unwrap();
            assert_eq!(Some(there.index), past.index, "{nth:?}: {position}");
            assert!(there.history.len() > at, "{nth:?}: {position}");
            let state = runtime.state_at(&graph, &key("r"), position).await.unwrap();
            assert_eq!(state.get::<Vec<String>>("path").unwrap().unwrap().len(), there.history.len());
            // The checkpoint also contains the activations that ended in the same record.
            assert_eq!(there.history.last().unwrap().index, past.index);
        }
        let nowhere = runtime.checkpoint(&key("r"), "n0@2".parse::<Position>().unwrap()).await.unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    }
}

/// Every checkpoint of every random run can be restored from its JSON, and has a post mortem.
///
/// Guarantees: CHECKPOINT-1.
#[tokio::test]
async fn checkpoint_survives_json_round_trip() {
    let mut kinds = std::collections::BTreeSet::new();
    let mut statuses = std::collections::BTreeSet::new();
    let mut fields = std::collections::BTreeSet::new();
    for seed in seeds(60) {
        let store = RandomRun::of(seed).live().await;
        let runtime = Runtime::builder(store.clone()).build().await.unwrap();
        for seq in 0..=last(&store, &key("r")).await {
            let there = runtime.checkpoint(&key("r"), Seq::new(seq)).await.unwrap();
            let text = serde_json::to_string(&there).unwrap();
            assert_eq!(serde_json::from_str::<Checkpoint>(&text).unwrap(), there, "seed {seed} at {seq}");
            named(&serde_json::to_value(&there).unwrap(), "", &mut fields);
            kinds.insert(format!("{:?}", there.kind));
            statuses.insert(there.status.to_string());
        }
        let told = runtime.post_mortem(&key("r")).await.unwrap();
        assert!(told.starts_with("# Run default/r: "), "seed {seed}");
    }
    // The random runs must contain records of all kinds, or the checks prove little.
    let all = ["Attempt", "Claim", "Edit", "Intent", "Node", "Signal", "Start", "Status", "Step"];
    for kind in all {
        assert!(kinds.contains(kind), "no random run has a record of kind {kind}: {kinds:?}");
    }
    assert!(statuses.len() >= 5, "{statuses:?}");
    let page = include_str!("../../../../docs/reference/checkpoints.md");
    for field in &fields {
        assert!(
            page.contains(&format!("`{field}`")),
            "docs/reference/checkpoints.md does not mention `{field}`"
        );
    }
    assert!(fields.len() > 40, "{fields:?}");
}

/// A checkpoint lists retained records before the last base, too. A log of several segments is read segment by segment.
#[tokio::test]
async fn checkpoint_includes_retained_records_before_base() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("swells")
        .node("write", async |cx: NodeContext, mut s: Draft<Context>| {
            s.set("big", cx.visit().get().to_string().repeat(9_000))?;
            s.set("round", cx.visit().get())?;
            Ok::<_, NodeError>(s)
        })
        .node("end", async |_cx, s| Ok(s))
        .entry("write")
        .route("write", ["write", "end"], |s, _cx| {
            if s.get::<u32>("round").ok().flatten() < Some(20) { "write" } else { "end" }
        })
        .build()
        .unwrap();
    let mut input = Context::new();
    input.set("first", true).unwrap();
    runtime.start(&graph, input).id("r").await.unwrap().completed().await.unwrap();
    let run = key("r");
    let all = runtime.history(&run, Page::first(100).with_order(Order::OldestFirst)).await.unwrap().items;
    assert!(all.iter().filter(|header| header.base).count() >= 3, "the log must have several segments");
    for header in &all {
        let there = runtime.checkpoint(&run, header.seq).await.unwrap();
        assert_eq!(there.input, Some(serde_json::json!({ "first": true })), "at {}", header.seq);
        assert!(there.history.iter().all(|past| past.index.is_some()), "at {}", header.seq);
    }
}

/// Collects the names of all fields, except those within a run's own data.
fn named(value: &serde_json::Value, of: &str, fields: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Array(items) => items.iter().for_each(|item| named(item, of, fields)),
        serde_json::Value::Object(map) => {
            let own = ["state", "input", "results", "visited", "labels", "gates", "item", "expects"];
            for (name, inner) in map.iter().filter(|_| !own.contains(&of)) {
                fields.insert(name.clone());
                named(inner, name, fields);
            }
        }
        _ => {}
    }
}

/// Guarantees: RETAIN-3.
#[tokio::test]
async fn retention_keeps_by_age_size_and_status() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, chain(8));
    runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    let run = key("r");
    world.clock.advance(HOUR);
    for _ in 0..3 {
        runtime.pin(&run, Seq::new(0)).await.unwrap();
        runtime.unpin(&run, Seq::new(0)).await.unwrap();
    }
    let page = Page::first(100).with_order(Order::OldestFirst);
    let all = runtime.history(&run, page).await.unwrap().items;
    let first = async || runtime.head(&run).await.unwrap().unwrap().first.get();
    let apply = async |policy: RetentionPolicy| {
        let removed = runtime.apply_retention(&run, &policy).await.unwrap();
        (removed.records, removed.bytes)
    };

    // A policy ignores runs with other statuses, and a policy without a limit keeps everything.
    let failed = RetentionPolicy::keep_all().keep_last(1).only([RunStatus::Failed, RunStatus::Cancelled]);
    assert_eq!((apply(failed).await, apply(RetentionPolicy::keep_all()).await), ((0, 0), (0, 0)));
    // A record that any limit keeps is retained.
    let old = RetentionPolicy::keep_all().keep_for(Duration::from_secs(60));
    assert_eq!(apply(old.clone().keep_last(100)).await, (0, 0));
    assert_eq!(apply(old.clone().keep_bytes(1 << 20)).await, (0, 0));
    // Only the records of the last minute remain, which are the pins.
    let (dropped, bytes) = apply(old.only([RunStatus::Completed])).await;
    let young = all.iter().filter(|header| header.at.unix_ms() > 1_000_000 + 60_000).count();
    assert_eq!((dropped, first().await), ((all.len() - young) as u64, (all.len() - young) as u64));
    let given: u64 = all.iter().filter(|h| h.seq.get() < dropped).map(|h| u64::from(h.body_len)).sum();
    assert_eq!(bytes, given);
    // Keep the last records that fit into the limit.
    let sizes: Vec<u64> = all.iter().rev().take(3).map(|header| u64::from(header.body_len)).collect();
    apply(RetentionPolicy::keep_all().keep_bytes(sizes[0] + sizes[1])).await;
    let newest = all.last().unwrap().seq.get();
    assert_eq!(first().await, newest - 1);
    // The last record is always kept, however large it is.
    apply(RetentionPolicy::keep_all().keep_bytes(0)).await;
    assert_eq!(first().await, newest);
    assert_eq!(apply(RetentionPolicy::keep_all().keep_last(0)).await, (0, 0));
}

/// Guarantees: RETAIN-2.
#[tokio::test]
async fn a_dry_sweep_says_what_the_sweep_does() {
    for at_once in [1, 3, 16] {
        dry_and_done(NonZeroUsize::new(at_once).unwrap()).await;
    }
}

async fn dry_and_done(at_once: NonZeroUsize) {
    let world = World::new();
    let runtime = world.process().await;
    for at in 0..5 {
        let run = runtime.start(&chain(4 + at), Context::new()).id(format!("r{at}")).await.unwrap();
        run.wait().await.unwrap();
    }
    let policy = RetentionPolicy::keep_all().keep_last(6).purge_after(RunStatus::Completed, HOUR);
    let sweep = async |dry| {
        let limits = SweepLimits::default().with_at_once(at_once);
        let report = runtime.sweep(&policy, limits, dry).await.unwrap();
        assert!(report.failed.is_empty() && report.next.is_none());
        (report.runs, report.pruned, report.purged, report.records, report.bytes)
    };
    let (said, done) = (sweep(true).await, sweep(false).await);
    assert_eq!(said, done);
    assert!(done.1 > 0 && done.2 == 0, "{done:?}");
    assert_eq!(sweep(false).await, (5, 0, 0, 0, 0));
    world.clock.advance(HOUR);
    let (said, done) = (sweep(true).await, sweep(false).await);
    assert_eq!(said, done);
    assert_eq!((done.1, done.2), (0, 5));
    assert_eq!(sweep(false).await, (0, 0, 0, 0, 0));
}

/// A sweep does not purge a run that has a pinned record.
///
/// Guarantees: PIN-1.
#[tokio::test]
async fn pin_survives_prune_and_run_removal() {
    let world = World::new();
    let (runtime, graph, run) = (world.process().await, chain(9), key("r"));
    runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    runtime.pin(&run, Seq::new(4)).by("ann").await.unwrap();
    runtime.pin(&run, Seq::new(6)).await.unwrap();
    let twice = runtime.pin(&run, Seq::new(4)).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
    let pinned = runtime.checkpoint(&run, Seq::new(4)).await.unwrap().state;
    let policy = RetentionPolicy::keep_all().keep_last(1).purge_after(RunStatus::Completed, Duration::ZERO);
    let sweep = async || runtime.sweep(&policy, SweepLimits::default(), false).await.unwrap();
    let report = sweep().await;
    assert_eq!((report.purged, report.pruned, report.records), (0, 1, 4));
    // The base contains the pins, too.
    for _ in 0..2 {
        assert_eq!(sweep().await.records, 0);
        assert_eq!(runtime.checkpoint(&run, Seq::new(4)).await.unwrap().state, pinned);
    }
    // A fork does not inherit the pins.
    let last = Seq::new(last(&world.store, &run).await);
    runtime.fork(&run, last).id("f").start_at("n3").drive(&graph).await.unwrap().wait().await.unwrap();
    let keep_one = RetentionPolicy::keep_all().keep_last(1);
    assert!(runtime.apply_retention(&key("f"), &keep_one).await.unwrap().records > 5);
    runtime.purge(&key("f")).await.unwrap();
    runtime.unpin(&run, Seq::new(4)).await.unwrap();
    assert_eq!(sweep().await.records, 2);
    runtime.unpin(&run, Seq::new(6)).await.unwrap();
    assert_eq!(sweep().await.purged, 1);
    assert!(runtime.head(&run).await.unwrap().is_none());
    assert_eq!(runtime.pin(&run, Seq::new(0)).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Guarantees: PURGE-2.
#[tokio::test]
async fn purge_reports_removed_records_and_frees_id() {
    let world = World::new();
    let (runtime, graph, run) = (world.process().await, chain(5), key("r"));
    runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    let old = records(&world.store, &run).await;
    let bytes: u64 = old.iter().map(|record| record.body.len() as u64).sum();
    let purged = runtime.purge(&run).await.unwrap();
    assert_eq!((purged.records, purged.bytes), (old.len() as u64, bytes));
    let nothing = runtime.purge(&run).await.unwrap();
    assert_eq!((nothing.records, nothing.bytes), (0, 0));
    for error in [
        runtime.state_at(&graph, &run, Position::Latest).await.unwrap_err(),
        runtime.export(&run).await.unwrap_err(),
        runtime.lineage(&run).await.unwrap_err(),
        runtime.apply_retention(&run, &RetentionPolicy::keep_all().keep_last(1)).await.unwrap_err(),
        runtime.verify(&graph, &run).await.unwrap_err(),
        runtime.post_mortem(&run).await.unwrap_err(),
        runtime.fork(&run, Position::Latest).drive(&graph).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    let new = records(&world.store, &run).await;
    assert_eq!(new.len(), old.len());
    // The record that a writer of the old run would write next, and a repetition of its last record.
    let (head, before) = (old.last().unwrap(), &old[old.len() - 2]);
    let mut next = head.clone();
    (next.header.seq, next.header.prev) = (head.header.seq.next(), Some(head.header.id));
    for (expected, record) in [(head.header.head(), next), (before.header.head(), head.clone())] {
        let append =
            RunAppend { run: run.clone(), expected: Some(expected), records: vec![record], facts: None };
        let error = world.store.append(vec![append]).await.pop().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    }
    assert_eq!(records(&world.store, &run).await, new);
}

/// Guarantees: PURGE-1.
#[tokio::test]
async fn purge_refuses_active_local_run() {
    let world = World::new();
    let runtime = world.process().await;
    let works = Graph::<Context>::builder("works")
        .node("works", async |_cx, _s| {
            std::future::pending::<()>().await;
            Ok(())
        })
        .entry("works")
        .build()
        .unwrap();
    let run = runtime.start(&works, Context::new()).id("r").await.unwrap();
    let error = runtime.purge(&key("r")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongStatus, "{error}");
    drop(run);
    assert!(runtime.head(&key("r")).await.unwrap().is_some());
}

/// A fork of a fork uses the id of the purged first source again. The lineage ends at the purged run.
///
/// Guarantees: HISTORY-5.
#[tokio::test]
async fn fork_lineage_ends_at_reused_id() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, chain(4));
    runtime.start(&graph, Context::new()).id("a").await.unwrap().wait().await.unwrap();
    let mut from = "a";
    for id in ["b", "c"] {
        runtime.fork(&key(from), Seq::new(0)).id(id).drive(&graph).await.unwrap().wait().await.unwrap();
        from = id;
    }
    let line = async |of: &str| {
        let line = runtime.lineage(&key(of)).await.unwrap();
        line.iter()
            .map(|one| format!("{}{}", one.run.run, if one.status.is_some() { "" } else { "?" }))
            .collect::<Vec<_>>()
    };
    assert_eq!(line("c").await, ["a", "b", "c"]);
    runtime.purge(&key("a")).await.unwrap();
    assert_eq!(line("c").await, ["a?", "b", "c"], "the forks must list the purged run a");
    runtime.fork(&key("c"), Seq::new(0)).id("a").drive(&graph).await.unwrap().wait().await.unwrap();
    assert_eq!(line("c").await, ["a?", "b", "c"]);
    assert_eq!(line("a").await, ["a?", "b", "c", "a"]);
}

/// Guarantees: CHECKPOINT-2.
#[tokio::test]
async fn checkpoint_lists_open_questions_at_every_position() {
    let world = World::new();
    let graph = waiting();
    let runtime = world.process().await;
    runtime.start(&graph, Context::new()).id("r").await.unwrap();
    while runtime.questions(&key("r")).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    runtime.shutdown(Duration::ZERO).await.unwrap();
    let to = last(&world.store, &key("r")).await;
    let asked = async |seq| {
        let there = runtime.checkpoint(&key("r"), Seq::new(seq)).await.unwrap();
        (there.kind, there.questions.len())
    };
    let open: Vec<_> = {
        let mut open = Vec::new();
        for seq in 0..=to {
            open.push(asked(seq).await);
        }
        open
    };
    // No question is open before it was asked.
    assert_eq!(open[0], (RecordKind::Start, 0));
    assert_eq!(open.last().unwrap().1, 1);
    assert!(open.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{open:?}");
    assert!(world.clock.now().unix_ms() < 1_000_000 + 3_600_000);
}
