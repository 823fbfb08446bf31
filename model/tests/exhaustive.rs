//! Visits every state that the rules allow within a budget, and checks that the model finds every planted mistake.
#![expect(
    clippy::print_stdout,
    reason = "how many states there are, and how a mistake was found, is what a person wants to see"
)]

use std::num::NonZero;

use ferrata_model::letters::{Delivery, Postage, Slip};
use ferrata_model::{Budget, Mistake, Protocol};
use stateright::{Checker, HasDiscoveries, Model};

/// Two processes, two generations of one run id, retention, and no failures.
const CALM: Budget =
    Budget { signals: 2, crashes: 0, lapses: 0, releases: 0, failures: 0, purges: 0, generations: 2 };

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Visits every state within a budget.
#[track_caller]
fn holds(budget: Budget) {
    let checker = Protocol { mistake: None, budget }.checker().threads(threads()).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    assert!(checker.is_done(), "the exploration ended early");
    for property in (Protocol { mistake: None, budget: CALM }).properties() {
        if property.expectation == stateright::Expectation::Always {
            checker.assert_no_discovery(property.name);
        }
    }
}

/// Explores the rules with a mistake until a property fails.
#[track_caller]
fn finds(mistake: Mistake, budget: Budget, property: &'static str) {
    let model = Protocol { mistake: Some(mistake), budget };
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().threads(threads()).finish_when(found).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{mistake:?} is not found"));
    println!("{mistake:?}: {:?}", path.into_actions());
}

#[test]
fn what_is_meant_to_happen_can_happen() {
    let model = Protocol { mistake: None, budget: CALM };
    let checker = model.checker().threads(threads()).spawn_bfs().join();
    checker.assert_any_discovery("a second generation completes");
    checker.assert_any_discovery("a deadline ends a run at rest");
    let model = Protocol { mistake: None, budget: Budget { crashes: 1, ..CALM } };
    let found = HasDiscoveries::AnyOf(["an effect begins again with leave"].into());
    let checker = model.checker().threads(threads()).finish_when(found).spawn_bfs().join();
    checker.assert_any_discovery("an effect begins again with leave");
}

/// Guarantees: FLEET-1, MODEL-1, MODEL-2, MODEL-3, MODEL-4, MODEL-5, MODEL-6, MODEL-7, MODEL-8, MODEL-9.
#[test]
fn promises_hold_with_two_signals_one_mishap() {
    holds(Budget { crashes: 1, ..CALM });
    holds(Budget { lapses: 1, ..CALM });
    holds(Budget { releases: 1, failures: 1, ..CALM });
    holds(Budget { purges: 1, ..CALM });
}

/// Guarantees: MODEL-1, MODEL-9.
#[test]
fn promises_hold_with_one_signal_several_mishaps() {
    holds(Budget { signals: 1, crashes: 1, lapses: 1, ..CALM });
    holds(Budget { signals: 1, crashes: 1, releases: 1, purges: 1, ..CALM });
}

/// Visits some millions of states. `cargo xtask prove` runs this test.
#[test]
#[ignore = "takes minutes; `cargo xtask prove` runs it"]
fn promises_hold_with_two_signals_several_mishaps() {
    holds(Budget { crashes: 1, lapses: 1, failures: 1, ..CALM });
    holds(Budget { lapses: 1, releases: 1, purges: 1, ..CALM });
}

/// Guarantees: MODEL-6.
#[test]
fn model_finds_start_that_ends_with_caller() {
    let property = "a run that a living process owns is driven by it";
    finds(Mistake::CallerOwnsTheStart, CALM, property);
}

/// Guarantees: MODEL-7.
#[test]
fn a_rest_before_the_deadline_is_found() {
    finds(Mistake::RestBeforeDeadline, CALM, "a run at rest is claimed for more than a rest");
}

/// Guarantees: MODEL-3.
#[test]
fn model_finds_epoch_check_without_generation() {
    let budget = Budget { purges: 1, releases: 1, ..CALM };
    finds(Mistake::EpochWithoutGeneration, budget, "no result enters another generation");
}

/// Guarantees: CONTROL-21, MODEL-4.
#[test]
fn model_finds_last_node_ending_cancelled_run() {
    finds(Mistake::LastNodeEndsTheRun, CALM, "a recorded cancellation is carried out");
}

/// Guarantees: CONTROL-21, MODEL-5.
#[test]
fn model_finds_last_node_ending_paused_run() {
    finds(Mistake::LastNodeEndsTheRun, CALM, "a recorded pause holds the run");
}

/// Guarantees: MODEL-8.
#[test]
fn model_finds_purge_without_head_check() {
    let budget = Budget { failures: 1, ..CALM };
    finds(Mistake::PurgeWithoutHead, budget, "retention removes only what has ended");
}

/// Guarantees: DURABLE-2, MODEL-1.
#[test]
fn a_doubt_that_is_not_asked_is_found() {
    let budget = Budget { crashes: 1, ..CALM };
    finds(Mistake::DoubtIsNotAsked, budget, "an effect begins once, and once more for each leave");
}

/// Guarantees: MODEL-2.
#[test]
fn model_finds_effect_without_owner_check_after_lapse() {
    let budget = Budget { lapses: 1, ..CALM };
    finds(Mistake::NoLookAfterLapse, budget, "an effect begins in the process that has the run");
}

/// Two messages with two delivering processes: failures, and a process that crashes or loses the run to the other one.
const POSTAGE: Postage = Postage { letters: 2, failures: 2, crashes: 1, claims: 0, retries: 0 };

/// Visits every order of deliveries within a budget.
#[track_caller]
fn delivers(postage: Postage) {
    let checker = Delivery { slip: None, postage }.checker().threads(threads()).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    assert!(checker.is_done(), "the exploration ended early");
    checker.assert_properties();
}

/// Guarantees: MODEL-10, MODEL-11, MODEL-12, MODEL-13, OUTBOX-1.
#[test]
fn letters_come_at_least_once_and_in_order() {
    delivers(POSTAGE);
    delivers(Postage { crashes: 0, claims: 1, ..POSTAGE });
    delivers(Postage { crashes: 0, retries: 1, ..POSTAGE });
}

#[test]
#[ignore = "takes seconds; `cargo xtask prove` runs it"]
fn several_outbox_messages_arrive_in_order() {
    delivers(Postage { claims: 1, retries: 1, ..POSTAGE });
    delivers(Postage { letters: 3, claims: 1, ..POSTAGE });
    delivers(Postage { letters: 3, failures: 3, crashes: 0, ..POSTAGE });
}

/// Explores the rules of delivery with a mistake until a property fails.
#[track_caller]
fn finds_slip(slip: Slip, property: &'static str) {
    let model = Delivery { slip: Some(slip), postage: POSTAGE };
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().threads(threads()).finish_when(found).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{slip:?} is not found"));
    println!("{slip:?}: {:?}", path.into_actions());
}

/// Guarantees: MODEL-10.
#[test]
fn model_finds_overtaken_process_that_continues() {
    finds_slip(Slip::GoesOnWhenOvertaken, "no letter passes one that still waits");
}

/// Guarantees: MODEL-10.
#[test]
fn model_finds_later_message_passing_failed_one() {
    finds_slip(Slip::PassesWhatFailed, "no letter passes one that still waits");
}

/// Guarantees: MODEL-12.
#[test]
fn a_delivery_that_is_recorded_first_is_found() {
    finds_slip(Slip::RecordsFirst, "what is on record as delivered has come");
}

/// Guarantees: MODEL-11.
#[test]
fn model_finds_message_delivered_before_its_record() {
    finds_slip(Slip::HandsInEarly, "no letter comes before its record");
}
