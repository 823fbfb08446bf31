//! Replans: how often a run went back to a node on purpose, from where and why, and when it may not once more.

use super::frontier::Local;
use super::machine::Machine;
use crate::failure::{Failure, FailureKind, clip};
use crate::graph::plan::Plan;
use crate::id::{NodeName, Visit};
use crate::record::body::NodeDone;

/// The longest reason that is kept, in bytes: a paragraph. A longer one belongs in the state.
pub(super) const REASON_BYTES: usize = 500;

/// How many replans are kept with their reasons, the latest ones; all are counted. They explain why a run gave up, and every
/// base holds them.
pub(super) const KEPT: usize = 100;

/// A run went back to a node on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replan {
    /// The activation whose route decided so.
    pub(crate) from: Local,
    pub(crate) visit: Visit,
    pub(crate) to: Local,
    pub(crate) reason: String,
}

impl Machine {
    /// Returns how often the run went back to each node on purpose; nodes without replans are left out.
    pub(crate) fn replan_counts(&self) -> Vec<(NodeName, u32)> {
        if self.replans().is_empty() {
            return Vec::new();
        }
        let counted = self.names().zip(self.nodes()).filter(|(_, node)| node.replans > 0);
        counted.map(|(name, node)| (name.clone(), node.replans)).collect()
    }

    /// Lists the replans of an activation. A token that came too late for its join goes back to nothing.
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

    /// Returns why the run may not go on if an activation goes back to a node once more than allowed.
    pub(super) fn over_replans(&self, plan: &Plan, done: &NodeDone) -> Option<Failure> {
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
                    (format!("number {count} of that node"), node.max_replans, "max_replans")
                }
                Some(most) if total > u64::from(most) => {
                    (format!("number {total} of the run"), most, "max_replans_total")
                }
                _ => continue,
            };
            let message = format!(
                "the revisit of `{}` would be {of}, allowed are {allowed}; let the route of `{}` decide otherwise, raise \
                 `{setting}`, or retry the run to allow this one",
                node.name, done.node
            );
            let failure = Failure::new(FailureKind::Replan, message).with_node(&node.name);
            return Some(Failure { causes: self.tell_replans(&new), ..failure });
        }
        None
    }

    /// Tells the history of replans, the new ones last.
    fn tell_replans(&self, new: &[Replan]) -> Vec<String> {
        let all = self.replans().len() + new.len();
        let counted: u64 = self.nodes().iter().map(|node| u64::from(node.replans)).sum();
        let told = all.min(KEPT);
        // Moves by an operator are told as well, and not counted.
        let untold = (counted + new.len() as u64).saturating_sub(told as u64);
        let mut causes = Vec::with_capacity(told + 1);
        if untold > 0 {
            causes.push(format!("{untold} earlier replans are counted and not kept"));
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
