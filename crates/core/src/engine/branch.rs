//! A run that branches off another one: the same place, with a life of its own.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::frontier::Activation;
use super::machine::Machine;
use super::memo::forget_open;
use crate::graph::plan::Plan;
use crate::id::NodeName;
use crate::record::RunStatus;

impl Machine {
    /// Makes this the machine of a new run at the same place. Questions are asked again, attempts counted anew, and what is in
    /// doubt is none of the new run's: it has not begun to do it. Answers come along, also that to a doubt. Without a plan, the nodes stay as they were last noted, for
    /// whoever takes the new run up to hold against its graph.
    pub(crate) fn branch_off(&mut self, life: Uuid, plan: Option<&Plan>) {
        self.life = life;
        self.status = RunStatus::InProgress;
        (self.failure, self.cancel, self.paused, self.wake) = (None, None, None, None);
        (self.receiving, self.fruitless) = (false, 0);
        self.answered.clear();
        self.pins.clear();
        self.begun.clear();
        if let Some(plan) = plan {
            self.note_graph(&plan.prints);
        }
        let going = std::mem::take(&mut self.in_flight);
        let stopped = std::mem::take(&mut self.stopped_at);
        self.live = self.plan.as_ref().map(|plan| plan.topology.liveness());
        let going =
            going.into_iter().map(|(key, activation)| (key, activation.resolution.clone(), activation));
        // What was said became of an activation that failed over it: the new run has not begun it.
        let stopped = stopped.into_iter().map(|(key, activation)| (key, None, activation));
        for (key, resolution, activation) in going.chain(stopped) {
            let mut memos = activation.memos;
            forget_open(&mut memos);
            let fresh = Activation {
                failed: 0,
                retry_at: None,
                intent: false,
                in_doubt: false,
                why: None,
                resolution,
                memos,
                ..activation
            };
            self.insert(key, fresh);
        }
        for (to, tokens) in std::mem::take(&mut self.tokens) {
            tokens.into_iter().for_each(|token| self.wait(to, token));
        }
    }

    /// Forgets where the run is and begins with these nodes.
    pub(crate) fn begin_at(&mut self, nodes: BTreeSet<&str>) {
        self.clear_frontier();
        for node in &mut self.nodes {
            // Rounds of joins ended where the source was left, and what would never run there may run here.
            (node.spent, node.skipped) = (false, false);
        }
        for name in nodes.into_iter().filter_map(|name| NodeName::new(name).ok()) {
            let node = self.local(&name);
            self.activate(node, None, Vec::new());
        }
        self.fresh.clear();
    }

    /// Names the nodes of the frontier that the plan does not have.
    pub(crate) fn strangers(&self) -> Vec<NodeName> {
        let mut nodes: BTreeSet<_> = self.in_flight.keys().map(|key| key.0).collect();
        nodes.extend(self.tokens.keys());
        nodes
            .into_iter()
            .filter(|&node| self.index(node).is_none())
            .map(|node| self.name(node).clone())
            .collect()
    }
}
