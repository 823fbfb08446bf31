//! When a step of a run is decided at once, because the run is at one place and nothing but the one token matters.
//!
//! Paid for by `core/disabled` and `core/every-node`. The random lives of the machine hold each decision to the general way.

use super::machine::Machine;
use crate::graph::Join;
use crate::graph::node_set::NodeIx;
use crate::graph::plan::Plan;
use crate::record::RunStatus;

impl Machine {
    /// Tells whether the run is at one place, and the token for the next does nothing but start it.
    pub(super) fn goes_straight(&self, plan: &Plan, from: NodeIx, to: NodeIx) -> bool {
        let next = plan.node(to);
        self.status() == RunStatus::InProgress
            && self.in_flight().len() == 1
            && self.tokens().is_empty()
            && next.join == Join::All
            && !(plan.counts && self.nodes().iter().any(|node| node.spent))
            && !plan.node(from).interrupt.after
            && next.max_visits.is_none()
            && plan.max_steps.is_none_or(|most| self.started() < most.get())
    }
}
