//! Named waits for messages, and an activation's knowledge of its records.

use std::time::Duration;

use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeError, RecordedKind};
use ferrata_core::state::Context;
use ferrata_testing::World;

const DAY: Duration = Duration::from_secs(86_400);

/// The second attempt receives in another order than the first, and finds the same messages by their names.
#[tokio::test]
async fn message_is_found_by_name() {
    let graph = Graph::<Context>::builder("chat")
        .node("hear", async |cx, mut s| {
            let names = if cx.attempt() == 1 { ["one", "two"] } else { ["two", "one"] };
            for name in names {
                let heard: Option<String> = cx.receive_as(name, None).await?;
                s.set(name, heard)?;
            }
            let late: Option<String> = cx.receive_as("late", Some(DAY)).await?;
            s.set("late", late)?;
            if cx.attempt() == 1 { Err("once more".into()) } else { Ok(s) }
        })
        .retry(RetryPolicy::none().with_attempts(2))
        .entry("hear")
        .build()
        .unwrap();
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(&graph).unwrap();
    let run = world.pass(process.start(&graph, Context::new()).message("a").message("b")).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    let text = |name: &str| state.get::<Option<String>>(name).unwrap().unwrap();
    assert_eq!((text("one").as_deref(), text("two").as_deref()), (Some("a"), Some("b")));
    assert_eq!(text("late"), None);
}

/// A name belongs to one wait of an attempt. After a failed step, its name can be used again.
#[tokio::test]
async fn names_are_taken_once() {
    let graph = Graph::<Context>::builder("chat")
        .node("hear", async |cx, mut s| {
            let _: Option<String> = cx.receive_as("one", None).await?;
            let again = cx.receive_as::<String>("one", None).await.unwrap_err().to_string();
            s.set("again", again)?;
            let failed: Result<(), NodeError> = cx.step("flaky", async || Err("broken")).await;
            s.set("failed", failed.unwrap_err().to_string())?;
            s.set("flaky", cx.step("flaky", async || Ok::<_, NodeError>(7)).await?)?;
            Ok(s)
        })
        .entry("hear")
        .build()
        .unwrap();
    let world = World::new();
    let process = world.process().await.unwrap();
    let run = world.pass(process.start(&graph, Context::new()).message("a")).await.unwrap();
    let state = world.pass(run.completed()).await.unwrap();
    assert!(state.get::<String>("again").unwrap().unwrap().contains("the name `one`"));
    assert_eq!(state.get::<u32>("flaky").unwrap(), Some(7));
}

/// The sequence numbers show which of two concurrent waits ended first.
#[tokio::test]
async fn recorded_operations_are_listed() {
    let graph = Graph::<Context>::builder("race")
        .node("all", async |cx, s| {
            let found = cx.recorded_operations();
            if cx.attempt() == 1 {
                let (late, soon) =
                    tokio::join!(cx.sleep_as("late", DAY), cx.sleep_as("soon", Duration::ZERO));
                late?;
                soon?;
                cx.step("done", async || Ok::<_, NodeError>("done".to_owned())).await?;
                let _: Option<u32> = cx.receive_as("nothing", Some(DAY)).await?;
                return Err("once more".into());
            }
            let of = |name: &str| found.iter().find(|operation| operation.name == name).unwrap();
            assert_eq!(found.len(), 4, "{found:?}");
            assert!(matches!(of("late").kind, RecordedKind::Timer { .. }));
            assert!(of("soon").place < of("late").place || of("late").place.is_none(), "{found:?}");
            let RecordedKind::Step(text) = &of("done").kind else { panic!("{found:?}") };
            assert_eq!((text.get(), of("done").place), ("\"done\"", None));
            assert!(matches!(of("nothing").kind, RecordedKind::Message { has_ended: true }));
            Ok(s)
        })
        .retry(RetryPolicy::none().with_attempts(2))
        .entry("all")
        .build()
        .unwrap();
    let world = World::new();
    let process = world.process().await.unwrap();
    process.serve(&graph).unwrap();
    let run = world.pass(process.start(&graph, Context::new())).await.unwrap();
    world.pass(run.completed()).await.unwrap();
}
