//! Runs of many kinds, and the expected sentences about each.

use std::sync::Arc;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::record::RunStatus;
use ferrata::{Answer, Ask, Clock as _, EnvelopeOptions, EnvelopeStore, Keyring, RunKey, SystemClock};

use crate::service::{PATIENCE, busy, charge};
use crate::support::Place;

const HOUR: Duration = Duration::from_secs(3_600);

/// A run, its status, and a part of each sentence about it, in order.
pub(crate) struct Latest {
    pub(crate) run: &'static str,
    pub(crate) status: RunStatus,
    pub(crate) why: &'static [&'static str],
}

/// A store with runs.
pub(crate) struct Filled {
    pub(crate) service: Runtime,
    /// Reads the runs, and drives none.
    pub(crate) operator: Runtime,
    pub(crate) latest: Vec<Latest>,
    /// The open questions, each with its run.
    pub(crate) asked: Vec<String>,
}

fn pay() -> Graph<Context> {
    Graph::<Context>::builder("pay")
        .gate("approve", |_s: &Context| Ask::<bool>::new("Pay | wait?"), |s, yes| s.set("approved", yes))
        .gate("amount", |_s: &Context| Ask::<u32>::new("How much?"), |s, eur| s.set("eur", eur))
        .entry("approve")
        .edge("approve", "amount")
        .build()
        .unwrap()
}

fn nap() -> Graph<Context> {
    Graph::<Context>::builder("nap")
        .node("sleep", async |cx: NodeContext, s: Draft<Context>| {
            cx.sleep(HOUR).await?;
            Ok::<_, NodeError>(s)
        })
        .entry("sleep")
        .build()
        .unwrap()
}

fn listen() -> Graph<Context> {
    Graph::<Context>::builder("listen")
        .node("hear", async |cx: NodeContext, s: Draft<Context>| {
            cx.receive::<String>().await?;
            Ok::<_, NodeError>(s)
        })
        .entry("hear")
        .build()
        .unwrap()
}

fn fetch() -> Graph<Context> {
    Graph::<Context>::builder("fetch")
        .node("get", async |_cx, _s: Draft<Context>| Err::<(), _>(NodeError::from("connection refused")))
        .retry(RetryPolicy::none().with_attempts(3).with_delay(HOUR).with_cap(HOUR))
        .entry("get")
        .build()
        .unwrap()
}

fn broken(name: &str) -> Graph<Context> {
    Graph::<Context>::builder(name)
        .node("begin", async |_cx, s| Ok(s))
        .node("send", async |_cx, _s: Draft<Context>| {
            Err::<(), _>(NodeError::from("the bank is closed").fatal())
        })
        .entry("begin")
        .edge("begin", "send")
        .build()
        .unwrap()
}

fn agent() -> Graph<Context> {
    Graph::<Context>::builder("agent")
        .gate("year", |_s: &Context| Ask::<u32>::new("For which year?"), |s, year| s.set("year", year))
        .entry("year")
        .build()
        .unwrap()
}

fn research() -> Graph<Context> {
    let agent = agent();
    Graph::<Context>::builder("research")
        .node("delegate", move |cx: NodeContext, s: Draft<Context>| {
            let agent = agent.clone();
            async move {
                cx.child(&agent, Context::new()).name("reader").await?;
                Ok::<_, NodeError>(s)
            }
        })
        .node("write", async |_cx, s| Ok(s))
        .entry("delegate")
        .edge("delegate", "write")
        .build()
        .unwrap()
}

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

/// Waits until a run has this status. `idle`: whether it must have no owner.
async fn until(runtime: &Runtime, id: &str, status: RunStatus, idle: bool) {
    let clock = SystemClock::new();
    loop {
        let head = runtime.head(&key(id)).await.unwrap();
        if head.as_ref().is_some_and(|head| head.status == status && (!idle || head.owner.is_none())) {
            return;
        }
        assert!(clock.monotonic() < PATIENCE, "run {id} does not become {status}: {head:?}");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a run asks a question, and answers it.
async fn answer(runtime: &Runtime, id: &str, node: &str, said: Answer) {
    until(runtime, id, RunStatus::Interrupted, true).await;
    runtime.respond(&key(id), node, said).by("ann").await.unwrap();
}

/// Creates a run that asks, with encrypted records.
async fn sealed(place: &Place) {
    std::fs::write(place.folder.path().join("keys"), format!("a = {}\n", "ab".repeat(32))).unwrap();
    let keys = Keyring::from_file(place.folder.path().join("keys")).unwrap();
    let options = EnvelopeOptions::default().with_keys(keys);
    let runtime =
        Runtime::builder_with(Arc::new(EnvelopeStore::new(place.open(), options))).build().await.unwrap();
    runtime.start(&pay(), Context::new()).id("sealed").await.unwrap().wait().await.unwrap();
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

/// Creates a run that failed in a process that has exited, and that an operator retried.
async fn retried(place: &Place, operator: &Runtime) {
    let process = Runtime::builder_with(place.open()).build().await.unwrap();
    process.start(&broken("orders"), Context::new()).id("retried").await.unwrap().wait().await.unwrap();
    process.shutdown(Duration::ZERO).await.unwrap();
    operator.retry(&key("retried")).by("ann").await.unwrap();
}

/// Fills a store, and waits until every run has its final status.
pub(crate) async fn fill(place: &Place) -> Filled {
    place.open().setup().await.unwrap();
    let operator = Runtime::builder_with(place.open()).operator();
    sealed(place).await;
    retried(place, &operator).await;
    let service = Runtime::builder_with(place.open()).release_after(Duration::from_millis(20));
    let service = service.build().await.unwrap();
    let graphs = [pay(), nap(), listen(), fetch(), broken("broken"), agent(), research(), charge(), busy()];
    graphs.iter().for_each(|graph| service.serve(graph).unwrap());
    for (graph, id) in [
        (pay(), "asks"),
        (pay(), "no"),
        (pay(), "rejected"),
        (nap(), "sleeps"),
        (nap(), "paused"),
        (nap(), "cancelled"),
        (listen(), "listens"),
        (fetch(), "retries"),
        (broken("broken"), "fails"),
        (research(), "delegates"),
        (charge(), "doubts"),
        (charge(), "skipped"),
    ] {
        _ = service.start(&graph, Context::new()).id(id).await.unwrap();
    }
    service.queue("mail").at_once(1).declare().await.unwrap();
    for id in ["holds", "queued"] {
        _ = service.start(&busy(), Context::new()).id(id).queue("mail").await.unwrap();
    }
    answer(&service, "no", "approve", Answer::accept(false).unwrap()).await;
    let asked = async |node: &str| {
        service.questions(&key("no")).await.unwrap().iter().any(|one| one.node.as_str() == node)
    };
    let clock = SystemClock::new();
    while !asked("amount").await {
        clock.sleep(Duration::from_millis(5)).await;
    }
    answer(&service, "no", "amount", Answer::accept(7).unwrap()).await;
    answer(&service, "rejected", "approve", Answer::reject("too dear")).await;
    answer(&service, "skipped", "card", Answer::from(ferrata::record::Resolution::Skip)).await;
    for id in ["sleeps", "paused", "cancelled", "retries", "delegates"] {
        until(&service, id, RunStatus::InProgress, true).await;
    }
    operator.pause(&key("paused"), "lunch").by("bob").await.unwrap();
    operator.cancel(&key("cancelled"), "enough").by("bob").await.unwrap();
    let latest = latest();
    for Latest { run, status, .. } in &latest {
        until(&service, run, *status, *run != "holds").await;
    }
    let child = service.questions(&key("delegates")).await.unwrap();
    let child = child[0].asked_by.clone().unwrap();
    let asked = vec![
        "asks approve@1:gate".to_owned(),
        "doubts card@1".to_owned(),
        format!("{} year@1:gate", child.run),
    ];
    Filled { service, operator, latest, asked }
}

fn latest() -> Vec<Latest> {
    use RunStatus::{AwaitingInput, Cancelled, Completed, Failed, InProgress, Interrupted};
    let one = |run, status, why| Latest { run, status, why };
    vec![
        one("asks", Interrupted, &["asks `approve@1:gate`: Pay | wait?"]),
        one("no", Completed, &[]),
        one("rejected", Failed, &["failed at `approve@1`: "]),
        one("sleeps", InProgress, &["sleeps at `sleep@1` and continues"]),
        one("paused", Interrupted, &["is paused: lunch", "sleeps at `sleep@1` and continues"]),
        one("cancelled", Cancelled, &["was cancelled: enough"]),
        one("listens", AwaitingInput, &["waits for a message at `hear@1`"]),
        one("retries", InProgress, &["tries `get@1` again after 1 failed attempt (connection refused)"]),
        one("fails", Failed, &["failed at `send@1`: the bank is closed"]),
        one("delegates", InProgress, &["which asks `year@1:gate`: For which year?"]),
        one("doubts", Interrupted, &["asks about `card@1`: "]),
        one("skipped", Completed, &[]),
        one("holds", InProgress, &["is running in process "]),
        one("queued", Interrupted, &["waits for a slot of queue `mail` (next in line, 1 of 1 slot held)"]),
        one("retried", InProgress, &["has no process; one that serves `orders` claims it"]),
    ]
}
