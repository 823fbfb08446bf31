//! Runs with the labels of a queue: an append that makes such a run active also puts it on hold. The queue itself is in another crate.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::NodeError;
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::runtime::{Outcome, Position, RunChange, Runtime, StartRequest, queue_pause_reason};
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::{At, CheckpointStore as _, HeaderRange, MemoryStore};
use ferrata_core::{Epoch, ErrorKind, RunKey, Seq};
use ferrata_testing::World;
use tokio::sync::Notify;

const START: &str = "018f3c5e-0000-7000-8000-000000000001.1000.0";

fn key(id: &str) -> RunKey {
    id.try_into().unwrap()
}

/// A workflow that fails until `is_mended` is set.
fn broken(is_mended: &Arc<AtomicBool>) -> Graph<Context> {
    let is_mended = Arc::clone(is_mended);
    let work = move |_cx, s: Draft<Context>| {
        let is_mended = Arc::clone(&is_mended);
        async move { if is_mended.load(Ordering::Relaxed) { Ok(s) } else { Err("broken".into()) } }
    };
    Graph::<Context>::builder("broken").node("work", work).entry("work").build().unwrap()
}

fn queued(request: StartRequest<Context>) -> StartRequest<Context> {
    request.id("r").label("queue", "mail").label("queue.start", START)
}

async fn statuses(store: &MemoryStore, run: &RunKey) -> Vec<(RecordKind, RunStatus)> {
    let range = HeaderRange::from(Seq::new(0), 100);
    let headers = store.headers(run, range).await.unwrap().items;
    headers.iter().map(|header| (header.kind, header.status)).collect()
}

/// A retry or a move of a failed run puts it on hold in the same append. No record leaves it active, so no process claims it in between.
#[tokio::test]
async fn revived_run_is_held_in_one_append() {
    for is_moved in [false, true] {
        let (world, is_mended) = (World::new(), Arc::default());
        let (process, graph) = (world.process().await.unwrap(), broken(&is_mended));
        process.serve(&graph).unwrap();
        let run = queued(process.start(&graph, Context::new())).await.unwrap();
        assert!(matches!(world.pass(run.wait()).await.unwrap(), Outcome::Failed { .. }));
        is_mended.store(true, Ordering::Relaxed);
        let (mut news, writes) = (process.run_changes(), process.writes());
        let seq = process.head(run.run()).await.unwrap().unwrap().seq;
        match is_moved {
            false => process.retry(run.run()).by("ann").await.unwrap(),
            true => process.go_to(run.run(), "work", "again").by("ann").await.unwrap(),
        }
        assert_eq!(process.writes() - writes, 1);
        let head = process.head(run.run()).await.unwrap().unwrap();
        assert_eq!((head.status, head.owner), (RunStatus::Interrupted, None));
        let now = process.checkpoint(run.run(), Position::Latest).await.unwrap();
        assert_eq!(now.paused, Some(queue_pause_reason("mail")));
        let Some(RunChange::Held { run: held, head: at, .. }) = news.recv().await else {
            panic!("the run must be on hold")
        };
        assert_eq!((&held, at), (run.run(), head.head()));
        // No process starts the run on its own.
        world.pass_for(std::time::Duration::from_secs(86_400)).await;
        assert_eq!(process.head(run.run()).await.unwrap().unwrap().head(), head.head());
        process.unpause(run.run()).by("queue").await.unwrap();
        let again = queued(process.start(&graph, Context::new())).await.unwrap();
        world.pass(again.completed()).await.unwrap();
        let after =
            statuses(world.store(), run.run()).await.split_off(usize::try_from(seq.get()).unwrap() + 1);
        assert_eq!(after[2].1, RunStatus::Interrupted, "{after:?}");
    }
}

/// A run that was paused before it failed keeps the operator's reason next to that of the queue. A slot alone does not unpause it.
#[tokio::test]
async fn paused_run_keeps_both_reasons() {
    let (gate, process) = (Arc::new(Notify::new()), World::new().process().await.unwrap());
    let waits = Arc::clone(&gate);
    let work = move |_cx, _s: Draft<Context>| {
        let gate = Arc::clone(&waits);
        async move {
            gate.notified().await;
            Err::<Draft<Context>, NodeError>("broken".into())
        }
    };
    let graph = Graph::<Context>::builder("gated").node("work", work).entry("work").build().unwrap();
    let run = queued(process.start(&graph, Context::new())).await.unwrap();
    process.pause(run.run(), "lunch").by("ann").await.unwrap();
    gate.notify_one();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
    process.retry(run.run()).await.unwrap();
    let paused = async || process.checkpoint(run.run(), Position::Latest).await.unwrap().paused;
    let both = format!("{}; lunch", queue_pause_reason("mail"));
    assert_eq!(paused().await, Some(both.clone()));
    // The run is moved while it waits for a slot.
    process.go_to(run.run(), "work", "again").await.unwrap();
    assert_eq!(paused().await, Some(both));
}

/// A failed run that waits for a payment to finish is retried, in its own process or in another. The payment is recorded, and the retried nodes wait
/// for a slot.
#[tokio::test]
async fn retry_beside_payment_holds_run() {
    for is_here in [true, false] {
        let store = MemoryStore::new();
        let runtime = Runtime::builder(store.clone()).build().await.unwrap();
        let (let_go, has_failed) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let gate = Arc::clone(&let_go);
        let graph = Graph::<Context>::builder("beside")
            .node("begin", async |_cx, s| Ok(s))
            .node("fails", move |_cx, s: Draft<Context>| {
                let is_first = !has_failed.swap(true, Ordering::Relaxed);
                async move { if is_first { Err("no".into()) } else { Ok(s) } }
            })
            .node("pay", move |_cx, s: Draft<Context>| {
                let gate = Arc::clone(&gate);
                async move {
                    gate.notified().await;
                    Ok(s)
                }
            })
            .effect(Effect::External)
            .entry("begin")
            .edge("begin", ["pay", "fails"])
            .build()
            .unwrap();
        let run = queued(runtime.start(&graph, Context::new())).await.unwrap();
        while runtime.head(run.run()).await.unwrap().unwrap().status != RunStatus::Failed {
            tokio::task::yield_now().await;
        }
        match is_here {
            true => runtime.retry(run.run()).await.unwrap(),
            false => Runtime::builder(store.clone()).operator().retry(run.run()).await.unwrap(),
        }
        let_go.notify_one();
        run.wait().await.unwrap();
        let now = runtime.checkpoint(run.run(), Position::Latest).await.unwrap();
        assert_eq!(
            (now.status, now.paused),
            (RunStatus::Interrupted, Some(queue_pause_reason("mail"))),
            "here: {is_here}"
        );
        runtime.check_log(run.run()).await.unwrap();
        runtime.unpause(run.run()).await.unwrap();
        let run = runtime.resume(&graph, run.run()).await.unwrap();
        assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)), "here: {is_here}");
    }
}

/// A fork counts as a start of its own: it is on hold, unclaimed, and has the tags of the queue.
#[tokio::test]
async fn fork_is_held_as_start_of_its_own() {
    let (world, is_mended) = (World::new(), Arc::new(AtomicBool::new(true)));
    let process = world.process_with(|builder| builder.tags(["gpu"])).await.unwrap();
    let graph = broken(&is_mended);
    let run =
        queued(process.start(&graph, Context::new())).require_tags(["gpu"]).on_hold("not yet").await.unwrap();
    let fork = || process.fork(run.run(), Position::Latest).id("f");
    let handle = fork().drive(&graph).await.unwrap();
    assert!(!handle.is_driven_here());
    let head = process.head(handle.run()).await.unwrap().unwrap();
    assert_eq!((head.status, head.epoch, head.owner), (RunStatus::Interrupted, Epoch::NEVER, None));
    let label = |name: &str| head.facts.labels.get(name).map(str::to_owned);
    assert_eq!((label("queue").as_deref(), label("ferrata.tags").as_deref()), (Some("mail"), Some("gpu")));
    let start = label("queue.start").unwrap();
    assert!(start != START && start.split('.').count() == 3, "{start}");
    let now = process.checkpoint(handle.run(), Position::Latest).await.unwrap();
    assert_eq!(now.paused, Some(queue_pause_reason("mail")));
    // The same request again returns the same fork. A fork into another queue needs another id.
    assert_eq!(fork().await.unwrap(), *handle.run());
    let other = process.fork(run.run(), Position::Latest).id("g").label("queue", "slow").await.unwrap();
    assert_eq!(
        process.checkpoint(&other, Position::Latest).await.unwrap().paused,
        Some(queue_pause_reason("slow"))
    );
    // A run without both queue labels does not use a queue.
    let free = process.start(&graph, Context::new()).id("free").label("queue", "of my own").await.unwrap();
    world.pass(free.completed()).await.unwrap();
    let free =
        process.fork(free.run(), Position::Latest).id("h").start_at("work").drive(&graph).await.unwrap();
    assert!(free.is_driven_here());
}

/// A run that is exported while it is active is imported on hold. The same import again returns the same run.
#[tokio::test]
async fn imported_run_is_held_once() {
    let (world, is_mended) = (World::new(), Arc::new(AtomicBool::new(false)));
    let (process, graph) = (world.process().await.unwrap(), broken(&is_mended));
    let run = queued(process.start(&graph, Context::new())).await.unwrap();
    world.pass(run.wait()).await.unwrap();
    let failed = process.export(run.run()).await.unwrap();
    let end = process.head(run.run()).await.unwrap().unwrap().seq;
    // The exported log ends while the process drove the run.
    let active = process.export_before(run.run(), end).await.unwrap();
    for text in [&active, &failed] {
        let to = Runtime::builder(MemoryStore::new()).operator();
        for _ in 0..2 {
            to.import(text, Some(key("copy"))).await.unwrap();
        }
        to.check_log(&key("copy")).await.unwrap();
        let now = to.checkpoint(&key("copy"), At::Latest).await.unwrap();
        match text == &failed {
            true => assert_eq!((now.status, now.paused), (RunStatus::Failed, None)),
            false => assert_eq!(
                (now.status, now.paused),
                (RunStatus::Interrupted, Some(queue_pause_reason("mail")))
            ),
        }
        // A run that is already on hold is imported unchanged.
        let (text, to) =
            (to.export(&key("copy")).await.unwrap(), Runtime::builder(MemoryStore::new()).operator());
        to.import(&text, None).await.unwrap();
        assert_eq!(to.head(&key("copy")).await.unwrap().unwrap().seq, now.index);
    }
}

/// A file with unreadable records is refused like any other invalid file, even if the run belongs to a queue.
#[tokio::test]
async fn unreadable_import_is_refused() {
    let world = World::new();
    let process = world.process().await.unwrap();
    let graph = broken(&Arc::new(AtomicBool::new(true)));
    let run = queued(process.start(&graph, Context::new())).await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let text = process.export(run.run()).await.unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    let first = lines[0]
        .replace(&format!("\"records\":{}", lines.len() - 1), &format!("\"records\":{}", lines.len() - 2));
    lines[0] = &first;
    // Without its first record, the log has no base.
    lines.remove(1);
    let refused = process.import(&lines.join("\n"), Some(key("copy"))).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(process.head(&key("copy")).await.unwrap().is_none());
}

/// Two runs cannot be the same queue or schedule, so a queue or schedule run cannot be forked, or imported under another id.
#[tokio::test]
async fn copies_of_queues_and_schedules_are_refused() {
    let process = World::new().process().await.unwrap();
    for (workflow, role, value) in
        [("queue", "queue.role", "ledger"), ("schedule:daily", "schedule.role", "clock")]
    {
        let graph =
            Graph::<Context>::builder(workflow).node("rest", async |_cx, s| Ok(s)).entry("rest").build();
        let id = workflow.replace(':', "-");
        let start =
            process.start(&graph.unwrap(), Context::new()).id(&id).label(role, value).on_hold("always");
        let run = start.await.unwrap();
        let refused = process.fork(run.run(), Position::Latest).id("f").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("of another name"), "{refused}");
        let text = process.export(run.run()).await.unwrap();
        let refused = process.import(&text, Some(key("copy"))).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        // A backup can be restored under its own id.
        process.purge(run.run()).await.unwrap();
        process.import(&text, None).await.unwrap();
    }
}
