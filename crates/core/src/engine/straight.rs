//! When a step of a run is decided at once, because the run is at one place and nothing but the one token matters.

use super::machine::Machine;
use crate::graph::Join;
use crate::graph::node_set::NodeIx;
use crate::graph::plan::Plan;
use crate::record::RunStatus;
use crate::record::body::NodeDone;

impl Machine {
    fn is_at_one_place(&self) -> bool {
        self.status() == RunStatus::InProgress && self.in_flight().len() == 1 && self.tokens().is_empty()
    }

    /// Tells whether the run is at one place, and the token for the next does nothing but start it.
    pub(super) fn goes_straight(&self, plan: &Plan, from: NodeIx, to: NodeIx) -> bool {
        let next = plan.node(to);
        self.is_at_one_place()
            && next.join == Join::All
            && !(plan.counts && self.nodes().iter().any(|node| node.spent))
            && !plan.node(from).interrupt.after
            && next.max_visits.is_none()
            && plan.max_steps.is_none_or(|most| self.started() < most.get())
    }

    /// Tells whether nothing but the one fired edge matters: the usual step of a run without branches, decided at once.
    pub(super) fn follows_plainly(&self, plan: &Plan, node: NodeIx, done: &NodeDone) -> bool {
        let [fired] = &*done.fired else { return false };
        let target = plan.find_after(node, &fired.to);
        self.is_at_one_place()
            && fired.items.is_none()
            && !(plan.counts && self.nodes().iter().any(|node| node.spent))
            && done.skipped.is_empty()
            && target.is_some_and(|to| plan.node(to).join == Join::All)
    }
}
