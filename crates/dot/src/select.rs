//! Selects the edge that a run follows after a node: the first of five tiers with a match wins.

use std::fmt;

use crate::condition::{Condition, ConditionFacts};
use crate::outcome::StageOutcome;

/// An edge, as the input of the selection.
#[derive(Clone, Debug)]
pub struct EdgeCandidate {
    /// Its target.
    pub to: String,
    /// Its label, empty if it has none.
    pub label: String,
    /// Its condition, the empty one if it has none.
    pub condition: Condition,
    /// Its weight.
    pub weight: i64,
}

/// The reason for the choice of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChoiceReason {
    /// Its condition holds; of several, the heaviest and then the first target by name.
    Condition,
    /// It has the label that the outcome prefers.
    PreferredLabel,
    /// It leads to a node that the outcome suggests.
    SuggestedNextId,
    /// It is the heaviest edge without a condition.
    Weight,
    /// It is one of the heaviest edges without a condition, and its target comes first by name.
    Lexical,
    /// A random choice among edges with the preferred label, to a suggested node, or without a condition.
    Random,
}

impl fmt::Display for ChoiceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Condition => "condition",
            Self::PreferredLabel => "preferred_label",
            Self::SuggestedNextId => "suggested_next_id",
            Self::Weight => "weight",
            Self::Lexical => "lexical",
            Self::Random => "random",
        })
    }
}

/// The chosen edge, by its index among the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeChoice {
    /// The index.
    pub edge: usize,
    /// The reason.
    pub reason: ChoiceReason,
}

/// Chooses an edge:
///
/// 1. of the edges whose condition holds, the heaviest, then the first target by name;
/// 2. the first edge without a condition whose label is the preferred one, both normalised by [`normal_label`];
/// 3. the first edge without a condition to the first suggested node that has one;
/// 4. of the edges without a condition, the heaviest;
/// 5. of several as heavy, the first target by name.
///
/// Returns `None` if no edge matches. The result depends only on the arguments.
///
/// # Examples
///
/// ```
/// use ferrata_dot::condition::{Condition, ConditionFacts};
/// use ferrata_dot::outcome::StageOutcome;
/// use ferrata_dot::select::{ChoiceReason, EdgeCandidate, select};
///
/// let edge = |to: &str, label: &str| EdgeCandidate {
///     to: to.into(), label: label.into(), condition: Condition::parse("").unwrap(), weight: 0,
/// };
/// let outcome = StageOutcome::success().prefer("no");
/// let facts = ConditionFacts::new("success", "no", &|_| None);
/// let choice = select(&[edge("ship", "[Y] Yes"), edge("fix", "[N] No")], &outcome, &facts).unwrap();
/// assert_eq!((choice.edge, choice.reason), (1, ChoiceReason::PreferredLabel));
/// ```
pub fn select(
    edges: &[EdgeCandidate],
    outcome: &StageOutcome,
    facts: &ConditionFacts<'_>,
) -> Option<EdgeChoice> {
    let conditional = |edge: &EdgeCandidate| !edge.condition.is_empty() && edge.condition.holds(facts);
    if let Some((edge, _)) = best(edges, conditional) {
        return Some(EdgeChoice { edge, reason: ChoiceReason::Condition });
    }
    let free = |edge: &EdgeCandidate| edge.condition.is_empty();
    if !outcome.preferred_label.is_empty() {
        let wanted = normal_label(&outcome.preferred_label);
        let labelled = |edge: &EdgeCandidate| free(edge) && normal_label(&edge.label) == wanted;
        if let Some(edge) = edges.iter().position(labelled) {
            return Some(EdgeChoice { edge, reason: ChoiceReason::PreferredLabel });
        }
    }
    for suggested in &outcome.suggested_next_ids {
        if let Some(edge) = edges.iter().position(|edge| free(edge) && edge.to == *suggested) {
            return Some(EdgeChoice { edge, reason: ChoiceReason::SuggestedNextId });
        }
    }
    let (edge, tied) = best(edges, free)?;
    Some(EdgeChoice { edge, reason: if tied { ChoiceReason::Lexical } else { ChoiceReason::Weight } })
}

/// Chooses as [`select`] does, with `selection=random`: the `drawn` number chooses within a tier, in proportion to the edges' weights. A weight of 0
/// or less counts as 1. The same number chooses the same edge. A choice by condition is never random.
pub fn choose(
    edges: &[EdgeCandidate],
    outcome: &StageOutcome,
    facts: &ConditionFacts<'_>,
    drawn: Option<u64>,
) -> Option<EdgeChoice> {
    let choice = select(edges, outcome, facts)?;
    let Some(drawn) = drawn.filter(|_| choice.reason != ChoiceReason::Condition) else { return Some(choice) };
    let wanted = normal_label(&edges[choice.edge].label);
    let tier = edges.iter().enumerate().filter(|(_, edge)| {
        edge.condition.is_empty()
            && match choice.reason {
                ChoiceReason::PreferredLabel => normal_label(&edge.label) == wanted,
                ChoiceReason::SuggestedNextId => edge.to == edges[choice.edge].to,
                _ => true,
            }
    });
    let weight = |edge: &EdgeCandidate| u128::from(edge.weight.max(1).unsigned_abs());
    let tier: Vec<(usize, u128)> = tier.map(|(at, edge)| (at, weight(edge))).collect();
    let total: u128 = tier.iter().map(|(_, weight)| weight).sum();
    // The upper half of a product of two numbers spreads the drawn one evenly over the weights.
    let mut rest = (u128::from(drawn) * total) >> 64;
    for (edge, weight) in tier {
        if rest < weight {
            return Some(EdgeChoice { edge, reason: ChoiceReason::Random });
        }
        rest -= weight;
    }
    Some(choice)
}

/// Returns the heaviest edge, of several the first target by name, of several the first; and whether there were several.
fn best(edges: &[EdgeCandidate], eligible: impl Fn(&EdgeCandidate) -> bool) -> Option<(usize, bool)> {
    let mut best: Option<(usize, bool)> = None;
    for (at, edge) in edges.iter().enumerate().filter(|(_, edge)| eligible(edge)) {
        best = Some(match best {
            None => (at, false),
            Some((before, tied)) => match edge.weight.cmp(&edges[before].weight) {
                std::cmp::Ordering::Greater => (at, false),
                std::cmp::Ordering::Less => (before, tied),
                std::cmp::Ordering::Equal if edge.to < edges[before].to => (at, true),
                std::cmp::Ordering::Equal => (before, true),
            },
        });
    }
    best
}

/// Returns the normalized label for comparison: lower case, trimmed, without an accelerator as in `[Y] Yes`, `Y) Yes` or `Y - Yes`.
pub fn normal_label(label: &str) -> String {
    let label = label.trim().to_lowercase();
    match accelerator(&label) {
        Some((_, rest)) => rest.to_owned(),
        None => label,
    }
}

/// Splits a label with an accelerator into the key and the rest.
pub(crate) fn accelerator(label: &str) -> Option<(&str, &str)> {
    let label = label.trim();
    let (key, rest) = match label.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => {
            let bracket = label.split_once(") ").filter(|(key, _)| is_key(key));
            bracket.or_else(|| label.split_once(" - "))?
        }
    };
    let rest = rest.trim();
    (is_key(key) && !rest.is_empty()).then_some((key, rest))
}

/// Accelerators are a letter or digit, so that `Plan - B` keeps its first word.
fn is_key(key: &str) -> bool {
    let mut letters = key.chars();
    letters.next().is_some_and(char::is_alphanumeric) && letters.next().is_none()
}
