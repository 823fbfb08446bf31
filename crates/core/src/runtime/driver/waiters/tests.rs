//! Waits in isolation: the longest one, the open ones, and the effect of a restart.

use super::*;
use crate::error::Result;
use crate::node::NodeReply;
use crate::runtime::driver::test_fixture::{at, key, scope};
use tokio::sync::oneshot::Receiver;

/// A wait. Dropping the answer gives it up.
fn wait(
    waiters: &mut WaitRegistry,
    node: u32,
    name: &str,
    what: WaitsFor,
    until: Option<i64>,
) -> Receiver<Result<NodeReply>> {
    let (reply, answer) = ReplySender::for_tests(scope(key(node)));
    waiters.add(key(node), name.into(), what, until.map(at), reply);
    answer
}

fn receivers(waiters: &WaitRegistry) -> Vec<(u32, String)> {
    waiters.receivers().into_iter().map(|(key, name)| (key.0, name)).collect()
}

#[test]
fn the_longest_wait_takes_the_next_message() {
    let mut waiters = WaitRegistry::default();
    let _first = wait(&mut waiters, 2, "r1", WaitsFor::Message, None);
    let _second = wait(&mut waiters, 1, "r1", WaitsFor::Message, None);
    let _other = wait(&mut waiters, 3, "s1", WaitsFor::Time, Some(5));
    assert_eq!(receivers(&waiters), [(2, "r1".into()), (1, "r1".into())]);
    assert_eq!(waiters.first_receiver(&[]), Some((key(2), 1)));
    let before = [(key(1), "r1".to_owned())];
    assert_eq!(waiters.first_receiver(&before), Some((key(1), 2)), "it waited before the last idle period");
}

#[test]
fn dropped_wait_counts_for_nothing() {
    let mut waiters = WaitRegistry::default();
    let answer = wait(&mut waiters, 1, "r1", WaitsFor::Message, Some(9));
    assert!(waiters.waits(key(1)) && waiters.is_receiving());
    assert_eq!(waiters.next_time(), Some(at(9)));
    drop(answer);
    assert!(!waiters.waits(key(1)) && !waiters.is_receiving());
    assert_eq!((waiters.next_time(), waiters.first_receiver(&[])), (None, None));
    assert!(waiters.remove(key(1), 1).is_none());
    assert!(waiters.next_waits(key(1)).next().is_none());
    assert_eq!(waiters.next_wake(), None, "its time is removed with it");
}

/// A node may wait for thousands of records at once, so a check sees the first of them alone.
#[test]
fn written_records_end_in_order() {
    let mut waiters = WaitRegistry::default();
    let _timer = wait(&mut waiters, 1, "t", WaitsFor::Time, Some(5));
    let mut answers: Vec<_> =
        (0..1_000).map(|_| wait(&mut waiters, 1, "s", WaitsFor::Record(Seq::new(1), true), None)).collect();
    drop(answers.remove(0));
    for order in 3..=1_001 {
        let next: Vec<_> = waiters.next_waits(key(1)).map(|waiter| waiter.order).collect();
        assert_eq!(next, [order, 1]);
        assert!(waiters.remove(key(1), order).is_some());
    }
    assert!(waiters.remove(key(1), 2).is_none(), "it was dropped");
    assert_eq!(waiters.next_waits(key(1)).map(|waiter| waiter.order).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_wait_ends_once() {
    let mut waiters = WaitRegistry::default();
    let mut answer = wait(&mut waiters, 1, "q", WaitsFor::Answer, Some(9));
    let waiter = waiters.remove(key(1), 1).unwrap();
    waiter.reply.send(Ok(NodeReply::Done));
    assert!(matches!(answer.try_recv(), Ok(Ok(NodeReply::Done))));
    assert!(waiters.remove(key(1), 1).is_none());
    assert_eq!(waiters.next_wake(), None);
}

#[test]
fn deadline_fires_once_and_again_after_conflict() {
    let mut waiters = WaitRegistry::default();
    let _answer = wait(&mut waiters, 1, "q", WaitsFor::Answer, Some(9));
    assert_eq!(waiters.next_due(at(8)), None);
    assert_eq!(waiters.next_due(at(9)), Some((at(9), key(1), "q".into())));
    assert_eq!(waiters.next_due(at(9)), None);
    waiters.await_expiry(key(1), "q");
    assert!(waiters.next_waits(key(1)).next().unwrap().what == WaitsFor::Expiry);
    waiters.restart(Seq::new(1), |_| true);
    assert!(
        waiters.next_waits(key(1)).next().unwrap().what == WaitsFor::Answer,
        "an answer may have arrived before"
    );
    assert_eq!(waiters.next_due(at(9)), Some((at(9), key(1), "q".into())));
    waiters.await_expiry(key(1), "q");
    waiters.expired(key(1), "q");
    assert!(waiters.next_waits(key(1)).next().unwrap().what == WaitsFor::Answer);
    waiters.restart(Seq::new(1), |_| true);
    assert_eq!(waiters.next_due(at(9)), None, "a durable expiry does not fire again");
}

#[test]
fn restart_drops_stale_waits_and_rechecks_rest() {
    let mut waiters = WaitRegistry::default();
    let _gone = wait(&mut waiters, 1, "s1", WaitsFor::Time, Some(5));
    let _stays = wait(&mut waiters, 2, "s1", WaitsFor::Time, Some(7));
    waiters.drain_dirty();
    waiters.restart(Seq::new(1), |key| key.0 == 2);
    assert_eq!(waiters.drain_dirty(), BTreeSet::from([key(2)]));
    assert!(!waiters.waits(key(1)));
    assert_eq!(waiters.next_wake(), Some(at(7)));
}

/// A node must not receive a step whose conflicting record is being written again.
#[test]
fn wait_follows_record_rewritten_after_conflict() {
    let mut waiters = WaitRegistry::default();
    let _step = wait(&mut waiters, 1, "s1", WaitsFor::Step(Some((Seq::new(3), true))), None);
    let _known = wait(&mut waiters, 2, "s1", WaitsFor::Step(None), None);
    let _record = wait(&mut waiters, 3, "s1", WaitsFor::Record(Seq::new(4), false), None);
    waiters.restart(Seq::new(7), |_| true);
    let what = [1, 2, 3].map(|of| waiters.next_waits(key(of)).next().unwrap().what);
    let anew = [
        WaitsFor::Step(Some((Seq::new(7), true))),
        WaitsFor::Step(None),
        WaitsFor::Record(Seq::new(7), false),
    ];
    assert!(what == anew);
}

#[test]
fn end_of_receiver_rechecks_other_waiters() {
    let mut waiters = WaitRegistry::default();
    let _first = wait(&mut waiters, 1, "r1", WaitsFor::Message, None);
    let _second = wait(&mut waiters, 2, "r1", WaitsFor::Message, None);
    waiters.drain_dirty();
    waiters.forget_activation(key(1));
    assert_eq!(waiters.drain_dirty(), BTreeSet::from([key(2)]));
    waiters.mark_dirty(key(1));
    assert!(waiters.drain_dirty().is_empty(), "an activation without waits is not checked");
}

/// Each active run pays for this room, and few runs wait for a child or have an answerer.
#[test]
fn what_no_node_waits_for_takes_little_room() {
    assert!(size_of::<WaitRegistry>() <= 120, "{} bytes", size_of::<WaitRegistry>());
    assert!(WaitRegistry::default().children.is_none());
}
