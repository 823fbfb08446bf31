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

/// A graph that receives messages until it receives `end`.
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

/// Sends `end` to the run, and returns the messages that it received.
async fn heard(runtime: &Runtime) -> Vec<String> {
    runtime.send(&key(), "end").await.unwrap();
    let run = runtime.resume(&chat(), "r").await.unwrap();
    run.completed().await.unwrap().get("heard").unwrap().unwrap_or_default()
}

/// A message that is sent twice with one key is delivered once, so a repeated web hook has no second effect.
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
    // The node receives the message in another process, which knows the key, too.
    let run = other.resume(&chat(), "r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::AwaitingInput));
    for from in [&one, &other] {
        from.send(&key(), "first").key("k1").await.unwrap();
    }
    // A message with another key, or without a key, is a separate message.
    one.send(&key(), "first").key("k2").await.unwrap();
    one.send(&key(), "first").await.unwrap();
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 2);
    // The same key with another body is an error of the sender.
    let error = one.send(&key(), "second").key("k1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("`k1`"), "{error}");
    let last = world.process().await;
    last.send(&key(), "first").key("k1").await.unwrap();
    // A fork knows the messages and keys of its source, although its log contains only a base.
    let fork = last.fork(&key(), Position::Latest).id("fork").await.unwrap();
    last.send(&fork, "first").key("k1").await.unwrap();
    assert_eq!(last.inbox(&fork).await.unwrap().len(), 2);
    assert_eq!(heard(&last).await, ["first"; 3]);
    // A completed run refuses new messages, and still recognizes the keys of received ones.
    last.send(&key(), "first").key("k2").await.unwrap();
    assert_eq!(last.send(&key(), "late").key("k3").await.unwrap_err().kind(), ErrorKind::WrongStatus);
}

/// Two processes send the same key at the same time. An active run sends both to its driver. For an idle run, both read the same log, and one append
/// is refused.
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
            // The run may have become idle before the last messages arrived, and then no process continues it.
            drop(world.pass(run.wait()).await);
        }
        let heard = heard(&world.process().await).await;
        assert_eq!(heard.iter().filter(|text| *text == "first").count(), 1, "driven: {is_driven}, {heard:?}");
    }
}

/// Plans `first` for the write after the next `at` writes, and lets every retry of it fail.
fn fail(store: &FaultStore<MemoryStore>, first: Fault, at: u64) {
    let next = store.operations() + at;
    store.plan(next, first);
    (1..8).for_each(|at| store.plan(next + at, Fault::Before));
}

/// A sender with an unknown outcome sends the message again with the same key. The run receives it once.
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

/// A run remembers the last 256 keys, and the keys of all waiting messages. An older key creates a new message.
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
    // All messages wait, so the run knows all keys.
    send(0).await;
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 300);
    let run = one.resume(&chat(), "r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::AwaitingInput));
    send(300).await;
    send(299).await;
    send(45).await;
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 1, "the last 256 keys are known");
    send(0).await;
    assert_eq!(one.inbox(&key()).await.unwrap().len(), 2, "older keys are not known");
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
