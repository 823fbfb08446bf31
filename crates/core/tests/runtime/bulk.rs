//! Bulk operations on all runs of a listing.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture;
use std::num::NonZeroUsize;
use std::sync::Arc;

use ferrata_core::graph::{Effect, Graph};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{BulkReport, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{ErrorKind, RunKey};
use tokio::sync::Notify;

use super::world::World;

/// A graph that ends, fails or waits, as its input says.
fn graph() -> Graph<Context> {
    Graph::<Context>::builder("bulk")
        .node("n", async |cx: NodeContext, s: Draft<Context>| match s.get::<String>("do")?.as_deref() {
            Some("fail") if !s.contains_key("mended") => Err(NodeError::new("broken")),
            Some("wait") => {
                cx.receive::<String>().await?;
                Ok(s)
            }
            _ => Ok(s),
        })
        .entry("n")
        .build()
        .unwrap()
}

/// Starts `runs` runs that all do `what`, with a label of the same value.
async fn start(runtime: &Runtime, what: &str, runs: usize) {
    for n in 0..runs {
        let mut input = Context::new();
        input.set("do", what).unwrap();
        let start = runtime.start(&graph(), input).id(format!("{what}-{n}")).label("do", what);
        start.await.unwrap().wait().await.unwrap();
    }
}

async fn count(runtime: &Runtime, status: RunStatus) -> usize {
    runtime.runs().status(status).limit(1_000).await.unwrap().items.len()
}

fn sorted(report: &BulkReport) -> Vec<String> {
    let mut runs: Vec<String> = report.done.iter().map(|run| run.run.to_string()).collect();
    runs.sort();
    runs
}

/// A bulk action covers all pages of its listing, and reports each refused run.
///
/// Guarantees: CONTROL-10.
#[tokio::test]
async fn bulk_action_covers_all_pages() {
    let world = World::new();
    let one = world.process().await;
    start(&one, "wait", 130).await;
    start(&one, "end", 3).await;
    let before = one.head(&RunKey::try_from("wait-0").unwrap()).await.unwrap().unwrap().seq;
    let dry = one.runs().workflow("bulk").cancel_all("no").dry_run().await.unwrap();
    assert_eq!(
        (dry.done.len(), dry.refused.len()),
        (130, 0),
        "the listing has more than one page, and only runs that can be cancelled"
    );
    assert_eq!(one.head(&RunKey::try_from("wait-0").unwrap()).await.unwrap().unwrap().seq, before);

    // The limit applies to the whole action, and the rest of the runs stays in the listing.
    let part = one.runs().label("do", "wait").limit(5).cancel_all("no").by("ann").await.unwrap();
    assert_eq!(part.done.len(), 5);
    assert_eq!(count(&one, RunStatus::Cancelled).await, 5);
    assert!(part.next.is_some());
    let at_once = NonZeroUsize::new(3).unwrap();
    let rest =
        one.runs().label("do", "wait").after(part.next).cancel_all("no").at_once(at_once).await.unwrap();
    assert_eq!((rest.done.len(), rest.refused.len(), rest.next.is_none()), (125, 0, true));
    assert_eq!(count(&one, RunStatus::Cancelled).await, 130);
    assert_eq!(rest.to_string(), "125 runs done, none refused");

    let gone = one.runs().status(RunStatus::Cancelled).purge_all().await.unwrap();
    assert_eq!(gone.done.len(), 130);
    assert_eq!(one.runs().limit(1_000).await.unwrap().items.len(), 3);
    assert_eq!(
        one.runs().label("do", "nothing").purge_all().await.unwrap().to_string(),
        "0 runs done, none refused"
    );
}

/// Guarantees: CONTROL-10.
#[tokio::test]
async fn bulk_action_reports_refusals_and_continues() {
    let world = World::new();
    let one = world.process().await;
    for (what, runs) in [("wait", 2), ("end", 2), ("fail", 2)] {
        start(&one, what, runs).await;
    }
    // If the caller lists statuses explicitly, runs whose status forbids the action are reported as refused.
    let all = [RunStatus::Completed, RunStatus::AwaitingInput, RunStatus::Failed];
    let of_all = || all.iter().fold(one.runs(), |runs, status| runs.status(*status));
    for is_dry in [true, false] {
        let purge = of_all().purge_all();
        let report = if is_dry { purge.dry_run().await } else { purge.await }.unwrap();
        assert_eq!(sorted(&report), ["end-0", "end-1", "fail-0", "fail-1"], "dry: {is_dry}");
        assert_eq!(report.refused.len(), 2);
        for error in &report.refused {
            assert_eq!(error.kind(), ErrorKind::WrongStatus);
            assert!(error.to_string().contains("wait-"), "{error}");
        }
        assert_eq!(report.to_string(), "4 runs done, 2 refused");
    }
    assert_eq!(one.runs().await.unwrap().items.len(), 2);
    // An invalid workflow name is an error, not an empty listing.
    assert_eq!(one.runs().workflow("\n").cancel_all("no").await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// A bulk purge refuses a failed run while one of its `External` nodes is still running, so that the node's result is recorded.
///
/// Guarantees: CONTROL-11.
#[tokio::test]
async fn bulk_purge_skips_failed_run_with_running_node() {
    let (world, begun, go) = (World::new(), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let one = world.process().await;
    let (fails, begins, work) = (Arc::clone(&begun), Arc::clone(&begun), Arc::clone(&go));
    let graph = Graph::<Context>::builder("bulk")
        .node("split", async |_cx, _s| Ok(()))
        .node("broken", move |_cx: NodeContext, _s: Draft<Context>| {
            let begun = Arc::clone(&fails);
            async move {
                begun.notified().await;
                Err::<(), _>(NodeError::new("broken"))
            }
        })
        .node("pays", move |_cx: NodeContext, s: Draft<Context>| {
            let (begun, work) = (Arc::clone(&begins), Arc::clone(&work));
            async move {
                begun.notify_one();
                work.notified().await;
                Ok(s)
            }
        })
        .effect(Effect::External)
        .entry("split")
        .edge("split", ["broken", "pays"])
        .build()
        .unwrap();
    let run = one.start(&graph, Context::new()).id("r").await.unwrap();
    while count(&one, RunStatus::Failed).await == 0 {
        tokio::task::yield_now().await;
    }
    let report = one.runs().purge_all().await.unwrap();
    assert_eq!((report.done.len(), report.refused.len()), (0, 1));
    assert_eq!(report.refused[0].kind(), ErrorKind::WrongStatus, "{}", report.refused[0]);
    go.notify_one();
    run.wait().await.unwrap();
    assert_eq!(one.runs().purge_all().await.unwrap().to_string(), "1 run done, none refused");
}

/// Guarantees: CONTROL-10.
#[tokio::test]
async fn failed_runs_are_tried_again_together() {
    let world = World::new();
    let one = world.process().await;
    start(&one, "fail", 4).await;
    start(&one, "end", 1).await;
    let mended = || ferrata_core::state::Patch::from_json(r#"[{"set":["mended",true]}]"#).unwrap();
    for n in 0..4 {
        one.edit(&RunKey::try_from(&*format!("fail-{n}")).unwrap(), mended()).await.unwrap();
    }
    // Two operators retry at the same time: each run is retried once.
    let two = world.process().await;
    let (first, second) =
        tokio::join!(one.runs().retry_all().into_future(), two.runs().retry_all().into_future());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.done.len() + second.done.len(), 4, "{first} / {second}");
    assert!(first.refused.iter().chain(&second.refused).all(|error| error.kind() == ErrorKind::WrongStatus));
    for n in 0..4 {
        one.resume(&graph(), &*format!("fail-{n}")).await.unwrap().completed().await.unwrap();
    }
    assert_eq!(count(&one, RunStatus::Completed).await, 5);
}

/// A bulk action does not touch queue runs and schedule runs, unless its filter names them.
#[tokio::test]
async fn bulk_action_skips_unnamed_queues_and_schedules() {
    let world = World::new();
    let one = world.process().await;
    let keep = |workflow: &str, label: (&str, &str)| {
        let graph = Graph::<Context>::builder(workflow).node("n", async |_cx, s| Ok(s)).entry("n").build();
        one.start(&graph.unwrap(), Context::new()).id(workflow).label(label.0, label.1).on_hold("it is kept")
    };
    keep("queue", ("queue.role", "ledger")).await.unwrap();
    keep("schedule:nightly", ("schedule.role", "clock")).await.unwrap();
    // An application may use the same label names or similar run ids.
    keep("other", ("queue.role", "ledger")).await.unwrap();
    keep("schedule:other", ("a", "b")).await.unwrap();
    let all = || one.runs().cancel_all("an emergency");
    assert_eq!(sorted(&all().dry_run().await.unwrap()), ["other", "schedule:other"]);
    assert_eq!(sorted(&all().await.unwrap()), ["other", "schedule:other"]);
    assert_eq!(count(&one, RunStatus::Interrupted).await, 2);
    let named = one.runs().workflow("queue").cancel_all("it is not needed").await.unwrap();
    assert_eq!(sorted(&named), ["queue"]);
    assert!(one.runs().purge_all().await.unwrap().done.iter().all(|run| run.run.as_str() != "queue"));
}
