//! Selects the edge that a run follows after a node. The selection has five rules, and the first rule with a matching edge decides.

use std::fmt;

use crate::condition::{Condition, ConditionFacts};
use crate::outcome::StageOutcome;

/// An edge that the selection may choose.
#[derive(Clone, Debug)]
pub struct EdgeCandidate {
    /// The node to which the edge leads.
    pub to: String,
    /// The label of the edge; an empty text if it has none.
    pub label: String,
    /// The condition of the edge; the empty condition if it has none.
    pub condition: Condition,
    /// The weight of the edge.
    pub weight: i64,
}

/// The reason why an edge was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChoiceReason {
    /// The condition of the edge holds. Among several such edges, it has the highest weight, and then the first target by name.
    Condition,
    /// The edge has the label that the outcome prefers.
    PreferredLabel,
    /// The edge leads to a node that the outcome suggests.
    SuggestedNextId,
    /// The edge has the highest weight of the edges without a condition.
    Weight,
    /// Several edges without a condition have the highest weight, and the target of this edge is the first by name.
    Lexical,
    /// The edge was chosen at random among edges with the preferred label, to a suggested node, or without a condition.
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

/// The chosen edge, as an index of the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeChoice {
    /// The index of the edge among the candidates.
    pub edge: usize,
    /// The reason for the choice.
    pub reason: ChoiceReason,
}

/// Chooses an edge. The rules are tried in this order:
///
/// 1. Among the edges whose condition holds, choose the edge with the highest weight. If several have it, choose the first target by name.
/// 2. Choose the first edge without a condition whose label is the preferred label. [`normal_label`] normalizes both labels.
/// 3. Take the suggested nodes in order. Choose the first edge without a condition to the first of them that has such an edge.
/// 4. Among the edges without a condition, choose the edge with the highest weight.
/// 5. If several of them have the highest weight, choose the first target by name.
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

/// Chooses an edge like [`select`], for a node with `selection=random`. The number `drawn` decides among the edges that a rule allows, in proportion
/// to their weights. A weight of 0 or less counts as 1. The same number chooses the same edge. A choice by condition is never random.
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
    // The upper half of the product of the two numbers distributes `drawn` evenly over the weights.
    let mut rest = (u128::from(drawn) * total) >> 64;
    for (edge, weight) in tier {
        if rest < weight {
            return Some(EdgeChoice { edge, reason: ChoiceReason::Random });
        }
        rest -= weight;
    }
    Some(choice)
}

/// Returns the eligible edge with the highest weight, and whether several have it. Among these, the first target by name wins, and then the first
/// edge.
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

/// Returns the normalized form of a label for comparison: lower case, without surrounding blanks, and without an accelerator such as in `[Y] Yes`,
/// `Y) Yes` or `Y - Yes`.
pub fn normal_label(label: &str) -> String {
    let label = label.trim().to_lowercase();
    match accelerator(&label) {
        Some((_, rest)) => rest.to_owned(),
        None => label,
    }
}

/// Splits a label that has an accelerator into the key and the rest of the label.
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

/// An accelerator is a single letter or digit, so `Plan - B` keeps its first word.
fn is_key(key: &str) -> bool {
    let mut letters = key.chars();
    letters.next().is_some_and(char::is_alphanumeric) && letters.next().is_none()
}
