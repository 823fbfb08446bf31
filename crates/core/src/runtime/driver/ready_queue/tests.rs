//! The ready queue in isolation: start order, barriers and running attempts.

use std::future::{pending, ready as ready_now};
use std::time::Duration;

use super::*;
use crate::record::body::{AttemptFailed, RecordEvent};
use crate::record::{Failure, FailureKind};
use crate::runtime::attempt::AttemptEnd;
use crate::runtime::driver::test_fixture::{at, graph, in_flight, key, name, scope, soon};
use crate::state::{Context, Update};

type TestLine = ReadyQueue<Context>;

fn ready(line: &mut TestLine) -> Vec<u32> {
    std::iter::from_fn(|| line.next_ready(|_| None)).map(|key| key.0).collect()
}

/// An activation of `node` waits for its next attempt until `until`.
fn retried(machine: &mut Machine, node: &str, until: i64) {
    let (failure, retry_at) = (Failure::new(FailureKind::Node, "once more"), Some(at(until)));
    let failed = AttemptFailed { node: name(node), visit: key(0).1, failed: 1, failure, retry_at };
    machine.absorb(&RecordEvent::Attempt(failed)).unwrap();
}

fn origin(node: u32) -> ActivationOrigin {
    ActivationOrigin::of(&in_flight(&graph()), key(node))
}

/// An attempt that never ends.
fn run(line: &mut TestLine, node: u32, external: bool) -> Arc<NodeScope> {
    let scope = scope(key(node));
    line.run(external, Arc::clone(&scope), origin(node), pending());
    scope
}

/// Waits for the next end, at most as long as an aborted task takes.
async fn next_end(line: &mut TestLine) -> Option<Result<EndedAttempt<Context>, JoinError>> {
    soon(line.next_end()).await
}

#[test]
fn overdue_activations_start_in_time_order() {
    let (graph, state) = (graph(), Arc::new(Context::new()));
    let mut machine = in_flight(&graph);
    retried(&mut machine, "a", 30);
    retried(&mut machine, "b", 10);
    let mut line = TestLine::default();
    line.push(key(0), &state);
    line.push_all((&machine, &state), at(50), |_| false);
    assert_eq!(
        ready(&mut line),
        [3, 2, 1],
        "entries without a time come first, then by time; earlier entries are gone"
    );
}

#[test]
fn activation_behind_barrier_waits_for_durable_record() {
    let mut line = TestLine::default();
    line.hold_back(Seq::new(1), key(1));
    line.hold_back(Seq::new(1), key(2));
    line.hold_back(Seq::new(2), key(3));
    line.pass_barriers(Seq::new(0));
    assert_eq!(line.next_passed(), None);
    line.pass_barriers(Seq::new(1));
    assert_eq!(
        [line.next_passed(), line.next_passed(), line.next_passed()],
        [Some(key(1)), Some(key(2)), None]
    );
    assert!(!line.is_empty(), "one is still delayed");
    line.pass_barriers(Seq::new(9));
    assert_eq!(line.next_passed(), Some(key(3)));
    assert!(line.is_empty());
}

#[test]
fn activation_waits_for_its_next_attempt_time() {
    let mut line = TestLine::default();
    line.wait_until(at(20), key(1));
    line.wait_until(at(10), key(2));
    assert_eq!(line.next_time(), Some(at(10)));
    line.push_due(at(9));
    assert_eq!(ready(&mut line), [0; 0]);
    line.push_due(at(20));
    assert_eq!((ready(&mut line), line.next_time()), (vec![2, 1], None));
}

#[test]
fn activation_keeps_state_only_for_further_attempts() {
    let (mut line, state) = (TestLine::default(), Arc::new(Context::new()));
    line.push(key(1), &state);
    assert!(line.state_of(key(1), false).is_some());
    assert!(line.state_of(key(1), true).is_some_and(|given| Arc::ptr_eq(&given, &state)));
    assert!(line.state_of(key(1), true).is_none());
    line.push(key(2), &state);
    line.drop_input_state(key(2));
    assert!(line.state_of(key(2), false).is_none());
    line.remove_ready(key(2));
    assert_eq!(ready(&mut line), [1]);
}

#[tokio::test]
async fn an_attempt_that_only_waits_takes_no_place() {
    let mut line = TestLine::default();
    let (a, _b) = (run(&mut line, 1, false), run(&mut line, 2, false));
    assert_eq!((line.working(), line.is_idle()), (2, false));
    a.waits.park_for_tests();
    assert_eq!(line.working(), 1);
    assert!(line.is_at_work(|_| true), "the other one is running");
    line.remove_running(key(2));
    assert!(!line.is_at_work(|_| true));
    assert!(line.is_at_work(|_| false), "parked, and without a wait that survives the restart");
}

#[tokio::test]
async fn restart_drops_stale_attempts_and_queues_rest() {
    let (graph, state) = (graph(), Arc::new(Context::new()));
    let machine = in_flight(&graph);
    let mut line = TestLine::default();
    run(&mut line, 0, false);
    run(&mut line, 1, false);
    line.hold_back(Seq::new(4), key(2));
    line.wait_until(at(9), key(3));
    line.restart((&machine, &state), at(0), |_| false);
    assert!(next_end(&mut line).await.unwrap().is_err(), "the attempt of the fork was aborted");
    assert!(line.running(key(0)).is_none() && line.running(key(1)).is_some());
    assert_eq!(ready(&mut line), [2, 3], "the earlier barrier and time are gone");
    assert!(line.is_empty() && line.next_time().is_none());
}

#[tokio::test]
async fn ended_run_finishes_only_external_attempts() {
    let mut line = TestLine::default();
    run(&mut line, 1, false);
    run(&mut line, 2, true);
    line.abort_repeatable();
    assert!(next_end(&mut line).await.unwrap().is_err());
    assert!(line.running(key(1)).is_none() && line.running(key(2)).is_some());
    line.abort_all();
    assert!(next_end(&mut line).await.unwrap().is_err());
    assert!(next_end(&mut line).await.is_none() && line.is_idle());
}

/// The next activation of a bounded node starts after a running one has ended in any way.
#[tokio::test]
async fn node_concurrency_counts_running_and_starting_attempts() {
    let (graph, state) = (graph(), Arc::new(Context::new()));
    let machine = in_flight(&graph);
    let mut line = TestLine::default();
    let going = |line: &TestLine| [0, 1, 2, 3].map(|node| line.count_running_or_held(node));
    run(&mut line, 0, false);
    run(&mut line, 1, false);
    run(&mut line, 2, true);
    line.hold_back(Seq::new(4), key(1));
    assert_eq!(going(&line), [1, 2, 1, 0]);
    line.pass_barriers(Seq::new(4));
    assert_eq!(going(&line), [1, 2, 1, 0], "it waits for its barrier, and will start");
    assert_eq!(line.next_passed(), Some(key(1)));
    run(&mut line, 1, false);
    assert_eq!(going(&line), [1, 1, 1, 0], "one activation runs once");
    line.remove_running(key(1));
    assert!(line.remove_running(key(1)).is_none());
    assert_eq!(going(&line), [1, 0, 1, 0]);
    line.restart((&machine, &state), at(0), |_| false);
    assert_eq!(going(&line), [0, 0, 1, 0], "an attempt that does not follow is not running any more");
    run(&mut line, 3, false);
    line.abort_repeatable();
    assert_eq!(going(&line), [0, 0, 1, 0]);
    line.abort_all();
    assert_eq!(going(&line), [0; 4]);
}

#[tokio::test]
async fn an_end_says_of_which_activation_it_is() {
    let mut line = TestLine::default();
    let scope = scope(key(1));
    let by = scope.attempt_key;
    let end = async move { (by, AttemptEnd::Done(Update::none()), Duration::from_millis(3)) };
    line.run(false, scope, origin(1), end);
    let (of, end, took) = next_end(&mut line).await.unwrap().unwrap();
    assert!(
        of.activation == key(1) && matches!(end, AttemptEnd::Done(_)) && took == Duration::from_millis(3)
    );
}

/// The attempt had ended before it was aborted. Its activation follows again with other inputs, and must not count as ended.
#[tokio::test]
async fn stale_attempt_end_skips_next_attempt() {
    let (graph, state) = (graph(), Arc::new(Context::new()));
    let machine = in_flight(&graph);
    let mut line = TestLine::default();
    let end = |by| ready_now((by, AttemptEnd::Done(Update::none()), Duration::ZERO));
    let (first, second) = (scope(key(0)), scope(key(1)));
    line.run(false, Arc::clone(&first), origin(0), end(first.attempt_key));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    line.restart((&machine, &state), at(0), |_| false);
    let first = first.attempt_key;
    let way = line.next_way();
    assert!(line.has_left(first) && !line.has_left(AttemptKey { way, ..first }));
    run(&mut line, 0, false);
    let by = second.attempt_key;
    line.run(false, second, origin(1), end(by));
    let (of, ..) = next_end(&mut line).await.unwrap().unwrap();
    assert_eq!(of.activation, key(1));
    assert!(line.running(key(0)).is_some());
}
