//! Rejections at the API: ids, inputs and updates that cannot be stored, and graphs that do not fit a run.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrata_core::ask::{Answer, Ask, Shape};
use ferrata_core::graph::{Effect, Graph};
use ferrata_core::record::FailureKind;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft, Op, Patch};
use ferrata_core::store::MemoryStore;
use ferrata_core::{ErrorKind, RunKey};
use tokio::sync::Notify;

fn one(
    work: impl Fn(Context) -> Result<Context, ferrata_core::Error> + Send + Sync + Copy + 'static,
) -> Graph<Context> {
    Graph::<Context>::builder("one")
        .node("only", move |_cx, s: ferrata_core::state::Draft<Context>| async move {
            let mut s = s;
            *s = work((*s).clone())?;
            Ok(s)
        })
        .entry("only")
        .build()
        .unwrap()
}

#[tokio::test]
async fn ids_that_are_not_safe_everywhere_are_refused() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = one(Ok);
    let long = "x".repeat(10_000);
    for id in ["", "a/b", "..", ".hidden", "nul\0", "new\nline", "é", &long] {
        let error = runtime.start(&graph, Context::new()).id(id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{id:?}");
        assert!(error.to_string().contains("run id"), "{error}");
        assert!(error.to_string().len() < 300, "the error repeats too much of the id: {error}");
        let error = runtime.start(&graph, Context::new()).tenant(id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{id:?}");
        assert_eq!(runtime.resume(&graph, id).await.unwrap_err().kind(), ErrorKind::Invalid, "{id:?}");
    }
    // Only node names may be paths, and each part of a path is a valid name.
    for path in ["a/b", "a/b/c"] {
        assert_eq!(ferrata_core::NodeName::new(path).unwrap().as_str(), path);
    }
    let deep = "a/".repeat(64);
    for path in ["/", "a/", "/a", "a//b", "a/../b", "a/.b", "a/é", &deep] {
        assert_eq!(ferrata_core::NodeName::new(path).unwrap_err().kind(), ErrorKind::Invalid, "{path:?}");
    }
}

#[tokio::test]
async fn unstorable_input_is_refused_at_start() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = one(Ok);
    let mut large = Context::new();
    large.set("small", 1).unwrap();
    large.set("blob", "x".repeat(20 * 1024 * 1024)).unwrap();
    let error = runtime.start(&graph, large).id("large").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("`blob`"), "{error}");
    assert_eq!(runtime.head(&RunKey::try_from("large").unwrap()).await.unwrap(), None);
    // A value that `Context` cannot represent is refused before the start.
    assert_eq!(Context::new().set("x", f64::NAN).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(
        Context::new().set("x", BTreeMap::from([(vec![1], 2)])).unwrap_err().kind(),
        ErrorKind::Invalid
    );
}

#[tokio::test]
async fn unstorable_update_fails_activation_and_names_channel() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = one(|mut s| {
        s.set("blob", "x".repeat(20 * 1024 * 1024))?;
        Ok(s)
    });
    let run = runtime.start(&graph, Context::new()).await.unwrap();
    let Outcome::Failed { failure, state } = run.wait().await.unwrap() else { panic!("not failed") };
    assert_eq!(failure.kind, FailureKind::Update);
    assert!(failure.message.contains("`blob`"), "{failure}");
    // A refused update leaves the state unchanged, because routes and bases use it.
    assert!(!state.contains_key("blob"));

    let graph = one(|mut s| {
        s.set("x", f64::INFINITY)?;
        Ok(s)
    });
    let run = runtime.start(&graph, Context::new()).await.unwrap();
    let Outcome::Failed { failure, .. } = run.wait().await.unwrap() else { panic!("not failed") };
    assert!(failure.message.contains('x'), "{failure}");
}

/// A graph of two nodes. The second waits forever unless the runtime provides a resource.
fn two(second: &str, revision: &str, extra: bool) -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("two")
        .node("first", async |_cx, s| Ok(s))
        .effect(Effect::Pure)
        .node(second, async |cx, s| {
            if cx.try_resource::<()>().is_none() {
                std::future::pending::<()>().await;
            }
            Ok(s)
        })
        .revision(revision)
        .entry("first")
        .edge("first", second);
    if extra {
        builder =
            builder.node("third", async |_cx, s| Ok(s)).route("first", ["third"], |_s, _cx| None::<&str>);
    }
    builder.build().unwrap()
}

#[tokio::test]
async fn changed_graph_is_refused_only_at_run_position() {
    let store = MemoryStore::new();
    let first = Runtime::builder(store.clone()).build().await.unwrap();
    let run = first.start(&two("second", "1", false), Context::new()).id("r").await.unwrap();
    let mut events = first.events();
    while first.head(run.run()).await.unwrap().unwrap().seq.get() < 1 {
        let _ = events.next().await.unwrap();
    }
    first.shutdown(std::time::Duration::ZERO).await.unwrap();

    let second = Runtime::builder(store.clone()).resource(()).build().await.unwrap();
    let before = second.head(run.run()).await.unwrap();
    for (graph, why) in [
        (two("second", "2", false), "`second` differs"),
        (two("other", "1", false), "`second` is no longer in the graph"),
    ] {
        let error = second.resume(&graph, "r").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::GraphChanged);
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(second.head(run.run()).await.unwrap(), before, "a refused resume must change nothing");
    }
    // The running node is unchanged, and only other parts of the graph differ.
    let run = second.resume(&two("second", "1", true), "r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
}

/// A newer program asks the open question of a run. A question with another answer type is refused. The same question with a more precise shape, as
/// after an upgrade, is accepted.
///
/// Guarantees: QUESTION-12.
#[tokio::test]
async fn open_question_survives_unless_answer_shape_changes() {
    let graph = |shape: Shape| {
        Graph::<Context>::builder("asks")
            .node("a", move |cx: ferrata_core::node::NodeContext, _s| {
                let ask = Ask::<serde_json::Value>::shaped("?", shape.clone());
                async move { Ok(Context::update().set("got", cx.ask_with("q", ask).await?)) }
            })
            .entry("a")
            .build()
            .unwrap()
    };
    let known = Shape::object([("a", Shape::of::<u32>()), ("b?", Shape::any())]);
    let better = Shape::object([("a", Shape::of::<u32>()), ("b", Shape::of::<bool>())]).closed();
    let other = Shape::object([("a", Shape::of::<u64>()), ("b", Shape::of::<bool>())]);
    for (now, goes_on) in [(known.clone(), true), (better, true), (other, false)] {
        let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
        let run = runtime.start(&graph(known.clone()), Context::new()).id("a").await.unwrap();
        assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
        let answer = Answer::accept(serde_json::json!({ "a": 1, "b": true })).unwrap();
        runtime.respond(run.run(), "a", answer).await.unwrap();
        let outcome = runtime.resume(&graph(now.clone()), "a").await.unwrap().wait().await.unwrap();
        if goes_on {
            let got = outcome.completed().unwrap().get::<BTreeMap<String, serde_json::Value>>("got").unwrap();
            assert_eq!(got.unwrap().len(), 2, "{now}");
        } else {
            let Outcome::Failed { failure, .. } = outcome else { panic!("{now}: {outcome:?}") };
            assert!(failure.message.contains("already asked in another form"), "{failure}");
        }
    }
}

/// An edit that makes the state too large is refused, and the run does not fail at its next base.
#[tokio::test]
async fn oversized_edit_leaves_run_unchanged() {
    let store = MemoryStore::new();
    let process = async || Runtime::builder(store.clone()).max_body(64 * 1024).build().await.unwrap();
    let (here, there, may_end) = (process().await, process().await, Arc::new(Notify::new()));
    let hold = Arc::clone(&may_end);
    let graph = Graph::<Context>::builder("held")
        .node("hold", move |_cx, s: Draft<Context>| {
            let hold = Arc::clone(&hold);
            async move {
                hold.notified().await;
                Ok(s)
            }
        })
        .entry("hold")
        .build()
        .unwrap();
    let run = here.start(&graph, Context::new()).id("r").await.unwrap();
    let set = |name: &str, bytes: usize| {
        Patch::from_ops(&[Op::Set(name.into(), "x".repeat(bytes).into())]).unwrap()
    };
    for runtime in [&here, &there] {
        let error = runtime.edit(run.run(), set("blob", 100 * 1024)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("`blob`"), "{error}");
    }
    here.edit(run.run(), set("small", 1)).await.unwrap();
    may_end.notify_one();
    let state = run.completed().await.unwrap();
    assert_eq!(state.keys().collect::<Vec<_>>(), ["small"]);
}
