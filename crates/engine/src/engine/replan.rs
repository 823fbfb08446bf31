//! Replans, which are deliberate returns of a run to a node. This module stores their number, source and reason, and checks their limits.

use super::frontier::Local;
use super::machine::Machine;
use crate::failure::{Failure, FailureKind, clip};
use crate::graph::plan::GraphPlan;
use crate::id::{NodeName, Visit};
use crate::record::body::NodeDone;

/// The maximum length of a stored reason in bytes. Store a longer explanation in the state.
pub const REASON_BYTES: usize = 500;

/// The maximum number of replans that are stored with their reasons. The latest ones are stored. The counts include all replans. Every record with
/// the full state contains the reasons, which explain why a run gave up.
pub const KEPT: usize = 100;

/// A replan, which is a deliberate return of the run to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replan {
    /// The activation whose route chose the replan.
    pub from: Local,
    pub visit: Visit,
    pub to: Local,
    pub reason: String,
}

impl Machine {
    /// Returns the number of replans to each node, without nodes that have none.
    pub fn replan_counts(&self) -> Vec<(NodeName, u32)> {
        if self.replans().is_empty() {
            return Vec::new();
        }
        let counted = self.names().zip(self.nodes()).filter(|(_, node)| node.replans > 0);
        counted.map(|(name, node)| (name.clone(), node.replans)).collect()
    }

    /// Lists the replans of an activation. A token that came too late for its join causes no replan.
    pub(super) fn replans_of(&self, done: &NodeDone) -> Vec<Replan> {
        let arrived = done.fired.iter().filter(|fired| !done.dropped.contains(&fired.to));
        let replan = |fired: &crate::record::body::FiredEdge| {
            Some(Replan {
                from: self.find(done.node.as_str())?,
                visit: done.visit,
                to: self.find(fired.to.as_str())?,
                reason: fired.reason.clone()?,
            })
        };
        arrived.filter_map(replan).collect()
    }

    /// Returns a failure if an activation exceeds a replan limit.
    pub(super) fn over_replans(&self, plan: &GraphPlan, done: &NodeDone) -> Option<Failure> {
        if done.fired.iter().all(|fired| fired.reason.is_none()) {
            return None;
        }
        let new = self.replans_of(done);
        let mut total: u64 = self.nodes().iter().map(|node| u64::from(node.replans)).sum();
        for replan in &new {
            total += 1;
            let node = plan.node(self.index(replan.to)?);
            let count = self.node(replan.to).replans.saturating_add(1);
            let (of, allowed, setting) = match plan.max_replans_total {
                _ if count > node.max_replans => {
                    (format!("number {count} of this node"), node.max_replans, "max_replans")
                }
                Some(most) if total > u64::from(most) => {
                    (format!("number {total} of the run"), most, "max_replans_total")
                }
                _ => continue,
            };
            let message = format!(
                "the revisit of `{}` is {of}, and at most {allowed} are allowed; change the route of `{}`, raise `{setting}`, or retry the \
                 run to allow this revisit",
                node.name, done.node
            );
            let failure = Failure::new(FailureKind::Replan, message).with_node(&node.name);
            return Some(Failure { causes: self.describe_replans(&new), ..failure });
        }
        None
    }

    /// Returns the history of replans, with the new ones last.
    fn describe_replans(&self, new: &[Replan]) -> Vec<String> {
        let all = self.replans().len() + new.len();
        let counted: u64 = self.nodes().iter().map(|node| u64::from(node.replans)).sum();
        let told = all.min(KEPT);
        // The history also contains operator moves, which do not count.
        let untold = (counted + new.len() as u64).saturating_sub(told as u64);
        let mut causes = Vec::with_capacity(told + 1);
        if untold > 0 {
            causes.push(format!("{untold} earlier replans are counted but not listed"));
        }
        let tell = |replan: &Replan| {
            let (from, to) = (self.name(replan.from), self.name(replan.to));
            format!("{from}@{} -> {to}: {}", replan.visit, replan.reason)
        };
        causes.extend(self.replans().iter().chain(new).skip(all - told).map(tell));
        causes
    }
}

/// Bounds a reason for the log.
pub(super) fn bounded(reason: &str) -> String {
    clip(reason.to_owned(), REASON_BYTES)
}
