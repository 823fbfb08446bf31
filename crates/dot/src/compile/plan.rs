//! Decides where a run goes after a node. The decision depends only on the node's edges, its outcome and the context after the outcome.

use std::collections::{HashMap, HashSet};

use ferrata_core::state::Context;
use serde::{Deserialize, Serialize};

use crate::condition::ConditionFacts;
use crate::outcome::{StageOutcome, Status};
use crate::select::{ChoiceReason, EdgeCandidate, EdgeChoice, choose};
use crate::suggest::beginning_for_message;

/// Maximum number of edge conditions that a message names.
const TOLD: usize = 8;

/// Prefix of the context keys of goal gates.
pub(super) const GATES: &str = "internal.gate.";

/// Returns the context key of the last outcome of a visited goal gate.
pub(super) fn gate_key(node: &str) -> String {
    format!("{GATES}{node}")
}

/// The possible targets of one node.
#[derive(Debug)]
pub(super) struct NodeTargets {
    pub(super) edges: Vec<EdgeCandidate>,
    /// For each edge, whether the run restarts when it follows the edge.
    pub(super) restarts: Vec<bool>,
    /// For each edge, whether the run returns to an earlier node on purpose, to plan again.
    pub(super) replans: Vec<bool>,
    /// For each edge, the fidelity settings that it has for the next task.
    pub(super) carries: Vec<Option<EdgeFidelity>>,
    /// For each edge, whether the edge leads to a conditional node.
    pub(super) to_conditional: Vec<bool>,
    /// Whether the node only routes. The outcome of such a node is the outcome of the previous node, and even a failure may follow any edge.
    pub(super) decides: bool,
    /// Whether the run follows all edges of the node at once.
    pub(super) forks: bool,
    /// For each edge, the context key of the list whose items each begin a branch.
    pub(super) each: Vec<Option<String>>,
    /// The node where the branches of this parallel node meet. If its list is empty, the run goes directly to that node.
    pub(super) meets: Option<String>,
    /// Whether the choice among equally suitable edges is random, in proportion to their weights.
    pub(super) random: bool,
    /// The maximum number of restarts after the same failure.
    pub(super) signature_limit: Option<u64>,
    /// The node where the branches around this node meet. A branch that would end at this node goes there instead.
    pub(super) home: Option<String>,
    /// Targets outside the branch of this node. The run follows such a route only where the branches meet.
    pub(super) out: HashSet<String>,
    /// Targets inside a branch that does not contain this node, each with the parallel node through which the route leads.
    pub(super) through: HashMap<String, String>,
    /// For a parallel node, the first node of the branch for a run whose target is inside one of its branches, by target.
    pub(super) entries: HashMap<String, String>,
    /// The target of a jump after a failure: the first configured target that exists.
    pub(super) retry_target: Option<(String, JumpAttribute)>,
    /// All configured jump targets, including those after the first. All of them are part of the graph.
    pub(super) named: Vec<String>,
    /// The goal gates that this node checks before the run ends. Exits check them, and so do nodes without a successor that are outside of branches.
    pub(super) gates: Vec<GoalGate>,
}

/// A node whose goal must be met before the run may end.
#[derive(Debug)]
pub(super) struct GoalGate {
    pub(super) node: String,
    pub(super) target: Option<(String, JumpAttribute)>,
}

/// The attribute that names the target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JumpAttribute {
    Own,
    Fallback,
    OfGraph,
    FallbackOfGraph,
    Join,
    /// A branch that met here was abandoned for the target.
    Left,
}

impl JumpAttribute {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "retry_target",
            Self::Fallback => "fallback_retry_target",
            Self::OfGraph => "graph.retry_target",
            Self::FallbackOfGraph => "graph.fallback_retry_target",
            Self::Join => "join",
            Self::Left => "left",
        }
    }
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The run follows an edge.
    Edge {
        to: String,
        /// The index of the edge among the node's edges; `None` if the run restarts.
        place: Option<usize>,
        reason: ChoiceReason,
        restart: bool,
        replan: bool,
        carries: Option<EdgeFidelity>,
    },
    /// The run jumps to a node without following an edge.
    Jump { to: String, why: JumpAttribute },
    /// The run follows all edges, and each edge begins a branch.
    Fork,
    /// The list has no items, so the run goes to the node where the branches would have met.
    Skip { to: String },
    /// The run begins only the branch that leads to its target node.
    Begin { first: String },
    /// No edge begins at the node, so the run, or its branch, ends here.
    End,
    /// No edge has a condition that holds, so the run or the branch fails.
    Stuck,
    /// The run fails.
    Fail,
    /// The run fails, because the goal of this gate is not met.
    Unmet { gate: String },
}

/// Returns the value of a key that stands for the last command's output in other dialects: the whole output, or its last line.
fn of_other_dialects(key: &str, context: &Context) -> Option<serde_json::Value> {
    let output = context.get_value("tool.output")?.as_str()?;
    match key {
        "tool_stdout" | "tool.stdout" => Some(output.trim().into()),
        "tool.last_line" => output.lines().map(str::trim).rfind(|line| !line.is_empty()).map(Into::into),
        _ => None,
    }
}

/// The fidelity settings of an edge for the next task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EdgeFidelity {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) fidelity: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) thread_id: String,
}

/// The data of an outcome that the route reads. The data is the output of the node, so that the route can be evaluated again later.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RouteInput {
    pub(super) outcome: Status,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) own_outcome: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) preferred_label: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) suggested_next_ids: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) failure_reason: String,
    /// The branch in which the node ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) branch: Option<String>,
    /// The node for which the branch was abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) leave: Option<String>,
    /// The node inside a branch of the receiving parallel node to which the run goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) enter: Option<String>,
    /// The node where the run continues instead of following an edge, because a branch was abandoned for that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) goes: Option<String>,
    /// Whether each receiving node is the first node of a branch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) fork: bool,
    /// The node where the run restarts. The decision is stored here, because the restart removes the context of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) restart: Option<String>,
    /// The fidelity settings of the chosen edge for the next task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) carries: Option<EdgeFidelity>,
    /// The index of the chosen edge among the node's edges. `why` has the reason for the choice, or for a jump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) edge: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// Whether none of the edges of the node has a condition that holds. Then the node's failure ends the branch here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) stuck: bool,
    /// Whether the branch was abandoned, so that it ends here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) left: bool,
    /// The generation of the run. Present if this result may settle the outcome of the other branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) start_id: Option<String>,
    /// The random number of the choice. A repeated evaluation uses the same number and chooses the same edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) draw: Option<u64>,
    /// Names of texts in the context that other nodes wrote. Such texts must not appear as texts of this attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) of_others: Vec<String>,
}

impl RouteInput {
    pub(super) fn of(outcome: &StageOutcome, branch: Option<String>, fork: bool) -> Self {
        Self {
            outcome: outcome.status,
            own_outcome: outcome.own_outcome.clone(),
            preferred_label: outcome.preferred_label.clone(),
            suggested_next_ids: outcome.suggested_next_ids.clone(),
            failure_reason: outcome.failure_reason.clone(),
            branch,
            leave: None,
            enter: None,
            goes: None,
            fork,
            restart: None,
            carries: None,
            edge: None,
            why: None,
            stuck: false,
            left: false,
            start_id: None,
            draw: None,
            of_others: Vec::new(),
        }
    }

    /// Returns the data for a node that an operator marked as done.
    pub(super) fn success() -> Self {
        Self::of(&StageOutcome::success(), None, false)
    }

    /// Returns the reason for which the run returns to an earlier node.
    pub(super) fn replan_reason(&self, node: &str) -> String {
        let outcome = if self.own_outcome.is_empty() { self.outcome.as_str() } else { &self.own_outcome };
        match &*self.failure_reason {
            "" => format!("`{node}` ended with `{outcome}`"),
            reason => format!("`{node}`: {reason}"),
        }
    }

    fn as_outcome(&self) -> StageOutcome {
        let mut outcome = StageOutcome::new(self.outcome).prefer(&*self.preferred_label);
        outcome.suggested_next_ids.clone_from(&self.suggested_next_ids);
        outcome.own_outcome.clone_from(&self.own_outcome);
        outcome
    }
}

impl NodeTargets {
    /// Returns the next step after an outcome.
    ///
    /// A failure follows an edge whose condition holds. Otherwise the run jumps to the retry target. Without a retry target, the failure follows an
    /// edge to a conditional node, which decides what to do. A failure never follows any other edge without a condition.
    pub(super) fn next(&self, sent: &RouteInput, context: &Context) -> NextStep {
        match (self.after(sent, context), &self.home) {
            (NextStep::End | NextStep::Fail, Some(home)) => {
                NextStep::Jump { to: home.clone(), why: JumpAttribute::Join }
            }
            (next, _) => next,
        }
    }

    fn after(&self, sent: &RouteInput, context: &Context) -> NextStep {
        if let Some(to) = &sent.restart {
            let carries = sent.carries.clone();
            return NextStep::Edge {
                to: to.clone(),
                place: sent.edge,
                reason: ChoiceReason::Condition,
                restart: true,
                replan: false,
                carries,
            };
        }
        if sent.left {
            return NextStep::End;
        }
        if let Some(to) = &sent.goes {
            return NextStep::Jump { to: to.clone(), why: JumpAttribute::Left };
        }
        if sent.stuck {
            return NextStep::Fail;
        }
        if self.forks && sent.outcome != Status::Fail {
            let first = sent.enter.as_ref().and_then(|to| self.entries.get(to));
            return match (first, &self.meets) {
                (Some(first), _) => NextStep::Begin { first: first.clone() },
                (None, Some(meets)) if self.items(context).is_ok_and(|(_, branches)| branches == 0) => {
                    NextStep::Skip { to: meets.clone() }
                }
                _ => NextStep::Fork,
            };
        }
        if let Some(next) = self.find_unmet_gate(context).filter(|_| sent.outcome != Status::Fail) {
            return next;
        }
        let lookup = |key: &str| context.get_value(key).cloned().or_else(|| of_other_dialects(key, context));
        let outcome = sent.as_outcome();
        let facts = ConditionFacts::new(outcome.word(), &sent.preferred_label, &lookup);
        let choice = choose(&self.edges, &outcome, &facts, sent.draw);
        if sent.outcome != Status::Fail {
            return match choice {
                Some(choice) => self.edge(choice),
                None if self.edges.is_empty() => NextStep::End,
                None => NextStep::Stuck,
            };
        }
        if self.decides {
            return choice.map_or(NextStep::Fail, |choice| self.edge(choice));
        }
        if let Some(choice) = choice.filter(|choice| choice.reason == ChoiceReason::Condition) {
            return self.edge(choice);
        }
        if let Some((to, why)) = &self.retry_target {
            return NextStep::Jump { to: to.clone(), why: *why };
        }
        // Keep the index of each edge, so that the choice among the remaining edges can be mapped to an edge of the node.
        let kept: Vec<usize> = (0..self.edges.len()).filter(|&at| self.to_conditional[at]).collect();
        let edges: Vec<EdgeCandidate> = kept.iter().map(|&at| self.edges[at].clone()).collect();
        match choose(&edges, &outcome, &facts, sent.draw) {
            Some(EdgeChoice { edge, reason }) => self.edge(EdgeChoice { edge: kept[edge], reason }),
            None => NextStep::Fail,
        }
    }

    /// Describes the conditions of the node's edges, for a message that none of them holds after this outcome.
    pub(super) fn describe_conditions(&self, node: &str, outcome: &StageOutcome) -> String {
        let label = match &*outcome.preferred_label {
            "" => String::new(),
            label => format!(" with the label `{}`", beginning_for_message(label)),
        };
        let asked = |edge: &EdgeCandidate| {
            format!("to `{}` if `{}`", edge.to, beginning_for_message(edge.condition.text()))
        };
        let mut asked: Vec<String> = self.edges.iter().take(TOLD).map(asked).collect();
        if self.edges.len() > TOLD {
            asked.push(format!("and {} more", self.edges.len() - TOLD));
        }
        format!(
            "`{node}` ended with `{}`{label}, and no condition of its edges holds: {}; add an edge without a condition",
            outcome.word(),
            asked.join(", ")
        )
    }

    fn edge(&self, choice: EdgeChoice) -> NextStep {
        let to = self.edges[choice.edge].to.clone();
        let carries = self.carries[choice.edge].clone();
        let (restart, replan) = (self.restarts[choice.edge], self.replans[choice.edge]);
        NextStep::Edge { to, place: Some(choice.edge), reason: choice.reason, restart, replan, carries }
    }

    /// Finds the first visited gate whose goal is not met.
    fn find_unmet_gate(&self, context: &Context) -> Option<NextStep> {
        let unmet = |gate: &&GoalGate| {
            let last = context.get_value(&gate_key(&gate.node)).and_then(|value| value.as_str());
            last.is_some_and(|status| status != "success" && status != "partial_success")
        };
        let gate = self.gates.iter().find(unmet)?;
        Some(match &gate.target {
            Some((to, why)) => NextStep::Jump { to: to.clone(), why: *why },
            None => NextStep::Unmet { gate: gate.node.clone() },
        })
    }

    /// Returns the graph node through which a route to `to` leads. A route that leaves the branch leads through the node where the branches meet. A
    /// route into a branch leads through its parallel node.
    pub(super) fn waypoint_to<'a>(&'a self, to: &'a str) -> &'a str {
        match &self.home {
            Some(home) if self.out.contains(to) => home,
            _ => self.through.get(to).map_or(to, String::as_str),
        }
    }

    /// Returns the direct successors of this node in the graph, without repetitions.
    pub(super) fn followers(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let all = self.targets();
        let ways = all.iter().map(|to| self.waypoint_to(to));
        let meets = self.meets.iter().filter(|_| self.each.iter().any(Option::is_some));
        let ways = ways.chain(self.entries.values().chain(meets).map(String::as_str));
        ways.filter(|to| seen.insert(*to)).map(str::to_owned).collect()
    }

    /// Returns all possible targets of this node, without repetitions.
    pub(super) fn targets(&self) -> Vec<String> {
        let edges = self.edges.iter().map(|edge| &edge.to);
        let jumps = self.retry_target.iter().map(|(to, _)| to);
        let gates = self.gates.iter().filter_map(|gate| gate.target.as_ref().map(|(to, _)| to));
        let mut seen = HashSet::new();
        edges
            .chain(jumps)
            .chain(gates)
            .chain(&self.named)
            .chain(&self.home)
            .filter(|to| seen.insert(*to))
            .cloned()
            .collect()
    }
}
