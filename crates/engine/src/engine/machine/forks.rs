//! Turns a machine into the machine of a fork, which continues from the same position with a new start id.

use crate::claim::StartId;
use std::collections::BTreeSet;

use super::Machine;
use super::memo::reset_for_fork;
use crate::engine::frontier::{Activation, ActivationKey, FrontierParts, Local};
use crate::engine::replan::{REASON_BYTES, Replan};
use crate::error::{Error, ErrorKind, Result};
use crate::failure::clip;
use crate::graph::plan::GraphPlan;
use crate::graph::suggest::no_node;
use crate::id::NodeName;
use crate::record::RunStatus;
use crate::record::body::FanOutItem;
use crate::record::memo::Memo;

impl Machine {
    /// Turns this machine into the machine of a new run at the same position.
    ///
    /// Questions are asked again, and attempts count from zero. If the source has attempts with unknown outcome, the fork asks no question about
    /// them, because the fork did not start them. Answers are copied, including answers about unknown outcomes. Without a plan, the nodes keep the
    /// fingerprints that were recorded last, and the process that claims the new run compares them with its graph.
    pub fn branch_off(&mut self, start_id: StartId, plan: Option<&GraphPlan>) {
        self.start_id = start_id;
        self.standing.reset_signals();
        self.progress.reset_claims();
        self.answered.clear();
        self.pins.clear();
        // The source delivers the messages sent so far.
        self.letters = None;
        if let Some(plan) = plan {
            self.nodes.record_graph(&plan.prints);
            self.secrets.add(&plan.secrets);
        }
        let FrontierParts { in_flight, stopped_at, tokens } = self.frontier.take_apart(self.nodes.idle());
        let going =
            in_flight.into_iter().map(|(key, activation)| (key, activation.resolution.clone(), activation));
        // The answer about an activation that failed: the new run has not started it.
        let stopped = stopped_at.into_iter().map(|(key, activation)| (key, None, activation));
        for (key, resolution, activation) in going.chain(stopped) {
            let mut memos = activation.memos;
            reset_for_fork(&mut memos);
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

    /// Replaces the configuration of a fork.
    pub fn configure(&mut self, config: FanOutItem) {
        self.config = Some(config);
    }

    /// Drops the unfinished activations and starts at these nodes instead.
    pub fn begin_at(&mut self, nodes: BTreeSet<&str>) {
        let stopped = self.stopped_at().iter().map(|(key, activation)| (key, activation));
        let dropped = self.in_flight().iter().chain(stopped);
        // A conversation left without a message has received none.
        let left: Vec<Local> = dropped
            .filter(|(_, activation)| !activation.memos.values().any(|memo| matches!(memo, Memo::Message(_))))
            .map(|(key, _)| key.0)
            .collect();
        left.into_iter().for_each(|node| self.nodes.state_mut(node).left += 1);
        self.clear_frontier();
        for node in self.nodes.states_mut() {
            // The rounds of joins end at the fork, and nodes that the source would never run may run in the fork.
            (node.spent, node.skipped) = (false, false);
        }
        for name in nodes.into_iter().filter_map(|name| NodeName::new(name).ok()) {
            let node = self.nodes.local(&name);
            self.activate(node, None, Vec::new());
        }
    }

    /// Moves the run to these nodes, as an operator requested. The move is stored like a replan, but does not count towards the limits on replans.
    pub(super) fn go_to(&mut self, nodes: &[NodeName], reason: &str) -> Result<()> {
        for node in nodes {
            self.nodes.known(node)?;
        }
        let from = self.moved_from();
        self.begin_at(nodes.iter().map(NodeName::as_str).collect());
        match self.status() {
            RunStatus::Failed => self.standing.retry(),
            _ => self.standing.wake_up(),
        }
        for node in nodes {
            let (to, reason) = (self.nodes.known(node)?, clip(reason.to_owned(), REASON_BYTES));
            if let Some((from, visit)) = from {
                self.progress.add_replan(Replan { from, visit, to, reason });
            }
        }
        Ok(())
    }

    /// Returns the activation from which a move leads away. This is the activation that stopped the run, or else the first unfinished one, or else
    /// the last ended one.
    fn moved_from(&self) -> Option<ActivationKey> {
        let first = self.stopped_at().first().map(|(key, _)| key).or_else(|| self.in_flight().keys().next());
        first.copied().or_else(|| self.history().last().map(|ended| (ended.node, ended.visit)))
    }

    /// Returns an error if the unfinished activations do not allow a move.
    pub(crate) fn check_go_to(&self, nodes: &[NodeName], reason: &str) -> Result<()> {
        let refuse = |kind, message: String| Err(Error::new(kind, message));
        let status = self.status();
        if matches!(status, RunStatus::Completed | RunStatus::Cancelled) {
            return refuse(
                ErrorKind::WrongStatus,
                format!("the run is {status}; its state is final, fork it instead"),
            );
        }
        if nodes.is_empty() || reason.is_empty() {
            return refuse(ErrorKind::Invalid, "name a node to go to, and a reason".into());
        }
        if let Some(stranger) = nodes.iter().find(|node| self.find(node.as_str()).is_none()) {
            let message = no_node(stranger.as_str(), self.names().map(NodeName::as_str));
            return refuse(ErrorKind::NotFound, message);
        }
        let going = self.in_flight().iter().find(|(_, activation)| activation.intent || activation.in_doubt);
        if let Some((key, _)) = going {
            let (node, visit) = (self.name(key.0), key.1);
            let message = format!(
                "`{node}@{visit}` may have done work that must not be repeated; answer the question about its outcome first"
            );
            return refuse(ErrorKind::WrongStatus, message);
        }
        Ok(())
    }

    /// Returns the names of unfinished nodes that the plan does not contain.
    pub fn unknown_nodes(&self) -> Vec<NodeName> {
        let mut nodes: BTreeSet<_> = self.in_flight().keys().map(|key| key.0).collect();
        nodes.extend(self.tokens().keys());
        nodes
            .into_iter()
            .filter(|&node| self.index(node).is_none())
            .map(|node| self.name(node).clone())
            .collect()
    }
}
