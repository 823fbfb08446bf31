//! Nodes where branches meet: the context and the outcome of such a node.

use std::sync::Arc;

use ferrata_core::state::Context;

use super::{NodeRole, StageNode};
use crate::compile::branch::{self, BranchResults};
use crate::compile::plan::RouteInput;
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::Node;

/// The branches that met at a node.
pub(super) struct JoinedBranches {
    pub(super) results: BranchResults,
    fork: Arc<Node>,
    /// The common outcome of the branches. `None` at a node that only joins branches and has no other work.
    joint: Option<StageOutcome>,
}

impl StageNode {
    /// Gathers the branches that met at this node. Returns `None` if the node has its own work and the run reached the node by another route.
    pub(super) fn gather_branches(
        &self,
        state: &Context,
        arrived: Vec<RouteInput>,
    ) -> Option<JoinedBranches> {
        let NodeRole::FanIn { fork, order, implicit } = &self.role else { return None };
        let ours =
            |sent: &RouteInput| sent.branch.as_ref().is_some_and(|branch| branch::is_of(branch, fork.id()));
        let results = BranchResults::gather(state, arrived.into_iter().filter(ours).collect(), order);
        if *implicit && results.is_empty() {
            return None;
        }
        let joint = implicit.then(|| results.outcome(fork, StageOutcome::success()));
        Some(JoinedBranches { results, fork: Arc::clone(fork), joint })
    }
}

impl JoinedBranches {
    /// Returns the context for the work of the node.
    pub(super) fn shown_in(&self, context: &Context) -> Context {
        match &self.joint {
            Some(joint) => BranchResults::before(context, joint),
            None => self.results.shown_in(context),
        }
    }

    /// Returns the node for which a branch was abandoned. The run continues there.
    pub(super) fn abandoned_for(&self) -> Option<String> {
        self.results.abandoned_for().map(|(_, to)| to.to_owned())
    }

    /// Returns the outcome of the node if its work is skipped, because the branches failed or the run continues at another node. A node that only
    /// routes works even after a failure.
    pub(super) fn outcome_without_work(&self, decides: bool) -> Option<StageOutcome> {
        if let Some((branch, to)) = self.results.abandoned_for() {
            let notes = format!("the branch of `{branch}` leads out to `{to}`");
            let status = if self.joint.is_some() { Status::Skipped } else { Status::Success };
            return Some(StageOutcome::new(status).with_notes(notes));
        }
        self.joint.clone().filter(|joint| joint.status == Status::Fail && !decides)
    }

    /// Adds the results of the branches to an outcome.
    pub(super) fn add_results(&self, mut outcome: StageOutcome) -> StageOutcome {
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
