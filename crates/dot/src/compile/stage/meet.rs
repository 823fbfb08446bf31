//! Where branches meet: what the node there sees of them, and what it comes to.

use std::sync::Arc;

use ferrata_core::state::Context;

use super::{Role, StageNode};
use crate::compile::branch::{self, Results};
use crate::compile::plan::RouteInput;
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::Node;

/// The branches that met at a node.
pub(super) struct JoinedBranches {
    pub(super) results: Results,
    fork: Arc<Node>,
    /// What they came to together, where the node has work of its own.
    joint: Option<StageOutcome>,
}

impl StageNode {
    /// Gathers the branches that met here; none at a node with work of its own that the run came to on another way.
    pub(super) fn met(&self, state: &Context, arrived: Vec<RouteInput>) -> Option<JoinedBranches> {
        let Role::FanIn { fork, order, implicit } = &self.role else { return None };
        let ours =
            |sent: &RouteInput| sent.branch.as_ref().is_some_and(|branch| branch::is_of(branch, fork.id()));
        let results = Results::gather(state, arrived.into_iter().filter(ours).collect(), order);
        if *implicit && results.is_empty() {
            return None;
        }
        let joint = implicit.then(|| results.outcome(fork, StageOutcome::success()));
        Some(JoinedBranches { results, fork: Arc::clone(fork), joint })
    }
}

impl JoinedBranches {
    /// Returns the context as the node sees it.
    pub(super) fn shown_in(&self, context: &Context) -> Context {
        match &self.joint {
            Some(joint) => Results::before(context, joint),
            None => self.results.shown_in(context),
        }
    }

    /// Returns where the run goes on if a branch was left for that.
    pub(super) fn left_for(&self) -> Option<String> {
        self.results.left_for().map(|(_, to)| to.to_owned())
    }

    /// Returns what the node comes to without its work: because the branches failed, or because the run goes on elsewhere. A node that only
    /// decides does that on a failure, too.
    pub(super) fn instead(&self, decides: bool) -> Option<StageOutcome> {
        if let Some((branch, to)) = self.results.left_for() {
            let notes = format!("the branch of `{branch}` leads out to `{to}`");
            let status = if self.joint.is_some() { Status::Skipped } else { Status::Success };
            return Some(StageOutcome::new(status).with_notes(notes));
        }
        self.joint.clone().filter(|joint| joint.status == Status::Fail && !decides)
    }

    /// Adds to an outcome what the branches came to.
    pub(super) fn taken_in(&self, mut outcome: StageOutcome) -> StageOutcome {
        match &self.joint {
            None if outcome.status == Status::Success => self.results.outcome(&self.fork, outcome),
            None => outcome,
            Some(joint) => {
                for (key, value) in &joint.context_updates {
                    outcome.context_updates.entry(key.clone()).or_insert_with(|| value.clone());
                }
                outcome
            }
        }
    }
}
