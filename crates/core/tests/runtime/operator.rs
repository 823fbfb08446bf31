//! An operator's runtime: it reads and steers runs without their graph, and drives no run.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Position, Runtime};
use ferrata_core::state::{Context, Op, Patch};
use ferrata_core::store::{CheckpointStore, MemoryStore, RunQuery};
use ferrata_core::{Clock, ErrorKind, RunKey, Seq, SystemClock};
use serde_json::json;

/// A graph whose second node asks for a number, counts to it, and records this in the state.
fn graph() -> Graph<Context> {
    Graph::<Context>::builder("count")
        .node("begin", async |_cx, mut s| {
            s.set("n", 1)?;
            Ok(s)
        })
        .gate(
            "ask",
            |_s: &Context| ferrata_core::ask::Ask::<u32>::new("how far?"),
            |s, far: u32| s.set("far", far),
        )
        .node("end", async |_cx, mut s| {
            let (n, far): (u32, u32) = (s.get("n")?.unwrap_or(0), s.get("far")?.unwrap_or(0));
            s.set("sum", n + far)?;
            Ok(s)
        })
        .entry("begin")
        .edge("begin", "ask")
        .edge("ask", "end")
        .build()
        .unwrap()
}

/// A service with one run that waits for an answer, and an operator's runtime over the same store.
async fn waiting() -> (MemoryStore, Runtime, Runtime, RunKey) {
    let store = MemoryStore::new();
    let service =
        Runtime::builder(store.clone()).sweep_interval(Duration::from_millis(5)).build().await.unwrap();
    let run = service.start(&graph(), Context::new()).id("a").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    let tool = Runtime::builder(store.clone()).operator();
    (store, service, tool, run.run().clone())
}

fn set(channel: &str, value: serde_json::Value) -> Patch {
    Patch::from_ops(&[Op::Set(channel.into(), value)]).unwrap()
}

async fn ended(store: &MemoryStore, run: &RunKey) -> RunStatus {
    let clock = SystemClock::new();
    loop {
        let head = store.head(run).await.unwrap().unwrap();
        if head.status.is_finished() {
            return head.status;
        }
        assert!(clock.monotonic() < Duration::from_secs(60), "the run is still {}", head.status);
        clock.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn looking_changes_nothing_in_the_store() {
    let store = MemoryStore::new();
    let tool = Runtime::builder(store.clone()).operator();
    assert!(store.runs(&RunQuery::default(), Default::default()).await.unwrap().items.is_empty());
    let error = tool.start(&graph(), Context::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(tool.serve(&graph()).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(store.runs(&RunQuery::default(), Default::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn edit_without_state_type_reaches_service() {
    let (store, service, tool, run) = waiting().await;
    tool.edit(&run, set("n", json!(40))).by("ann").await.unwrap();
    let error = tool.edit(&run, Patch::from_json(r#"[{"append":["n",[1]]}]"#).unwrap()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
    service.serve(&graph()).unwrap();
    tool.respond(&run, "ask", ferrata_core::ask::Answer::accept(2).unwrap()).await.unwrap();
    assert_eq!(ended(&store, &run).await, RunStatus::Completed);
    let state = tool.channels_at(&run, Position::Latest).await.unwrap();
    assert_eq!(state.get("sum"), Some(&json!(42)));
    let error = tool.edit(&run, set("n", json!(1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongStatus, "{error}");
}

#[tokio::test]
async fn fork_without_graph_is_claimed_by_serving_process() {
    let (store, service, tool, run) = waiting().await;
    let before = tool.export(&run).await.unwrap();
    let at = Position::Visit("begin".parse().unwrap(), ferrata_core::Visit::new(1));
    let fork = || tool.fork(&run, at.clone()).id("b").edit(set("n", json!(7))).label("why", "test");
    let forked = fork().await.unwrap();
    // The same fork again returns the same run, and another fork with this id is refused.
    assert_eq!(fork().await.unwrap(), forked);
    let other = tool.fork(&run, at.clone()).id("b").await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::AlreadyExists, "{other}");
    let stranger = tool.fork(&run, at).start_at("nowhere").await.unwrap_err();
    assert_eq!(stranger.kind(), ErrorKind::NotFound, "{stranger}");
    let head = store.head(&forked).await.unwrap().unwrap();
    assert_eq!((head.status, head.owner), (RunStatus::InProgress, None));
    assert_eq!(head.facts.labels.get("why"), Some("test"));
    service.serve(&graph()).unwrap();
    let clock = SystemClock::new();
    while service.questions(&forked).await.unwrap().is_empty() {
        assert!(clock.monotonic() < Duration::from_secs(60), "no process must claim the fork");
        clock.sleep(Duration::from_millis(5)).await;
    }
    tool.respond(&forked, "ask", ferrata_core::ask::Answer::accept(3).unwrap()).await.unwrap();
    assert_eq!(ended(&store, &forked).await, RunStatus::Completed);
    assert_eq!(tool.channels_at(&forked, Position::Latest).await.unwrap().get("sum"), Some(&json!(10)));
    assert_eq!(tool.export(&run).await.unwrap(), before, "the source changed");
}

/// A fork that this runtime cannot drive is refused before it is written.
#[tokio::test]
async fn undrivable_fork_is_not_written() {
    let (store, service, tool, run) = waiting().await;
    let fork = |runtime: &Runtime| runtime.fork(&run, Position::Latest).id("f").drive(&graph());
    assert_eq!(fork(&tool).await.unwrap_err().kind(), ErrorKind::Invalid);
    service.shutdown(Duration::ZERO).await.unwrap();
    assert_eq!(fork(&service).await.unwrap_err().kind(), ErrorKind::Closed);
    assert!(store.head(&RunKey::try_from("f").unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn fork_can_start_at_unvisited_node() {
    let (store, service, tool, run) = waiting().await;
    let forked = tool.fork(&run, Position::Latest).start_at("end").await.unwrap();
    service.serve(&graph()).unwrap();
    assert_eq!(ended(&store, &forked).await, RunStatus::Completed);
    assert_eq!(tool.channels_at(&forked, Position::Latest).await.unwrap().get("sum"), Some(&json!(1)));
}

#[tokio::test]
async fn a_log_is_held_against_itself() {
    let store = MemoryStore::new();
    let service = Runtime::builder(store.clone()).build().await.unwrap();
    // The state is large enough for several bases.
    let graph = Graph::<Context>::builder("swell")
        .node("more", async |cx, mut s| {
            s.set("text", "x".repeat(9_000 + cx.visit().get() as usize))?;
            s.set("n", cx.visit().get())?;
            Ok(s)
        })
        .node("end", async |_cx, s| Ok(s))
        .entry("more")
        .route("more", ["more", "end"], |s: &Context, _| {
            if s.get::<u32>("n").ok().flatten().unwrap_or(0) < 12 { "more" } else { "end" }
        })
        .build()
        .unwrap();
    let run = service.start(&graph, Context::new()).id("s").await.unwrap();
    run.completed().await.unwrap();
    let tool = Runtime::builder(store.clone()).operator();
    let checked = tool.check_log(run.run()).await.unwrap();
    assert!(checked.bases > 1, "{checked:?}");
    assert_eq!(checked.records, checked.last.get() + 1);
    // A base whose state differs from its records, with correct checksums.
    let broken = tool.export(run.run()).await.unwrap();
    let mut planted = 0;
    store.tamper(run.run(), |records| {
        for record in records.iter_mut().skip(1).filter(|record| record.header.base) {
            let text = String::from_utf8(record.body.to_vec()).unwrap();
            let text = text.replacen("\"state\":{\"n\":", "\"state\":{\"n\":1", 1);
            *record = ferrata_core::record::Record::seal(record.header.clone(), text.into()).unwrap();
            planted += 1;
        }
    });
    assert!(planted > 0, "no base to change in {broken}");
    let error = tool.check_log(run.run()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("state of the base"), "{error}");
}

#[tokio::test]
async fn what_happened_is_said_from_any_record_on() {
    let (_store, _service, tool, run) = waiting().await;
    let all = tool.timeline(&run, Seq::new(0)).await.unwrap();
    assert!(all[0].text.starts_with("started at `begin`"), "{all:?}");
    let asked = all.iter().find(|one| one.text.contains(" asks `")).unwrap();
    assert_eq!(asked.activation.as_ref().unwrap().0.as_str(), "ask");
    let later = tool.timeline(&run, asked.header.seq).await.unwrap();
    assert_eq!(later, all[all.len() - later.len()..]);
    assert!(later.len() < all.len());
}

/// Every fact of a run can be a condition of a listing, conditions are combined with "and", and pages follow each other.
#[tokio::test]
async fn listing_filters_runs_by_facts() {
    let (_store, service, tool, first) = waiting().await;
    for n in 0..5 {
        let run = service
            .start(&graph(), Context::new())
            .id(format!("b-{n}"))
            .label("parity", ["even", "odd"][n % 2]);
        run.user(format!("user-{n}")).await.unwrap().wait().await.unwrap();
    }
    service.cancel(&RunKey::try_from("b-4").unwrap(), "enough").await.unwrap();
    let ids = async |request: ferrata_core::runtime::RunsRequest| {
        let mut ids: Vec<_> =
            request.await.unwrap().items.iter().map(|head| head.run.run.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(tool.runs()).await, ["a", "b-0", "b-1", "b-2", "b-3", "b-4"]);
    assert_eq!(ids(tool.runs().label("parity", "even")).await, ["b-0", "b-2", "b-4"]);
    assert_eq!(ids(tool.runs().label("parity", "even").status(RunStatus::Cancelled)).await, ["b-4"]);
    let either = tool.runs().status(RunStatus::Cancelled).status(RunStatus::Interrupted).workflow("count");
    assert_eq!(ids(either).await.len(), 6);
    assert_eq!(ids(tool.runs().user("user-3")).await, ["b-3"]);
    assert_eq!(ids(tool.runs().workflow("other")).await, [""; 0]);
    assert_eq!(ids(tool.runs().tenant("other")).await, [""; 0]);
    let head = tool.head(&first).await.unwrap().unwrap();
    assert!(!ids(tool.runs().before(head.facts.created)).await.contains(&"a".to_owned()));
    assert!(ids(tool.runs().since(head.facts.created)).await.contains(&"a".to_owned()));
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = tool.runs().oldest_first().limit(4).after(after).await.unwrap();
        seen.extend(page.items.iter().map(|head| head.run.run.to_string()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((seen.len(), &*seen[0]), (6, "a"));
    let error = tool.runs().workflow("no such\nname").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(tool.runs().tenant("").await.unwrap_err().kind(), ErrorKind::Invalid);
}
