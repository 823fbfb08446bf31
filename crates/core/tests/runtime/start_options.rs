//! Start options next to the input: labels, a user, a configuration, and first messages.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture;

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{Outcome, Position, Runtime};
use ferrata_core::state::{Context, Draft, Reducer};
use ferrata_core::store::CheckpointStore as _;
use ferrata_core::{ErrorKind, RunKey};
use ferrata_testing::Fault;
use serde_json::json;

use super::world::World;

fn key(run: &str) -> RunKey {
    RunKey::try_from(run).unwrap()
}

fn told(cx: &NodeContext) -> Result<String, NodeError> {
    let config: u32 = cx.config()?;
    Ok(format!("{} {:?} {:?} {config}", cx.node(), cx.labels().get("team"), cx.user()))
}

/// A node that returns its start options, waits for a message, fails once, and returns them again.
fn graph() -> Graph<Context> {
    Graph::<Context>::builder("given")
        .channel("said", Reducer::Append)
        .node("one", async |cx: NodeContext, _s| Ok(Context::update().append("said", [told(&cx)?])))
        .node("two", async |cx: NodeContext, s: Draft<Context>| {
            let heard: String = cx.receive().await?;
            if s.get::<bool>("mended")? != Some(true) {
                return Err(NodeError::new(format!("broken, after {heard}")));
            }
            Ok(Context::update().append("said", [told(&cx)?, heard]))
        })
        .entry("one")
        .edge("one", "two")
        .build()
        .unwrap()
}

async fn said(runtime: &Runtime, run: &str) -> Vec<String> {
    let state = runtime.resume(&graph(), run).await.unwrap().completed().await.unwrap();
    state.get("said").unwrap().unwrap()
}

/// Every attempt of a node reads the run's configuration, also after a restart, a retry and a fork.
#[tokio::test]
async fn configuration_survives_restarts_retries_and_forks() {
    let world = World::new();
    let one = world.process().await;
    let start = |runtime: &Runtime, config: u32| {
        let start = runtime.start(&graph(), Context::new()).id("r").user("ann").label("team", "press");
        start.config(config).into_future()
    };
    let run = start(&one, 7).await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::AwaitingInput));
    // The same start returns the same run. A start with another configuration, or none, is refused.
    start(&one, 7).await.unwrap();
    assert_eq!(start(&one, 8).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let bare = one.start(&graph(), Context::new()).id("r").await;
    assert_eq!(bare.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(one.checkpoint(&key("r"), Position::Latest).await.unwrap().config, Some(json!(7)));
    drop((run, one));

    // The forks start from a base in another process, and have no other record of the configuration.
    let two = world.process().await;
    let forked = two.fork(&key("r"), Position::Latest).id("fork").await.unwrap();
    two.fork(&key("r"), Position::Latest).id("other").config(9).await.unwrap();
    let again = two.fork(&key("r"), Position::Latest).id("other").config(10).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    two.send(&key("r"), "go").await.unwrap();
    let Outcome::Failed { .. } = two.resume(&graph(), "r").await.unwrap().wait().await.unwrap() else {
        panic!()
    };
    let mended = || ferrata_core::state::Patch::from_json(r#"[{"set":["mended",true]}]"#).unwrap();
    two.edit(&key("r"), mended()).await.unwrap();
    two.retry(&key("r")).await.unwrap();
    let of = |node: &str, config: u32| format!("{node} Some(\"press\") Some(\"ann\") {config}");
    assert_eq!(said(&two, "r").await, [of("one", 7), of("two", 7), "go".to_owned()]);
    for (run, config) in [(forked.run.as_str(), 7), ("other", 9)] {
        two.edit(&key(run), mended()).await.unwrap();
        two.send(&key(run), "on").await.unwrap();
        assert_eq!(said(&two, run).await, [of("one", 7), of("two", config), "on".to_owned()], "{run}");
    }
}

/// A child does not inherit the configuration of its ancestors.
#[tokio::test]
async fn child_gets_only_its_own_configuration() {
    let child = Graph::<Context>::builder("child")
        .node("tell", async |cx: NodeContext, mut s: Draft<Context>| {
            let config = cx.config::<u32>().map_err(|error| error.kind());
            s.set("told", format!("{config:?} {:?} {:?}", cx.user(), cx.labels().get("team")))?;
            Ok(s)
        })
        .entry("tell")
        .build()
        .unwrap();
    let inner = child.clone();
    let parent = Graph::<Context>::builder("parent")
        .node("ask", move |cx: NodeContext, mut s: Draft<Context>| {
            let child = inner.clone();
            async move {
                let config: u32 = cx.config()?;
                let bare = cx.child(&child, Context::new()).name("bare").await?;
                let passed = cx.child(&child, Context::new()).name("passed").config(config).await?;
                let many = cx.children(&child, [Context::new()]).name("many").config(config + 1).await?;
                let all: Vec<_> =
                    [&bare, &passed, &many[0]].map(|child| child.get_value("told").cloned()).into();
                s.set("told", all)?;
                Ok(s)
            }
        })
        .entry("ask")
        .build()
        .unwrap();
    let world = World::new();
    let one = world.process().await;
    let run = one.start(&parent, Context::new()).user("ann").label("team", "press").config(7).await.unwrap();
    let told = run.completed().await.unwrap().get_value("told").cloned().unwrap();
    assert_eq!(told, json!(["Err(NotFound) None None", "Ok(7) None None", "Ok(8) None None"]));
}

#[tokio::test]
async fn absent_wrong_or_large_configuration_fails() {
    let world = World::new();
    let one = world.process().await;
    let graph = Graph::<Context>::builder("g")
        .node("n", async |cx: NodeContext, mut s: Draft<Context>| {
            let kinds = format!("{:?}", cx.config::<Option<u32>>().map_err(|error| error.kind()));
            s.set("got", kinds)?;
            Ok(s)
        })
        .entry("n")
        .build()
        .unwrap();
    let got = async |start: ferrata_core::runtime::StartRequest<Context>| {
        start.await.unwrap().completed().await.unwrap().get::<String>("got").unwrap().unwrap()
    };
    assert_eq!(got(one.start(&graph, Context::new())).await, "Err(NotFound)");
    assert_eq!(got(one.start(&graph, Context::new()).config("seven")).await, "Err(Invalid)");
    // A null configuration counts as a configuration.
    assert_eq!(got(one.start(&graph, Context::new()).config(())).await, "Ok(None)");
    let small = Runtime::builder(world.store.clone()).max_body(100).build().await.unwrap();
    for (start, what) in [
        (small.start(&graph, Context::new()).config("x".repeat(200)), "configuration"),
        (small.start(&graph, Context::new()).message("x".repeat(200)), "first message"),
    ] {
        let error = start.id("large").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(world.store.head(&key("large")).await.unwrap().is_none());
}

/// First messages are part of the start, so a crash between the start and a send cannot lose them.
///
/// Guarantees: MESSAGE-6.
#[tokio::test]
async fn start_records_run_with_first_messages() {
    let world = World::new();
    let graph = Graph::<Context>::builder("g")
        .node("hear", async |cx: NodeContext, mut s: Draft<Context>| {
            let heard: (String, u32, String) =
                (cx.receive().await?, cx.receive().await?, cx.receive().await?);
            s.set("heard", heard)?;
            Ok(s)
        })
        .entry("hear")
        .build()
        .unwrap();
    let start = |runtime: &Runtime| runtime.start(&graph, Context::new()).id("r").message("one").message(2);
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        let world = World::new();
        let (store, dying) = world.mortal().await;
        store.plan(store.operations(), fault);
        assert!(world.pass(start(&dying).into_future()).await.is_err());
        let inbox = world.process().await.inbox(&key("r")).await;
        match fault {
            Fault::CrashBefore => assert_eq!(inbox.unwrap_err().kind(), ErrorKind::NotFound),
            _ => assert_eq!(inbox.unwrap().len(), 2),
        }
    }
    let one = world.process().await;
    let run = start(&one).await.unwrap();
    // A repeated start sends no message again. A start with another message is refused.
    start(&one).await.unwrap();
    assert_eq!(start(&one).message(3).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(matches!(run.wait().await.unwrap(), Outcome::AwaitingInput));
    one.send(&key("r"), "three").await.unwrap();
    let state = one.resume(&graph, "r").await.unwrap().completed().await.unwrap();
    assert_eq!(state.get_value("heard"), Some(&json!(["one", 2, "three"])));
}
