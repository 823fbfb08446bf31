//! The targets of a node after each outcome: a pure function of the node's edges, its outcome and the context after it.

use std::collections::{HashMap, HashSet};

use ferrata_core::state::Context;
use serde::{Deserialize, Serialize};

use crate::condition::ConditionFacts;
use crate::outcome::{StageOutcome, Status};
use crate::select::{ChoiceReason, EdgeCandidate, EdgeChoice, choose};
use crate::suggest::beginning_for_message;

/// How many failed edge conditions a message names.
const TOLD: usize = 8;

/// Prefix of the keys of goal gates.
pub(super) const GATES: &str = "internal.gate.";

/// The context key for the last outcome of a visited goal gate.
pub(super) fn gate_key(node: &str) -> String {
    format!("{GATES}{node}")
}

/// The targets of one node.
#[derive(Debug)]
pub(super) struct NodeTargets {
    pub(super) edges: Vec<EdgeCandidate>,
    /// For each edge, whether it restarts the run.
    pub(super) restarts: Vec<bool>,
    /// For each edge, whether the run goes back deliberately to plan again.
    pub(super) replans: Vec<bool>,
    /// For each edge, its fidelity settings for the next task.
    pub(super) carries: Vec<Option<EdgeFidelity>>,
    /// For each edge, whether it leads to a conditional node.
    pub(super) to_conditional: Vec<bool>,
    /// Whether the node only routes: then the outcome is that of the previous node, and a failure may follow any edge.
    pub(super) decides: bool,
    /// Whether the run follows all its edges at once.
    pub(super) forks: bool,
    /// For each edge, the key of the list with an item per branch.
    pub(super) each: Vec<Option<String>>,
    /// The node where the branches of a fork meet: if the list is empty, the run goes there.
    pub(super) meets: Option<String>,
    /// Whether chance decides among edges that differ only in weight.
    pub(super) random: bool,
    /// How often a restart may follow the same failure.
    pub(super) signature_limit: Option<u64>,
    /// The node where the branches around this node meet: its branch goes there instead of ending.
    pub(super) home: Option<String>,
    /// Targets outside that branch: such a route is followed where the branches meet.
    pub(super) out: HashSet<String>,
    /// Targets in a branch around which this node is not, each with the fork on the way.
    pub(super) through: HashMap<String, String>,
    /// For a fork, the first node of the branch for a run on its way to a node in one of its branches.
    pub(super) entries: HashMap<String, String>,
    /// The target of a jump after a failure: the first that exists.
    pub(super) retry_target: Option<(String, JumpAttribute)>,
    /// Every jump target, including those after the first: they are part of the graph.
    pub(super) named: Vec<String>,
    /// The gates that the exit checks, as does every node outside of branches without a successor.
    pub(super) gates: Vec<GoalGate>,
}

/// A node with a goal that must be met before the run may end.
#[derive(Debug)]
pub(super) struct GoalGate {
    pub(super) node: String,
    pub(super) target: Option<(String, JumpAttribute)>,
}

/// The attribute that names a jump target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JumpAttribute {
    Own,
    Fallback,
    OfGraph,
    FallbackOfGraph,
    Join,
    /// A branch that met here was abandoned for it.
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
    /// An edge.
    Edge {
        to: String,
        /// Its index among the node's edges; absent for a restarted run.
        place: Option<usize>,
        reason: ChoiceReason,
        restart: bool,
        replan: bool,
        carries: Option<EdgeFidelity>,
    },
    /// A node that is reached without an edge.
    Jump { to: String, why: JumpAttribute },
    /// All edges: each begins a branch.
    Fork,
    /// The list is empty: the run goes to where the branches would have met.
    Skip { to: String },
    /// The one branch that leads to the run's target node.
    Begin { first: String },
    /// The end: no edge begins here, and the run completes.
    End,
    /// No edge holds: the run, or the branch, fails.
    Stuck,
    /// The run fails.
    Fail,
    /// The run fails, because this gate's goal is not met.
    Unmet { gate: String },
}

/// Looks up other dialects' names for the last command's output: the whole output, or its last line.
fn of_other_dialects(key: &str, context: &Context) -> Option<serde_json::Value> {
    let output = context.get_value("tool.output")?.as_str()?;
    match key {
        "tool_stdout" | "tool.stdout" => Some(output.trim().into()),
        "tool.last_line" => output.lines().map(str::trim).rfind(|line| !line.is_empty()).map(Into::into),
        _ => None,
    }
}

/// The fidelity settings that an edge has for the next task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EdgeFidelity {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) fidelity: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) thread_id: String,
}

/// The part of an outcome that routes read. It is the node's output, so that the route can be evaluated again.
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
    /// The branch that the node ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) branch: Option<String>,
    /// The target for which the branch was abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) leave: Option<String>,
    /// The target of the run, in a branch of the receiving fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) enter: Option<String>,
    /// The node where the run continues instead of along an edge, since a branch was abandoned for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) goes: Option<String>,
    /// Whether each receiving node begins a branch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) fork: bool,
    /// The node where the run restarts: the context of that decision no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) restart: Option<String>,
    /// The fidelity settings of the chosen edge for the next task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) carries: Option<EdgeFidelity>,
    /// The index of the chosen edge among the node's edges, and the reason for it, or the jump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) edge: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// Whether no edge of the node held: its failure then ends the branch here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) stuck: bool,
    /// Whether the branch was abandoned: it then ends here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) left: bool,
    /// The generation of the run, if this result may decide for sibling branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) life: Option<String>,
    /// The random number, so that a repeated evaluation chooses the same edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) draw: Option<u64>,
    /// Texts of other nodes in the context, which must not appear as texts of this attempt.
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
            life: None,
            draw: None,
            of_others: Vec::new(),
        }
    }

    /// Returns the output of a node that an operator marked as done.
    pub(super) fn success() -> Self {
        Self::of(&StageOutcome::success(), None, false)
    }

    /// Returns the reason why the run goes back deliberately.
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
    /// A failure follows an edge whose condition holds. Otherwise it jumps to the retry target, and without one follows an edge to a conditional
    /// node, which decides on it. It never follows another edge without a condition.
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
        // Edges by index, so that a choice among the remaining edges maps back to one among all.
        let kept: Vec<usize> = (0..self.edges.len()).filter(|&at| self.to_conditional[at]).collect();
        let edges: Vec<EdgeCandidate> = kept.iter().map(|&at| self.edges[at].clone()).collect();
        match choose(&edges, &outcome, &facts, sent.draw) {
            Some(EdgeChoice { edge, reason }) => self.edge(EdgeChoice { edge: kept[edge], reason }),
            None => NextStep::Fail,
        }
    }

    /// Describes the conditions of the edges if none of them holds after this outcome.
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

    /// Finds the first visited gate with an unmet goal.
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

    /// Returns the graph node on the way to a node: a route out of the branch passes the node where the branches meet, one into a branch from outside
    /// passes its fork.
    pub(super) fn waypoint_to<'a>(&'a self, to: &'a str) -> &'a str {
        match &self.home {
            Some(home) if self.out.contains(to) => home,
            _ => self.through.get(to).map_or(to, String::as_str),
        }
    }

    /// Returns every direct successor of this node in the graph, each once.
    pub(super) fn followers(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let all = self.targets();
        let ways = all.iter().map(|to| self.waypoint_to(to));
        let meets = self.meets.iter().filter(|_| self.each.iter().any(Option::is_some));
        let ways = ways.chain(self.entries.values().chain(meets).map(String::as_str));
        ways.filter(|to| seen.insert(*to)).map(str::to_owned).collect()
    }

    /// Returns every possible target of this node, each once.
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
