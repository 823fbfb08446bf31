//! A fast path that decides what follows the end of an activation if the run is at one node and only one edge fires.
//!
//! It exists for the benchmark rows `core/disabled` and `core/every-node`. Tests with random runs compare each decision with the general code.

use super::machine::Machine;
use crate::graph::Join;
use crate::graph::node_set::NodeIx;
use crate::graph::plan::GraphPlan;
use crate::record::RunStatus;
use crate::record::body::NodeDone;

impl Machine {
    /// Returns whether the run is at one node and the token for the next node only starts it.
    pub(super) fn is_single_step(&self, plan: &GraphPlan, from: NodeIx, to: NodeIx) -> bool {
        let next = plan.node(to);
        self.status() == RunStatus::InProgress
            && self.in_flight().len() == 1
            && self.tokens().is_empty()
            && next.join == Join::All
            && self.spent().next().is_none()
            && !plan.node(from).interrupt.after
            && next.max_visits.is_none()
            && plan.max_steps.is_none_or(|most| self.started() < most.get())
    }

    /// Returns the same as [`is_single_step`](Self::is_single_step) for a node that has several edges and fired only one. This is the usual step of a
    /// loop.
    pub(super) fn fired_straight(&self, plan: &GraphPlan, from: NodeIx, done: &NodeDone) -> bool {
        let [fired] = &*done.fired else { return false };
        let to = plan.find_after(from, &fired.to, 0).filter(|_| fired.is_plain() && done.skipped.is_empty());
        to.is_some_and(|to| self.is_single_step(plan, from, to))
    }
}
