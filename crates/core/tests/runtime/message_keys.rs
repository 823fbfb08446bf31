//! Messages with a key: two sends deliver one message.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::IntoFuture;

use ferrata_core::graph::Graph;
use ferrata_core::node::Conversation;
use ferrata_core::runtime::{Outcome, Position, Runtime};
use ferrata_core::state::{Context, Reducer};
use ferrata_core::store::MemoryStore;
use ferrata_core::{ErrorKind, RunKey};
use ferrata_testing::{Fault, FaultStore};

use super::world::World;

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

/// Takes messages until it hears `end`.
fn chat() -> Graph<Context> {
    Graph::<Context>::builder("chat")
        .channel("heard", Reducer::Append)
        .conversation("hear", ["end"], Conversation::new().exit_on("end"), async |_cx, _s, text: String| {
            Ok(Context::update().append("heard", [text]))
        })
        .node("end", async |_cx, _s| Ok(()))
        .entry("hear")
        .build()
        .unwrap()
}

async fn at_rest(runtime: &Runtime) {
    let run = runtime.start(&chat(), Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::AwaitingInput));
}

/// Has the run hear `end`, and returns what it heard.
async fn heard(runtime: &Runtime) -> Vec<String> {
    runtime.send(&key(), "end").await.unwrap();
    let run = runtime.resume(&chat(), "r").await.unwrap();
    run.completed().await.unwrap().get("heard").unwrap().unwrap_or_default()
}

/// A web hook came twice, and its order was shipped twice: the sender could only put an id into the message, and each node had to know
/// the ids that it had seen.
///
/// Guarantees: MESSAGE-4.
#[tokio::test]
async fn same_key_sends_one_message() {
    let world = World::new();
    let (one, other) = (world.process().await, world.process().await);
    at_rest(&one).await;
    for from in [&one, &other, &one] {
        from.send(&key(), "first").key("k1").by("shop").await.unwrap();
    }
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 1);
    // Its node takes it, in a process that goes on with the run; the key is known there as well.
    let run = other.resume(&chat(), "r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::AwaitingInput));
    for from in [&one, &other] {
        from.send(&key(), "first").key("k1").await.unwrap();
    }
    // Another key, and none, are other messages.
    one.send(&key(), "first").key("k2").await.unwrap();
    one.send(&key(), "first").await.unwrap();
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 2);
    // The same key for something else is a mistake of the sender, which is told.
    let error = one.send(&key(), "second").key("k1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("`k1`"), "{error}");
    let last = world.process().await;
    last.send(&key(), "first").key("k1").await.unwrap();
    // A fork has the messages of its source, and knows their keys: by a base, for that is all that its log has.
    let fork = last.fork(&key(), Position::Latest).id("fork").await.unwrap();
    last.send(&fork, "first").key("k1").await.unwrap();
    assert_eq!(last.inbox(&fork).await.unwrap().len(), 2);
    assert_eq!(heard(&last).await, ["first"; 3]);
    // A run that has ended refuses messages, and knows those that it has.
    last.send(&key(), "first").key("k2").await.unwrap();
    assert_eq!(last.send(&key(), "late").key("k3").await.unwrap_err().kind(), ErrorKind::WrongStatus);
}

/// While a driver has the run, both come to it; at rest, both read the same log, and one append is refused.
///
/// Guarantees: MESSAGE-4.
#[tokio::test]
async fn concurrent_sends_with_same_key_send_one_message() {
    for is_driven in [false, true] {
        let world = World::new();
        let (one, other) = (world.process().await, world.process().await);
        at_rest(&one).await;
        let run = if is_driven {
            one.send(&key(), "before").await.unwrap();
            Some(one.resume(&chat(), "r").await.unwrap())
        } else {
            None
        };
        let send = |from: &Runtime| from.send(&key(), "first").key("k").into_future();
        let all = tokio::join!(send(&one), send(&other), send(&one), send(&other), send(&one));
        for sent in [all.0, all.1, all.2, all.3, all.4] {
            sent.unwrap();
        }
        if let Some(run) = run {
            // It may have come to rest before the last of them: then nobody goes on with it.
            drop(world.pass(run.wait()).await);
        }
        let heard = heard(&world.process().await).await;
        assert_eq!(heard.iter().filter(|text| *text == "first").count(), 1, "driven: {is_driven}, {heard:?}");
    }
}

/// Has the next write done, without a reply or not at all, and every try to repeat it fail.
fn fail(store: &FaultStore<MemoryStore>, first: Fault, at: u64) {
    let next = store.operations() + at;
    store.plan(next, first);
    (1..8).for_each(|at| store.plan(next + at, Fault::Before));
}

/// A sender that was not told whether its message is on record sends it again.
///
/// Guarantees: MESSAGE-4.
#[tokio::test]
async fn repeat_after_lost_reply_sends_one_message() {
    for at in 0..4 {
        for fault in [Fault::After, Fault::Before] {
            let world = World::new();
            at_rest(&world.process().await).await;
            let (store, sender) = world.mortal().await;
            fail(&store, fault, at);
            let first = world.pass(sender.send(&key(), "paid").key("hook").into_future()).await;
            drop(sender);
            let next = world.process().await;
            next.send(&key(), "paid").key("hook").await.unwrap();
            assert_eq!(heard(&next).await, ["paid"], "{fault:?} at {at}: {first:?}");
        }
    }
}

/// A bound that is stated: what is asked for the same key after so many others is a message of its own.
///
/// Guarantees: MESSAGE-5.
#[tokio::test]
async fn run_remembers_last_256_and_waiting_keys() {
    let world = World::new();
    let one = world.process().await;
    at_rest(&one).await;
    let send = async |n: usize| one.send(&key(), "m").key(format!("k{n}")).await.unwrap();
    for n in 0..300 {
        send(n).await;
    }
    // All wait, so all are known.
    send(0).await;
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 300);
    let run = one.resume(&chat(), "r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::AwaitingInput));
    send(300).await;
    send(299).await;
    send(45).await;
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 1, "the last 256 are known");
    send(0).await;
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 2, "and no others");
}

#[tokio::test]
async fn a_key_is_neither_empty_nor_long() {
    let world = World::new();
    let one = world.process().await;
    at_rest(&one).await;
    for bad in [String::new(), "k".repeat(257)] {
        assert_eq!(one.send(&key(), 1).key(bad).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    one.send(&key(), "m").key("k".repeat(256)).await.unwrap();
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 1);
}
