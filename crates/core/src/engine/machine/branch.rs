//! A run that branches off another one: the same place, with a life of its own.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::Machine;
use super::memo::forget_open;
use crate::engine::frontier::{Activation, Apart};
use crate::graph::plan::Plan;
use crate::id::NodeName;
use crate::record::body::Item;

impl Machine {
    /// Makes this the machine of a new run at the same place.
    ///
    /// Questions are asked again and attempts counted anew. An attempt in doubt is none of the new run's, which has not begun it.
    /// Answers come along, also that to a doubt. Without a plan, the nodes stay as they were last noted: the claimer of the new run
    /// holds them against its graph.
    pub(crate) fn branch_off(&mut self, life: Uuid, plan: Option<&Plan>) {
        self.life = life;
        self.standing.begin_anew();
        self.progress.forget_claims();
        self.answered.clear();
        self.pins.clear();
        // The source delivers what was sent until then.
        self.letters = None;
        if let Some(plan) = plan {
            self.nodes.note_graph(&plan.prints);
        }
        let Apart { in_flight, stopped_at, tokens } = self.frontier.take_apart(self.nodes.idle());
        let going =
            in_flight.into_iter().map(|(key, activation)| (key, activation.resolution.clone(), activation));
        // The answer about an activation that failed over it: the new run has not begun it.
        let stopped = stopped_at.into_iter().map(|(key, activation)| (key, None, activation));
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
            self.frontier.start(key, fresh, self.nodes.index(key.0));
        }
        for (to, tokens) in tokens {
            tokens.into_iter().for_each(|token| self.put(to, token));
        }
    }

    /// Configures a new run otherwise than the one it branches off from.
    pub(crate) fn configure(&mut self, config: Item) {
        self.config = Some(config);
    }

    /// Forgets where the run is and begins with these nodes.
    pub(crate) fn begin_at(&mut self, nodes: BTreeSet<&str>) {
        self.clear_frontier();
        for node in self.nodes.states_mut() {
            // Rounds of joins ended where the source was left, and what would never run there may run here.
            (node.spent, node.skipped) = (false, false);
        }
        for name in nodes.into_iter().filter_map(|name| NodeName::new(name).ok()) {
            let node = self.nodes.local(&name);
            self.activate(node, None, Vec::new());
        }
    }

    /// Names the nodes of the frontier that the plan does not have.
    pub(crate) fn strangers(&self) -> Vec<NodeName> {
        let mut nodes: BTreeSet<_> = self.in_flight().keys().map(|key| key.0).collect();
        nodes.extend(self.tokens().keys());
        nodes
            .into_iter()
            .filter(|&node| self.index(node).is_none())
            .map(|node| self.name(node).clone())
            .collect()
    }
}
