//! Where a node leads after each outcome: a pure function of the node's edges, its outcome and the context after it.

use std::collections::{HashMap, HashSet};

use ferrata_core::state::Context;
use serde::{Deserialize, Serialize};

use crate::condition::Facts;
use crate::outcome::{StageOutcome, Status};
use crate::select::{Candidate, Choice, Reason, choose};
use crate::suggest::shown;

/// How many of the edges that did not hold are named.
const TOLD: usize = 8;

/// What the keys of goal gates begin with.
pub(super) const GATES: &str = "internal.gate.";

/// The key under which the context holds the last outcome of a goal gate that was visited.
pub(super) fn gate_key(node: &str) -> String {
    format!("{GATES}{node}")
}

/// Where one node can lead.
#[derive(Debug)]
pub(super) struct NodeTargets {
    pub(super) edges: Vec<Candidate>,
    /// For each edge, whether it starts the run afresh.
    pub(super) restarts: Vec<bool>,
    /// For each edge, whether the run goes back on purpose, to plan anew.
    pub(super) replans: Vec<bool>,
    /// For each edge, what it says of the fidelity of the task that it leads to.
    pub(super) carries: Vec<Option<EdgeFidelity>>,
    /// For each edge, whether it leads to a conditional node.
    pub(super) to_conditional: Vec<bool>,
    /// Whether the node only decides where to go: then the outcome is that of the node before it, and a failure may follow
    /// any edge.
    pub(super) decides: bool,
    /// Whether all of its edges are taken at once.
    pub(super) forks: bool,
    /// For each edge, the key of the list with an item for each of its branches.
    pub(super) each: Vec<Option<String>>,
    /// Where the branches of a fork meet: if there is no item, the run goes there.
    pub(super) meets: Option<String>,
    /// Whether chance decides among edges that are equally good but for their weight.
    pub(super) random: bool,
    /// How often the same failure may be met by a fresh start.
    pub(super) signature_limit: Option<u64>,
    /// Where the branch meets the others that the node is in one with: it goes there instead of ending.
    pub(super) home: Option<String>,
    /// What leads out of that branch: such a way is taken where the branches meet.
    pub(super) out: HashSet<String>,
    /// What leads into a branch that the node is not in, each with the fork that the way leads through.
    pub(super) through: HashMap<String, String>,
    /// Of a fork, what it begins for a run that is on its way to a node in one of its branches.
    pub(super) entries: HashMap<String, String>,
    /// Where a failure jumps, the first that exists.
    pub(super) retry_target: Option<(String, Jump)>,
    /// Every node that is named to be jumped to, also where another one comes first: they are part of the graph.
    pub(super) named: Vec<String>,
    /// What the exit looks at, and every node outside of branches that nothing follows.
    pub(super) gates: Vec<Gate>,
}

/// A node whose goal has to be met before the run may end.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) node: String,
    pub(super) target: Option<(String, Jump)>,
}

/// Which attribute names the node that is jumped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Jump {
    Own,
    Fallback,
    OfGraph,
    FallbackOfGraph,
    Join,
    /// One of the branches that met here was left for it.
    Left,
}

impl Jump {
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

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// An edge.
    Edge {
        to: String,
        /// Its place among the node's edges; of a run that starts afresh it is gone by then.
        place: Option<usize>,
        reason: Reason,
        restart: bool,
        replan: bool,
        carries: Option<EdgeFidelity>,
    },
    /// A node that no edge leads to.
    Jump { to: String, why: Jump },
    /// All edges: each begins a branch.
    Fork,
    /// None of the edges has an item: the run goes to where the branches would have met.
    Skip { to: String },
    /// The one branch that leads to a node which the run was on its way to.
    Begin { first: String },
    /// Nothing: no edge begins here, and the run ends, with success.
    End,
    /// None of the edges holds: the run, or the branch, fails.
    Stuck,
    /// The run fails.
    Fail,
    /// The run fails, because the goal of this gate is not met.
    Unmet { gate: String },
}

/// Looks up what other dialects call what the last command printed: all of it, or its last line.
fn of_other_dialects(key: &str, context: &Context) -> Option<serde_json::Value> {
    let output = context.get_value("tool.output")?.as_str()?;
    match key {
        "tool_stdout" | "tool.stdout" => Some(output.trim().into()),
        "tool.last_line" => output.lines().map(str::trim).rfind(|line| !line.is_empty()).map(Into::into),
        _ => None,
    }
}

/// What an edge says of the fidelity of the task that it leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EdgeFidelity {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) fidelity: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) thread_id: String,
}

/// What of an outcome routes look at; it travels as the node's output, so that a route can be asked again.
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
    /// Where the branch was left for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) leave: Option<String>,
    /// The node that the run is on its way to, in a branch of the fork that this arrives at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) enter: Option<String>,
    /// Where the run goes on instead of along an edge, since a branch was left for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) goes: Option<String>,
    /// Whether each node that this arrives at begins a branch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) fork: bool,
    /// Where the run starts afresh: the context that chose this is gone by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) restart: Option<String>,
    /// What the edge that was chosen says of the fidelity of the next task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) carries: Option<EdgeFidelity>,
    /// The place among the node's edges of the one that was chosen, and why it was, or the jump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) edge: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// Whether none of the node's edges held: then its failure ends the branch here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) stuck: bool,
    /// Whether the branch was left: then it ends here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) left: bool,
    /// The life of the run, if the branches beside this one may be left for what it came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) life: Option<String>,
    /// What chance has drawn, so that an edge that was chosen by it can be chosen again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) draw: Option<u64>,
    /// Texts in the context that would be shown as those of the attempt, and that another one left there.
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

    /// What a node sends that an operator has said to be done.
    pub(super) fn success() -> Self {
        Self::of(&StageOutcome::success(), None, false)
    }

    /// Says why the run goes back on purpose.
    pub(super) fn why(&self, node: &str) -> String {
        let outcome = if self.own_outcome.is_empty() { self.outcome.as_str() } else { &self.own_outcome };
        match &*self.failure_reason {
            "" => format!("`{node}` came to `{outcome}`"),
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
    /// Says what follows an outcome.
    ///
    /// A failure follows an edge whose condition holds, else it jumps to the retry target, else it follows an edge to a
    /// conditional node, which is there to decide on it; it never follows another edge without a condition.
    pub(super) fn next(&self, sent: &RouteInput, context: &Context) -> Next {
        match (self.after(sent, context), &self.home) {
            (Next::End | Next::Fail, Some(home)) => Next::Jump { to: home.clone(), why: Jump::Join },
            (next, _) => next,
        }
    }

    fn after(&self, sent: &RouteInput, context: &Context) -> Next {
        if let Some(to) = &sent.restart {
            let carries = sent.carries.clone();
            return Next::Edge {
                to: to.clone(),
                place: sent.edge,
                reason: Reason::Condition,
                restart: true,
                replan: false,
                carries,
            };
        }
        if sent.left {
            return Next::End;
        }
        if let Some(to) = &sent.goes {
            return Next::Jump { to: to.clone(), why: Jump::Left };
        }
        if sent.stuck {
            return Next::Fail;
        }
        if self.forks && sent.outcome != Status::Fail {
            let first = sent.enter.as_ref().and_then(|to| self.entries.get(to));
            return match (first, &self.meets) {
                (Some(first), _) => Next::Begin { first: first.clone() },
                (None, Some(meets)) if self.items(context).is_ok_and(|(_, branches)| branches == 0) => {
                    Next::Skip { to: meets.clone() }
                }
                _ => Next::Fork,
            };
        }
        if let Some(next) = self.unmet(context).filter(|_| sent.outcome != Status::Fail) {
            return next;
        }
        let lookup = |key: &str| context.get_value(key).cloned().or_else(|| of_other_dialects(key, context));
        let outcome = sent.as_outcome();
        let facts = Facts::new(outcome.word(), &sent.preferred_label, &lookup);
        let choice = choose(&self.edges, &outcome, &facts, sent.draw);
        if sent.outcome != Status::Fail {
            return match choice {
                Some(choice) => self.edge(choice),
                None if self.edges.is_empty() => Next::End,
                None => Next::Stuck,
            };
        }
        if self.decides {
            return choice.map_or(Next::Fail, |choice| self.edge(choice));
        }
        if let Some(choice) = choice.filter(|choice| choice.reason == Reason::Condition) {
            return self.edge(choice);
        }
        if let Some((to, why)) = &self.retry_target {
            return Next::Jump { to: to.clone(), why: *why };
        }
        // Edges by their place, so that the choice among those that are left can be given back as one among all.
        let kept: Vec<usize> = (0..self.edges.len()).filter(|&at| self.to_conditional[at]).collect();
        let edges: Vec<Candidate> = kept.iter().map(|&at| self.edges[at].clone()).collect();
        match choose(&edges, &outcome, &facts, sent.draw) {
            Some(Choice { edge, reason }) => self.edge(Choice { edge: kept[edge], reason }),
            None => Next::Fail,
        }
    }

    /// Says what the edges asked for, none of which holds after this outcome.
    pub(super) fn tried(&self, node: &str, outcome: &StageOutcome) -> String {
        let label = match &*outcome.preferred_label {
            "" => String::new(),
            label => format!(" with the label `{}`", shown(label)),
        };
        let asked = |edge: &Candidate| format!("to `{}` if `{}`", edge.to, shown(edge.condition.text()));
        let mut asked: Vec<String> = self.edges.iter().take(TOLD).map(asked).collect();
        if self.edges.len() > TOLD {
            asked.push(format!("and {} more", self.edges.len() - TOLD));
        }
        format!(
            "`{node}` came to `{}`{label}, and none of its edges holds: {}; give it an edge without a condition",
            outcome.word(),
            asked.join(", ")
        )
    }

    fn edge(&self, choice: Choice) -> Next {
        let to = self.edges[choice.edge].to.clone();
        let carries = self.carries[choice.edge].clone();
        let (restart, replan) = (self.restarts[choice.edge], self.replans[choice.edge]);
        Next::Edge { to, place: Some(choice.edge), reason: choice.reason, restart, replan, carries }
    }

    /// Finds the first gate that was visited and whose goal is not met.
    fn unmet(&self, context: &Context) -> Option<Next> {
        let unmet = |gate: &&Gate| {
            let last = context.get_value(&gate_key(&gate.node)).and_then(|value| value.as_str());
            last.is_some_and(|status| status != "success" && status != "partial_success")
        };
        let gate = self.gates.iter().find(unmet)?;
        Some(match &gate.target {
            Some((to, why)) => Next::Jump { to: to.clone(), why: *why },
            None => Next::Unmet { gate: gate.node.clone() },
        })
    }

    /// Returns the node of the graph that a way to a node leads through: a way out of the branch leads to where it meets the others, one
    /// into a branch from outside to its fork.
    pub(super) fn by_way_of<'a>(&'a self, to: &'a str) -> &'a str {
        match &self.home {
            Some(home) if self.out.contains(to) => home,
            _ => self.through.get(to).map_or(to, String::as_str),
        }
    }

    /// Returns every node that this one is followed by in the graph, each once.
    pub(super) fn followers(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let all = self.targets();
        let ways = all.iter().map(|to| self.by_way_of(to));
        let meets = self.meets.iter().filter(|_| self.each.iter().any(Option::is_some));
        let ways = ways.chain(self.entries.values().chain(meets).map(String::as_str));
        ways.filter(|to| seen.insert(*to)).map(str::to_owned).collect()
    }

    /// Returns every node that this one may lead to, each once.
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
