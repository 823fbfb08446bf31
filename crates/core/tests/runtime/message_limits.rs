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

/// Checks that the next message is refused with a helpful error, and that the run records nothing of it.
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

/// A graph with a node that asks, receives a message, asks again, and receives the rest.
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

/// An idle run limits its waiting messages, because every claim reads all of them.
///
/// Guarantees: MESSAGE-7.
#[tokio::test]
async fn idle_run_limits_waiting_messages() {
    let (world, graph) = (World::new(), asking());
    let (one, other) = (process(&world, 3).await, process(&world, 3).await);
    let run = one.start(&graph, Context::new()).id("r").await.unwrap();
    let Outcome::Interrupted(_) = run.wait().await.unwrap() else { panic!() };
    for message in 1..=3_u32 {
        // The limit applies to the run, whichever process sends.
        let from = if message == 2 { &other } else { &one };
        from.send(&key(), message).await.unwrap();
    }
    refused(&one, 3).await;
    refused(&other, 3).await;
    // Each process enforces its own limit: a larger limit allows more messages, and a smaller one refuses them.
    let (more, fewer) = (process(&world, 4).await, process(&world, 0).await);
    assert_eq!(fewer.send(&key(), 0).await.unwrap_err().kind(), ErrorKind::Unavailable);
    more.send(&key(), 4).await.unwrap();
    // An answer is accepted, because it is not a message.
    one.respond(&key(), "hear", Answer::accept(true).unwrap()).await.unwrap();
    let run = one.resume(&graph, "r").await.unwrap();
    let Outcome::Interrupted(_) = run.wait().await.unwrap() else { panic!() };
    // The node received one message.
    refused(&one, 3).await;
    more.send(&key(), 5).await.unwrap();
    refused(&more, 4).await;
    one.respond(&key(), "hear", Answer::accept(true).unwrap()).await.unwrap();
    let state = one.resume(&graph, "r").await.unwrap().completed().await.unwrap();
    assert_eq!(state.get::<Vec<u32>>("heard").unwrap(), Some(vec![1, 2, 3, 4, 5]));
}

/// An active run limits its waiting messages, for sends to its driver and for sends by another process to its log.
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

/// Two senders compete for the last free position. After a write conflict, each checks the limit again.
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
    // Check the default by its debug text, because a thousand messages take seconds in a debug build.
    let shown = format!("{:?}", Runtime::builder(World::new().store));
    assert!(shown.contains("max_waiting_messages: 1000"), "{shown}");
}
