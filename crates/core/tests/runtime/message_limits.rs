//! The number of waiting messages of a run is bounded, in every process.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::graph::Graph;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Reducer};
use ferrata_core::{ErrorKind, RunKey};
use tokio::sync::Semaphore;

use super::world::World;

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

async fn process(world: &World, most: usize) -> Runtime {
    let builder = Runtime::builder(world.store.clone()).clock(Arc::clone(&world.clock) as _);
    builder.max_waiting_messages(most).build().await.unwrap()
}

/// Asserts that the next message is refused, in words that help, and that the run knows nothing of it.
async fn refused(runtime: &Runtime, most: usize) {
    let before = (runtime.head(&key()).await.unwrap().unwrap().seq, runtime.inbox(&key()).await.unwrap());
    assert_eq!(before.1.len(), most);
    let error = runtime.send(&key(), "one too many").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let told = error.to_string();
    assert!(
        told.contains(&format!("{most} messages wait in the run, and at most {most} are allowed")),
        "{told}"
    );
    assert!(told.contains("`max_waiting_messages`"), "{told}");
    let after = (runtime.head(&key()).await.unwrap().unwrap().seq, runtime.inbox(&key()).await.unwrap());
    assert_eq!(after, before);
}

/// A node that asks first, then takes a message, and asks again, and takes the rest.
fn asking() -> Graph<Context> {
    Graph::<Context>::builder("asks")
        .channel("heard", Reducer::Append)
        .node("hear", async |cx, _s| {
            let _: bool = cx.ask("first", "one?").await?;
            let mut heard: Vec<u32> = vec![cx.receive().await?];
            let _: bool = cx.ask("second", "the rest?").await?;
            while let Some(message) = cx.receive_within(Duration::ZERO).await? {
                heard.push(message);
            }
            Ok(Context::update().append("heard", heard))
        })
        .entry("hear")
        .build()
        .unwrap()
}

/// Each message to a run at rest cost more than the one before, because all that wait are read with the run.
///
/// Guarantees: MESSAGE-7.
#[tokio::test]
async fn idle_run_limits_waiting_messages() {
    let (world, graph) = (World::new(), asking());
    let (one, other) = (process(&world, 3).await, process(&world, 3).await);
    let run = one.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Interrupted(_) = run.wait().await.unwrap() else { panic!() };
    for message in 1..=3_u32 {
        // The limit is of the run, whoever sends.
        let from = if message == 2 { &other } else { &one };
        from.send(&key(), message).await.unwrap();
    }
    refused(&one, 3).await;
    refused(&other, 3).await;
    // Who allows more may send more, and who allows less may not.
    let (more, fewer) = (process(&world, 4).await, process(&world, 0).await);
    assert_eq!(fewer.send(&key(), 0).await.unwrap_err().kind(), ErrorKind::Unavailable);
    more.send(&key(), 4).await.unwrap();
    // What is no message is said all the same.
    one.respond(&key(), "hear", Answer::accept(true).unwrap()).await.unwrap();
    let run = one.resume(&graph, "r").await.unwrap();
    let Outcome::Interrupted(_) = run.wait().await.unwrap() else { panic!() };
    // One was taken.
    refused(&one, 3).await;
    more.send(&key(), 5).await.unwrap();
    refused(&more, 4).await;
    one.respond(&key(), "hear", Answer::accept(true).unwrap()).await.unwrap();
    let state = one.resume(&graph, "r").await.unwrap().completed().await.unwrap();
    assert_eq!(state.get::<Vec<u32>>("heard").unwrap(), Some(vec![1, 2, 3, 4, 5]));
}

/// The same while the run goes on: said to its driver, and by another process to its log.
#[tokio::test]
async fn active_run_limits_waiting_messages() {
    let (world, gate) = (World::new(), Arc::new(Semaphore::new(0)));
    let open = Arc::clone(&gate);
    let graph = Graph::<Context>::builder("hears")
        .channel("heard", Reducer::Append)
        .node("hear", move |cx, _s| {
            let gate = Arc::clone(&open);
            async move {
                let mut heard: Vec<u32> = Vec::new();
                for _ in 0..5 {
                    gate.acquire().await.unwrap().forget();
                    heard.push(cx.receive().await?);
                }
                Ok(Context::update().append("heard", heard))
            }
        })
        .entry("hear")
        .build()
        .unwrap();
    let (here, elsewhere) = (process(&world, 3).await, process(&world, 3).await);
    let run = here.start(&graph, Context::new()).id("r").await.unwrap();
    for message in 1..=3_u32 {
        here.send(&key(), message).await.unwrap();
    }
    for message in 4..=5_u32 {
        refused(&here, 3).await;
        refused(&elsewhere, 3).await;
        gate.add_permits(1);
        while here.inbox(&key()).await.unwrap().len() > 2 {
            tokio::task::yield_now().await;
        }
        let from = if message == 4 { &here } else { &elsewhere };
        from.send(&key(), message).await.unwrap();
    }
    refused(&here, 3).await;
    gate.add_permits(3);
    let state = world.pass(run.completed()).await.unwrap();
    assert_eq!(state.get::<Vec<u32>>("heard").unwrap(), Some(vec![1, 2, 3, 4, 5]));
}

/// Two who send the last that may wait at once: each looks again at what the other wrote.
#[tokio::test]
async fn concurrent_senders_cannot_exceed_message_limit() {
    let (world, graph) = (World::new(), asking());
    let (one, other) = (process(&world, 3).await, process(&world, 3).await);
    let run = one.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Interrupted(_) = run.wait().await.unwrap() else { panic!() };
    let key = key();
    let sent = tokio::join!(
        one.send(&key, 1).into_future(),
        other.send(&key, 2).into_future(),
        one.send(&key, 3).into_future(),
        other.send(&key, 4).into_future(),
        one.send(&key, 5).into_future(),
    );
    let sent = [sent.0, sent.1, sent.2, sent.3, sent.4];
    assert_eq!(sent.iter().filter(|sent| sent.is_ok()).count(), 3, "{sent:?}");
    refused(&one, 3).await;
}

#[tokio::test]
async fn a_thousand_messages_may_wait_unless_set_otherwise() {
    // Shown instead of sent: a thousand messages take seconds in a build for tests.
    let shown = format!("{:?}", Runtime::builder(World::new().store));
    assert!(shown.contains("max_waiting_messages: 1000"), "{shown}");
}
