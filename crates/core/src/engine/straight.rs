//! When a step of a run is decided at once, because the run is at one place and nothing but the one token matters.
//!
//! Paid for by `core/disabled` and `core/every-node`. The random lives of the machine hold each decision to the general way.

use super::machine::Machine;
use crate::graph::Join;
use crate::graph::node_set::NodeIx;
use crate::graph::plan::Plan;
use crate::record::RunStatus;
use crate::record::body::NodeDone;

impl Machine {
    /// Tells whether the run is at one place, and the token for the next does nothing but start it.
    pub(super) fn goes_straight(&self, plan: &Plan, from: NodeIx, to: NodeIx) -> bool {
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

    /// As [`goes_straight`](Self::goes_straight), for the one edge that fired of several: the usual step of a loop.
    pub(super) fn fired_straight(&self, plan: &Plan, from: NodeIx, done: &NodeDone) -> bool {
        let [fired] = &*done.fired else { return false };
        let to = plan.find_after(from, &fired.to, 0).filter(|_| fired.is_plain() && done.skipped.is_empty());
        to.is_some_and(|to| self.goes_straight(plan, from, to))
    }
}
