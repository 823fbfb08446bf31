//! The context as a branch sees it: the context at its parallel node, with the changes of the branch on top.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ferrata_core::RunKey;
use ferrata_core::state::Context;
use serde_json::{Map, Value as Json, json};
use tokio::sync::Semaphore;

use super::abandonment::LeaveRule;
use super::each;
use super::plan::RouteInput;
use crate::handler::{BEST, RESULTS};
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::Node;

/// Returns the name of a branch. The name consists of the enclosing branch, the parallel node, its visit, and the first node of the branch.
pub(super) fn name(around: Option<&str>, fork: &str, visit: &str, first: &str) -> String {
    format!("{}.{first}", join(around, fork, visit))
}

/// Returns the common prefix of the names of a parallel node's branches: the enclosing branch, the parallel node and its visit.
pub(super) fn join(around: Option<&str>, fork: &str, visit: &str) -> String {
    match around {
        Some(around) => format!("{around}/{fork}.{visit}"),
        None => format!("{fork}.{visit}"),
    }
}

/// Returns the branch that encloses a branch; `None` for an outermost branch.
pub(super) fn around(branch: &str) -> Option<&str> {
    branch.rsplit_once('/').map(|(around, _)| around)
}

/// Returns whether a branch belongs directly to this parallel node, and not to an outer or an inner one.
pub(super) fn is_of(branch: &str, fork: &str) -> bool {
    super::abandonment::joins(branch).last().is_some_and(|(_, innermost)| innermost == fork)
}

/// Returns the first node in the name of a branch.
pub(super) fn first_node(branch: &str) -> &str {
    branch.rsplit_once('.').map_or(branch, |(_, first)| first)
}

/// Returns the context key under which the changes of a branch are stored.
pub(super) fn channel(branch: &str) -> String {
    format!("internal.branch.{branch}")
}

/// Returns the context as a branch sees it. A key that the branch removed has the value `null`, which readers treat as absent.
pub(super) fn view(context: &Context, branch: Option<&str>) -> Context {
    let mut view = context.clone();
    let Some(branch) = branch else { return view };
    let ends = branch.match_indices('/').map(|(at, _)| at).chain([branch.len()]);
    for set in ends.filter_map(|end| context.get_value(&channel(&branch[..end]))?.as_object()) {
        for (key, value) in set {
            // A value from a context always fits into one.
            let _ = view.set(key.clone(), value);
        }
    }
    view
}

/// The results of the branches of one parallel node.
#[derive(Debug)]
pub(super) struct BranchResults {
    /// The results by branch, in the order of the parallel node's edges.
    ended: Vec<EndedBranch>,
}

#[derive(Debug)]
struct EndedBranch {
    branch: String,
    status: Status,
    reason: String,
    set: Map<String, Json>,
    /// The node for which the branch was abandoned.
    leave: Option<String>,
}

impl EndedBranch {
    fn id(&self) -> &str {
        first_node(&self.branch)
    }

    fn score(&self) -> f64 {
        let number = |value: &Json| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
        self.set.get("score").and_then(number).filter(|score| score.is_finite()).unwrap_or(0.0)
    }
}

impl BranchResults {
    /// Gathers the updates of the branches that arrived at a fan-in. `order` lists the first nodes of the branches.
    pub(super) fn gather(context: &Context, arrived: Vec<RouteInput>, order: &[String]) -> Self {
        let place = |branch: &str| {
            let (first, index) = each::parts(first_node(branch));
            (order.iter().position(|node| node == first), index)
        };
        let mut ended: Vec<EndedBranch> = Vec::new();
        for sent in arrived {
            let Some(branch) = sent.branch else { continue };
            let set =
                context.get_value(&channel(&branch)).and_then(Json::as_object).cloned().unwrap_or_default();
            // An abandoned branch does not explain the result of the join.
            let reason = if sent.left { String::new() } else { sent.failure_reason };
            ended.push(EndedBranch { branch, status: sent.outcome, reason, set, leave: sent.leave });
        }
        ended.sort_by_key(|ended| place(&ended.branch));
        Self { ended }
    }

    /// Returns whether no branch arrived, because the run reached the node by another route.
    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// Returns the first branch that was abandoned for another node, and that node. The order is that of the parallel node's edges.
    pub(super) fn abandoned_for(&self) -> Option<(&str, &str)> {
        self.ended.iter().find_map(|ended| Some((ended.id(), ended.leave.as_deref()?)))
    }

    /// Returns the common outcome of the branches. The common outcome is a failure if all branches failed, or if one failed and the `error_policy` is
    /// `fail_fast`. Otherwise the `join_policy` of the parallel node decides. `chosen` is the outcome of the fan-in itself. If it names a branch,
    /// that branch is the best.
    pub(super) fn outcome(&self, fork: &Node, chosen: StageOutcome) -> StageOutcome {
        let total = self.ended.len();
        let failed = self.ended.iter().filter(|ended| ended.status == Status::Fail).count();
        let succeeded = self.ended.iter().filter(|ended| ended.status.is_success()).count();
        let tolerant = fork.attributes.text("error_policy") == "ignore";
        let rule = LeaveRule::of(fork, self.ended.iter().map(|ended| ended.id().to_owned()).collect());
        let status = match rule.needed(total) {
            // A fork without branches, because its list is empty, has no work to do.
            _ if failed == total && total > 0 || rule.fail_fast && failed > 0 => Status::Fail,
            // If only some branches began, the policy cannot require more than these.
            Some(needed) if succeeded < needed.min(total) => Status::Fail,
            None if failed > 0 && !tolerant => Status::PartialSuccess,
            _ => Status::Success,
        };
        let named = chosen.context_updates.get(BEST).and_then(Json::as_str).map(str::to_owned);
        let notes = format!("{succeeded} of {total} branches succeeded");
        let mut outcome = StageOutcome { status, ..chosen };
        outcome.notes = if outcome.notes.is_empty() { notes } else { format!("{notes}; {}", outcome.notes) };
        if status == Status::Fail {
            let first = self.ended.iter().find(|ended| !ended.reason.is_empty());
            let reason = first.map_or("", |ended| &ended.reason);
            outcome.failure_reason = format!("{succeeded} of {total} branches succeeded: {reason}");
        }
        outcome = outcome.with(RESULTS, self.shown());
        let by_name = named.and_then(|name| self.ended.iter().find(|ended| ended.id() == name));
        match by_name.or_else(|| self.best()) {
            Some(best) => {
                outcome.with(BEST, best.id()).with("parallel.fan_in.best_outcome", best.status.as_str())
            }
            None => outcome,
        }
    }

    /// Returns the results of the branches in the form that the context shows.
    fn shown(&self) -> Vec<Json> {
        let shown = self.ended.iter().map(|ended| {
            let set: Map<String, Json> =
                ended.set.clone().into_iter().filter(|(key, _)| !key.starts_with("internal.")).collect();
            json!({"id": ended.id(), "outcome": ended.status.as_str(), "failure_reason": ended.reason,
                   "score": ended.score(), "context": set})
        });
        shown.collect()
    }

    /// Returns the context together with the results of the branches, for the handler of the fan-in.
    pub(super) fn shown_in(&self, context: &Context) -> Context {
        let mut context = context.clone();
        // A value from a context always fits into one.
        let _ = context.set(RESULTS, self.shown());
        context
    }

    /// Returns the context for a node with its own work, as if the branches were the previous node.
    pub(super) fn before(context: &Context, joint: &StageOutcome) -> Context {
        let mut context = context.clone();
        let texts = [("outcome", joint.word()), ("failure_reason", &joint.failure_reason)];
        let texts = texts.map(|(key, text)| (key, Json::from(text)));
        let set = joint.context_updates.iter().map(|(key, value)| (&**key, value.clone())).chain(texts);
        for (key, value) in set {
            // A value from a context always fits into one.
            let _ = context.set(key.to_owned(), value);
        }
        context
    }

    /// Returns the best branch: the one with the best status, then the highest score, then the first id.
    fn best(&self) -> Option<&EndedBranch> {
        let rank = |ended: &&EndedBranch| match ended.status {
            Status::Success => 0,
            Status::PartialSuccess => 1,
            Status::Retry => 2,
            Status::Skipped => 3,
            Status::Fail => 4,
        };
        self.ended.iter().min_by(|one, other| {
            let scores = || other.score().total_cmp(&one.score());
            rank(one).cmp(&rank(other)).then_with(scores).then_with(|| one.id().cmp(other.id()))
        })
    }

    /// Returns whether a branch has set a key.
    pub(super) fn has_set(&self, key: &str) -> bool {
        self.ended.iter().any(|ended| ended.set.contains_key(key))
    }

    /// Returns the names of the branches.
    pub(super) fn branches(&self) -> impl Iterator<Item = &str> {
        self.ended.iter().map(|ended| &*ended.branch)
    }

    /// Returns the values that branches set under keys with a prefix, for example those of goal gates. If several branches set a key, the first value
    /// that is not a success counts. If all are successes, the first value counts.
    pub(super) fn gates(&self, prefix: &str) -> HashMap<String, Json> {
        let mut gates: HashMap<String, Json> = HashMap::new();
        let good = |value: &Json| matches!(value.as_str(), Some("success" | "partial_success"));
        for (key, value) in
            self.ended.iter().flat_map(|ended| &ended.set).filter(|(key, _)| key.starts_with(prefix))
        {
            let known = gates.entry(key.clone()).or_insert_with(|| value.clone());
            if good(known) && !good(value) {
                known.clone_from(value);
            }
        }
        gates
    }
}

/// The limits on the number of nodes that run concurrently in this process, for the branches of each parallel node.
#[derive(Debug, Default)]
pub(super) struct BranchLimits {
    open: Mutex<HashMap<(RunKey, String), Weak<Semaphore>>>,
}

impl BranchLimits {
    /// Returns the limit that a branch shares with the other branches of its parallel node.
    pub(super) fn of(&self, run: &RunKey, branch: &str, most: usize) -> Arc<Semaphore> {
        let fork = branch.rsplit_once('.').map_or(branch, |(fork, _)| fork).to_owned();
        // No code panics while it holds this lock.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (run.clone(), fork);
        if let Some(known) = open.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        open.retain(|_, limit| limit.strong_count() > 0);
        let limit = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        open.insert(key, Arc::downgrade(&limit));
        limit
    }
}
