//! Section 1.3: edge selection, tier by tier.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use ferrata_dot::condition::{Condition, ConditionFacts};
use ferrata_dot::outcome::{StageOutcome, Status};
use ferrata_dot::select::{ChoiceReason, EdgeCandidate, choose, normal_label, select};
use proptest::prelude::*;

fn edge(to: &str, label: &str, condition: &str, weight: i64) -> EdgeCandidate {
    EdgeCandidate {
        to: to.into(),
        label: label.into(),
        condition: Condition::parse(condition).unwrap(),
        weight,
    }
}

/// The chosen target and the reason, after a success.
fn chosen(edges: &[EdgeCandidate], outcome: &StageOutcome) -> Option<(String, ChoiceReason)> {
    let facts = ConditionFacts::new(outcome.status.as_str(), &outcome.preferred_label, &|_| None);
    select(edges, outcome, &facts).map(|choice| (edges[choice.edge].to.clone(), choice.reason))
}

#[track_caller]
fn check(edges: &[EdgeCandidate], outcome: &StageOutcome, to: &str, reason: ChoiceReason) {
    assert_eq!(chosen(edges, outcome), Some((to.to_owned(), reason)));
}

/// Guarantees: DOT-17.
#[test]
fn tier_1_prefers_matching_condition() {
    let edges = [
        edge("heavy", "yes", "", 100),
        edge("b", "", "outcome=success", 0),
        edge("c", "", "outcome=fail", 9),
    ];
    check(&edges, &StageOutcome::success().prefer("yes").suggest("heavy"), "b", ChoiceReason::Condition);
}

#[test]
fn tier_1_breaks_ties_by_weight_then_name() {
    let holds = "outcome=success";
    let edges = [edge("z", "", holds, 1), edge("b", "", holds, 5), edge("a", "", holds, 5)];
    check(&edges, &StageOutcome::success(), "a", ChoiceReason::Condition);
}

/// Guarantees: DOT-17.
#[test]
fn tier_2_takes_first_edge_with_preferred_label() {
    let edges = [
        edge("conditional", "Fix", "outcome=fail", 0),
        edge("b", "[F] fix ", "", 0),
        edge("c", "Fix", "", 50),
    ];
    check(&edges, &StageOutcome::success().prefer(" FIX").suggest("c"), "b", ChoiceReason::PreferredLabel);
}

#[test]
fn tier_3_takes_first_suggested_node() {
    let edges = [edge("a", "", "outcome=fail", 0), edge("b", "", "", 9), edge("c", "", "", 0)];
    let outcome =
        StageOutcome::success().prefer("nothing").suggest("nobody").suggest("a").suggest("c").suggest("b");
    check(&edges, &outcome, "c", ChoiceReason::SuggestedNextId);
}

/// Guarantees: DOT-17.
#[test]
fn tier_4_takes_the_heaviest_free_edge() {
    let edges = [edge("a", "", "", 1), edge("b", "", "", 2), edge("c", "", "outcome=fail", 3)];
    check(&edges, &StageOutcome::success(), "b", ChoiceReason::Weight);
}

#[test]
fn tier_5_takes_the_first_target_by_name() {
    let edges = [edge("b", "", "", 2), edge("a", "", "", 2), edge("c", "", "", 1)];
    check(&edges, &StageOutcome::success(), "a", ChoiceReason::Lexical);
}

/// Guarantees: DOT-17.
#[test]
fn no_edge_fires_if_only_false_conditions_remain() {
    assert_eq!(
        chosen(&[edge("a", "x", "outcome=fail", 0)], &StageOutcome::success().prefer("x").suggest("a")),
        None
    );
    assert_eq!(chosen(&[], &StageOutcome::success()), None);
}

#[test]
fn labels_are_normalised() {
    for (label, normal) in [
        ("  Yes ", "yes"),
        ("[Y] Yes", "yes"),
        ("Y) Yes", "yes"),
        ("Y - Yes", "yes"),
        ("[1] One", "one"),
        ("Plan - B", "plan - b"),
        ("(a) b", "(a) b"),
        ("[Yes] No", "[yes] no"),
        ("[Y]", "[y]"),
        ("", ""),
        ("É) x", "x"),
    ] {
        assert_eq!(normal_label(label), normal, "{label}");
    }
}

proptest! {
    /// The choice does not depend on the order of the edges, unless a label or a suggestion means "the first".
    #[test]
    fn edge_order_does_not_affect_weights_and_names(
        parts in prop::collection::vec(("[a-d]", prop::sample::select(vec!["", "outcome=success", "outcome=fail"]), -2..3_i64), 1..8),
        seed: u64,
    ) {
        let edges: Vec<EdgeCandidate> = parts.iter().map(|(to, condition, weight)| edge(to, "", condition, *weight)).collect();
        let mut shuffled = edges.clone();
        shuffled.rotate_left((seed % edges.len() as u64).try_into().unwrap());
        let outcome = StageOutcome::new(Status::Success);
        prop_assert_eq!(chosen(&edges, &outcome), chosen(&shuffled, &outcome));
    }
}

/// The number of choices of each target, for a thousand evenly spread random numbers.
fn drawn(edges: &[EdgeCandidate], outcome: &StageOutcome) -> Vec<(String, usize)> {
    let facts = ConditionFacts::new("success", "", &|_| None);
    let mut counts = std::collections::BTreeMap::new();
    for at in 0..1000_u64 {
        let choice = choose(edges, outcome, &facts, Some(u64::MAX / 1000 * at)).unwrap();
        assert_eq!(choice.reason, ChoiceReason::Random);
        *counts.entry(edges[choice.edge].to.clone()).or_default() += 1;
    }
    counts.into_iter().collect()
}

#[test]
fn random_selection_draws_by_weight_within_a_tier() {
    let edges = [edge("a", "", "", 7), edge("b", "", "", 2), edge("c", "", "", 0), edge("d", "x", "", -5)];
    let counts = drawn(&edges, &StageOutcome::success());
    // The shares are 7, 2, 1 and 1 of 11.
    let wanted = [("a", 637), ("b", 182), ("c", 91), ("d", 91)];
    for ((to, count), (wanted_to, wanted)) in counts.iter().zip(wanted) {
        assert_eq!(to, wanted_to);
        assert!(count.abs_diff(wanted) <= 2, "{to}: {count} instead of {wanted}");
    }
    let edges = [edge("a", "go", "", 1), edge("b", "[G] Go", "", 1), edge("c", "", "", 100)];
    let counts = drawn(&edges, &StageOutcome::success().prefer("go"));
    assert_eq!(counts.iter().map(|(to, _)| &**to).collect::<Vec<_>>(), ["a", "b"]);
    assert!(counts.iter().all(|(_, count)| count.abs_diff(500) <= 2), "{counts:?}");
}

#[test]
fn random_selection_leaves_conditions_alone() {
    let edges = [edge("a", "", "outcome=success", 0), edge("b", "", "", 5)];
    let facts = ConditionFacts::new("success", "", &|_| None);
    let choice = choose(&edges, &StageOutcome::success(), &facts, Some(u64::MAX)).unwrap();
    assert_eq!((choice.edge, choice.reason), (0, ChoiceReason::Condition));
}
