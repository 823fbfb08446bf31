//! Metrics of a runtime: every metric of the catalogue changes when it should, and none contains data of a run.

mod fleet;
mod pages;
mod recorder;
mod runs;
mod stores;
mod world;

use std::collections::BTreeSet;

use ferrata_core::metrics::ALL;

/// Every described metric changes in some scenario. A metric that never changes would mislead operators.
///
/// Guarantees: METRIC-1.
#[test]
fn every_metric_moves_without_run_labels() {
    let scenarios = [
        runs::a_run_is_counted_from_its_start_to_its_end,
        runs::failures_are_counted_by_kind_and_retries_apart,
        runs::a_run_that_rests_and_is_answered_tells_how_long_it_waited,
        runs::a_run_cancelled_at_rest_is_counted_without_a_driver,
        runs::nodes_are_told_apart_only_if_asked_for,
        runs::runs_beyond_the_limit_are_counted_while_they_wait,
        runs::what_is_made_again_after_a_conflict_is_counted_once,
        runs::letters_are_counted_by_topic,
        stores::appends_loads_and_removals_are_counted,
        stores::a_failed_append_is_counted_with_its_retry,
        fleet::claims_are_counted_as_won_late_or_failed,
        fleet::the_oldest_run_without_a_driver_is_told,
        fleet::what_cannot_be_taken_up_is_told,
        fleet::a_run_that_is_taken_up_without_progress_is_counted_as_parked,
        fleet::heartbeats_and_their_loss_are_counted,
        fleet::a_queue_is_told_as_it_stands,
    ];
    scenarios.into_iter().for_each(|scenario: fn()| scenario());
    let seen = world::take_seen();
    assert_eq!(seen.len(), scenarios.len());
    let moved: BTreeSet<String> = seen.iter().flat_map(|seen| seen.moved()).collect();
    let all: BTreeSet<String> = ALL.iter().map(|metric| metric.name.to_owned()).collect();
    assert_eq!(moved, all);
    let values: BTreeSet<String> = seen.iter().flat_map(|seen| seen.label_values()).collect();
    assert!(values.len() < 100, "too few values in all: {values:?}");
}
