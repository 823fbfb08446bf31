//! Decides what follows the end of an activation: which edges fire, which nodes start or can no longer run, and whether the run ends. A fired edge is
//! also called a token.
//!
//! A decision only reads the machine. The driver records the decision, and the decision takes effect when the machine absorbs the record.

use super::frontier::ActivationKey;
use super::machine::Machine;
use super::replan::bounded;
use crate::compact::small_vec::SmallVec;
use crate::failure::{Failure, FailureKind};
use crate::graph::fired::FiredEdges;
use crate::graph::liveness::{LivenessTrial, WaitingTokens};
use crate::graph::node_set::{NodeIx, NodeSet};
use crate::graph::plan::{EdgeIx, GraphPlan};
use crate::graph::{EdgeKind, Join};
use crate::id::NodeName;
use crate::record::RunStatus;
use crate::record::body::{ActivationStart, FanOutItem, FiredEdge, NodeDone, RunEnd, TokenChanges};

/// The maximum number of times that a run returns to a retry target that has no visit limit, whichever node failed. Without it, a goal that is never
/// met would keep the run active forever.
const MAX_RETURNS: u32 = 10;

/// The end of an activation, without the user's types.
pub struct ActivationEnd<'a> {
    pub key: ActivationKey,
    /// The fired edges and their items, or the failure.
    pub result: Result<FiredEdges, Failure>,
    /// The channels that the activation overwrites.
    pub overwrites: &'a [&'a str],
}

impl Machine {
    fn graph(&self) -> &GraphPlan {
        self.plan().expect("only a machine with a plan can decide")
    }

    /// Decides what follows the end of an activation, and leaves the machine unchanged. `unmet` returns whether the goal of a goal gate is not met.
    /// It is called only if the run would otherwise complete.
    ///
    /// Earlier signals win: a cancelled run ends as cancelled whatever its last node returns, and a paused run completes after it is unpaused.
    pub fn decide(&mut self, ending: ActivationEnd<'_>, unmet: impl Fn(NodeIx) -> bool) -> NodeDone {
        self.decide_by(ending, unmet, true)
    }

    /// Decides like [`decide`](Self::decide), but without the fast path for simple cases. Tests compare both results.
    pub fn decide_in_general(
        &mut self,
        ending: ActivationEnd<'_>,
        unmet: impl Fn(NodeIx) -> bool,
    ) -> NodeDone {
        self.decide_by(ending, unmet, false)
    }

    fn decide_by(
        &mut self,
        ending: ActivationEnd<'_>,
        unmet: impl Fn(NodeIx) -> bool,
        shortcuts: bool,
    ) -> NodeDone {
        let mut done = self.decide_freely(ending, unmet, shortcuts);
        let is_stopped = match &done.end {
            None => false,
            Some(RunEnd::Completed) => self.cancel().is_some() || self.paused().is_some(),
            Some(RunEnd::Failed(_)) => self.cancel().is_some(),
        };
        if is_stopped {
            done.end = None;
        }
        done
    }

    fn decide_freely(
        &mut self,
        ending: ActivationEnd<'_>,
        unmet: impl Fn(NodeIx) -> bool,
        shortcuts: bool,
    ) -> NodeDone {
        let plan = self.graph();
        let (node, visit) = ending.key;
        let index = NodeIx::new(node);
        let mut done = NodeDone::new(self.name(node).clone(), visit);
        done.attempts = self.in_flight().get(&ending.key).map_or(1, |activation| activation.failed + 1);
        match ending.result {
            Ok(FiredEdges::Sole(edge))
                if shortcuts && self.is_single_step(plan, index, plan.edge(edge).to) =>
            {
                done.fired = SmallVec::One(FiredEdge::plain(plan.node(plan.edge(edge).to).name.clone()));
                return done;
            }
            Ok(fired) => {
                done.fired = collect(plan, fired);
                self.bypass(plan, index, |kind| kind != EdgeKind::OnFailure, &mut done);
                if shortcuts && self.fired_straight(plan, index, &done) {
                    return done;
                }
            }
            Err(failure) if failure.kind == FailureKind::ConcurrentWrite => {
                done.failure = Some(failure.clone());
                done.end = Some(RunEnd::Failed(failure));
                return done;
            }
            Err(failure) => {
                let node = plan.node(index);
                let first = node.returns.iter().take(node.returns_first).copied();
                done.fired = match { first }.find(|&target| self.has_room(target)) {
                    Some(target) => SmallVec::One(back_to(plan, target)),
                    None => {
                        let caught = plan.outgoing(index, EdgeKind::OnFailure).map(|edge| plan.edge(edge).to);
                        caught.map(|to| FiredEdge::plain(plan.node(to).name.clone())).collect()
                    }
                };
                if done.fired.is_empty() {
                    match self.return_target(index) {
                        Some(target) => done.fired.push(back_to(plan, target)),
                        None => {
                            done.failure = Some(failure.clone());
                            done.end = Some(RunEnd::Failed(failure));
                            return done;
                        }
                    }
                }
                done.failure = Some(failure);
                self.bypass(plan, index, |kind| kind == EdgeKind::OnFailure, &mut done);
            }
        }
        if self.in_flight().len() > 1 && !ending.overwrites.is_empty() {
            done.wrote = ending.overwrites.iter().map(|&channel| channel.to_owned()).collect();
        }
        self.start_after(index, &mut done, unmet);
        // Must be last, because an unmet goal also has a target. Assign only when true: writing a rare field allocates.
        if self.graph().node(index).interrupt.after && !done.fired.is_empty() {
            done.hold = true;
        }
        done
    }

    /// Decides which waiting tokens may start activations in the current graph, when no activation has ended.
    pub fn decide_starts(&self) -> (TokenChanges, Option<Failure>) {
        let plan = self.graph();
        let Some(live) = self.live() else { return (TokenChanges::default(), None) };
        let mut settled = TokenChanges::default();
        let failure = self.work_out(plan, &mut LivenessTrial::on(&mut live.clone()), &mut settled);
        if settled.start.as_ref().is_some_and(Vec::is_empty) {
            settled.start = None;
        }
        (settled, failure)
    }

    /// Lists the edges that did not fire, and the nodes that can never run because of this.
    fn bypass(
        &self,
        plan: &GraphPlan,
        node: NodeIx,
        eligible: impl Fn(EdgeKind) -> bool,
        done: &mut NodeDone,
    ) {
        let outgoing = &plan.node(node).outgoing;
        if outgoing.len() == done.fired.len() && !done.fired.iter().any(|fired| fired.back) {
            return;
        }
        for &edge in outgoing {
            let edge = plan.edge(edge);
            let name = &plan.node(edge.to).name;
            let fires = eligible(edge.kind) && done.fired.iter().any(|fired| fired.to == *name);
            if !(fires || done.bypassed.contains(name)) {
                done.bypassed.push(name.clone());
            }
        }
        let skipped = self.never(plan, node, done);
        if !(skipped.is_empty() && done.skipped.is_empty()) {
            done.skipped = skipped;
        }
    }

    /// Collects the nodes that can never run. They come after edges that did not fire or after dropped tokens, have never run, and no live token can
    /// reach them.
    fn never(&self, plan: &GraphPlan, node: NodeIx, done: &NodeDone) -> Vec<NodeName> {
        let unseen = |at: NodeIx| {
            let state = self.node(at.get());
            state.visits == 0 && !state.skipped && !self.tokens().contains_key(&at.get())
        };
        let mut candidates = NodeSet::new(plan.nodes.len());
        for target in done.bypassed.iter().chain(&done.dropped).filter_map(|name| plan.find(name.as_str())) {
            candidates.insert(target);
            candidates.union_with(plan.topology.reach(target));
        }
        let mut lost: Vec<NodeIx> = candidates.iter().filter(|&at| unseen(at)).collect();
        if lost.is_empty() {
            return Vec::new();
        }
        let others = self.in_flight().keys().map(|&(at, _)| at);
        let others = others.filter(|&at| at != node.get() || self.has_several_in_flight(at));
        let live = others.chain(self.tokens().keys().copied());
        let arriving = done.fired.iter().filter(|fired| !done.dropped.contains(&fired.to));
        let fired = arriving.filter_map(|fired| plan.find(fired.to.as_str()));
        let mut last = None;
        for at in live.filter_map(|at| self.index(at)).chain(fired) {
            if last.replace(at) != Some(at) {
                lost.retain(|&candidate| candidate != at && !plan.topology.reach(at).contains(candidate));
            }
        }
        lost.into_iter().map(|at| plan.node(at).name.clone()).collect()
    }

    /// Computes the nodes that start after the end of an activation.
    fn start_after(&mut self, node: NodeIx, done: &mut NodeDone, unmet: impl Fn(NodeIx) -> bool) {
        let Some(mut live) = self.lend_live() else { return };
        self.start_on(&mut LivenessTrial::on(&mut live), node, done, unmet);
        self.return_live(live);
    }

    fn start_on(
        &self,
        live: &mut LivenessTrial<'_>,
        node: NodeIx,
        done: &mut NodeDone,
        unmet: impl Fn(NodeIx) -> bool,
    ) {
        let plan = self.graph();
        live.finished(node);
        let mut dropped = Vec::new();
        for (place, fired) in done.fired.iter().enumerate() {
            let Some(to) = plan.find_after(node, &fired.to, place) else { continue };
            let back = plan.topology.is_back(node, to);
            let late = self.node(to.get()).spent && !back;
            if late {
                dropped.push(fired.to.clone());
            } else {
                live.arrived(to, back, fired.tokens());
            }
        }
        if !dropped.is_empty() {
            done.dropped = dropped;
            // The nodes that only the dropped token could reach are lost with it.
            done.skipped = self.never(plan, node, done);
        }
        if self.status() != RunStatus::InProgress {
            // The activation that stopped the run may be retried and does not count as live. No node starts before that decision.
            done.settled.start = Some(Vec::new());
            return;
        }
        let failed = self.work_out(plan, live, &mut done.settled);
        if let Some(failure) = failed {
            done.end = Some(RunEnd::Failed(failure));
            return;
        }
        if live.is_idle() {
            self.finish(plan, node, done, unmet);
        } else {
            let usual = done.settled.start.as_ref().is_some_and(|starts| {
                starts.len() == done.fired.len()
                    && starts.iter().zip(&done.fired).all(
                        |(start, fired)| matches!(start, ActivationStart::Joined(node) if *node == fired.to),
                    )
            });
            if usual {
                done.settled.start = None;
            }
            self.limit(plan, node, done);
        }
    }

    /// Starts the nodes that may start. Returns the failure of a join that can never be met.
    fn work_out(
        &self,
        plan: &GraphPlan,
        live: &mut LivenessTrial<'_>,
        settled: &mut TokenChanges,
    ) -> Option<Failure> {
        let mut starts = Vec::new();
        let mut begin = |live: &mut LivenessTrial<'_>, at: NodeIx, each: bool| {
            // One mark is enough: from here on, only the fact that the node is in flight matters.
            live.take(at);
            live.started(at);
            let name = plan.node(at).name.clone();
            starts.push(if each {
                ActivationStart::Each { each: name }
            } else {
                ActivationStart::Joined(name)
            });
        };
        // Before any node starts: this end may complete the round of a counting join, and the head of its loop is about to start the next round.
        for at in self.spent() {
            if plan.topology.ready(at, false, live) {
                settled.fresh.push(plan.node(at).name.clone());
            }
        }
        let mut failure = None;
        loop {
            let hurries = |(at, tokens): (NodeIx, WaitingTokens)| match plan.node(at).join {
                Join::Any => Some((at, true)),
                Join::AtLeast(least) if tokens.count() >= least => Some((at, false)),
                _ => None,
            };
            // Otherwise a fan-out to a thousand nodes would scan all of them for each one.
            let eager = if plan.hurries { live.waiting_in_order().find_map(hurries) } else { None };
            if let Some((at, each)) = eager {
                if !each {
                    settled.spent.push(plan.node(at).name.clone());
                }
                begin(live, at, each);
                continue;
            }
            let Some(at) = plan.topology.next_ready(live) else { break };
            if let Join::AtLeast(least) = plan.node(at).join {
                let name = &plan.node(at).name;
                let message = format!(
                    "the join needs {least} tokens and received {}, and no activation is left to send more; lower the count, or add an edge \
                     from every branch to the node",
                    live.waiting(at).count()
                );
                failure = Some(Failure::new(FailureKind::JoinUnmet, message).with_node(name));
                break;
            }
            begin(live, at, false);
        }
        // If no live token can send more tokens, none can come late.
        settled.spent.retain(|name| {
            let at = plan.find(name.as_str());
            !at.is_some_and(|at| plan.topology.ready(at, false, live))
        });
        settled.start = Some(starts);
        failure
    }

    /// Ends the run, or returns it to a retry target for an unmet goal.
    fn finish(&self, plan: &GraphPlan, node: NodeIx, done: &mut NodeDone, unmet: impl Fn(NodeIx) -> bool) {
        if done.settled.start.is_some() {
            done.settled.start = None;
        }
        let visited = |at: NodeIx| at == node || self.node(at.get()).visits > 0;
        let ended_well = |at: NodeIx| {
            if at == node { done.failure.is_none() } else { self.node(at.get()).succeeded == Some(true) }
        };
        let gates = (0..plan.nodes.len()).map(NodeIx::from_usize);
        let missed = gates
            .filter(|&at| plan.node(at).goal_gate && visited(at))
            .find(|&at| !ended_well(at) || unmet(at));
        let Some(gate) = missed else {
            done.end = Some(RunEnd::Completed);
            return;
        };
        match self.return_target(gate) {
            Some(target) => {
                done.fired.push(back_to(plan, target));
                // No other token is live, so the target starts.
                self.limit(plan, node, done);
            }
            None => {
                let name = &plan.node(gate).name;
                let message = "the goal is not met and there is no retry target left; give the node a `.retry_target(..)`, or \
                               raise its `.max_visits(..)`";
                done.end = Some(RunEnd::Failed(Failure::new(FailureKind::GoalGate, message).with_node(name)));
            }
        }
    }

    /// Returns the retry target for the node `cause`, which failed or whose goal is not met. This is a target of the node or else of the graph, if
    /// the limits allow another return.
    fn return_target(&self, cause: NodeIx) -> Option<NodeIx> {
        let plan = self.graph();
        let targets = plan.node(cause).returns.iter().copied().chain(plan.retry_target);
        { targets }.find(|&target| self.has_room(target))
    }

    /// Returns whether the run may return to a node once more.
    fn has_room(&self, target: NodeIx) -> bool {
        let state = self.node(target.get());
        match self.graph().node(target).max_visits {
            Some(most) => state.visits < most.get(),
            None => state.returned < MAX_RETURNS,
        }
    }

    /// Counts the activations that the waiting and the arriving tokens of a node start.
    fn count_made<'a>(&self, at: NodeIx, each: bool, arriving: impl Iterator<Item = &'a FiredEdge>) -> u64 {
        let waiting = self.tokens().get(&at.get()).map_or(&[][..], |tokens| tokens);
        let mut items = waiting.iter().filter(|token| token.item.is_some()).count();
        let mut plain = waiting.len() - items;
        for fired in arriving {
            *if fired.items.is_some() { &mut items } else { &mut plain } += fired.tokens();
        }
        (items + if each { plain } else { plain.min(1) }) as u64
    }

    /// Stops the run if the new activations would exceed a limit.
    fn limit(&self, plan: &GraphPlan, node: NodeIx, done: &mut NodeDone) {
        let mut total = self.started();
        let mut over = None;
        let mut count = |at: NodeIx, new: u64| {
            total += new;
            let visits = u64::from(self.node(at.get()).visits) + new;
            let node = plan.node(at);
            if let Some(most) = node.max_visits.filter(|most| visits > u64::from(most.get())) {
                let message = format!(
                    "the node needs visit {visits}, and at most {most} are allowed; raise `max_visits`"
                );
                over = Some(Failure::new(FailureKind::MaxVisits, message).with_node(&node.name));
            } else if let Some(most) = plan.max_steps.filter(|most| total > most.get()) {
                let message = format!(
                    "the run needs activation {total}, and at most {most} are allowed; look for an endless loop, or raise `max_steps`"
                );
                over = Some(Failure::new(FailureKind::MaxSteps, message).with_node(&node.name));
            }
        };
        match &done.settled.start {
            None => done.fired.iter().enumerate().for_each(|(place, fired)| {
                if let Some(at) = plan.find_after(node, &fired.to, place) {
                    count(at, self.count_made(at, false, std::iter::once(fired)));
                }
            }),
            Some(starts) => starts.iter().for_each(|start| {
                if let Some(at) = plan.find(start.node().as_str()) {
                    let arriving = done.fired.iter().filter(|fired| fired.to == *start.node());
                    count(at, self.count_made(at, matches!(start, ActivationStart::Each { .. }), arriving));
                }
            }),
        }
        if let Some(failure) = over.or_else(|| self.over_replans(plan, done)) {
            done.settled.start = Some(Vec::new());
            done.end = Some(RunEnd::Failed(failure));
        }
    }
}

fn back_to(plan: &GraphPlan, target: NodeIx) -> FiredEdge {
    FiredEdge { to: plan.node(target).name.clone(), items: None, back: true, reason: None }
}

/// Groups fired edges by target, with their items together, in the order of the edges.
fn collect(plan: &GraphPlan, fires: FiredEdges) -> SmallVec<FiredEdge> {
    let fired = match fires {
        FiredEdges::Sole(edge) => {
            return SmallVec::One(FiredEdge::plain(plan.node(plan.edge(edge).to).name.clone()));
        }
        FiredEdges::These(fired) => fired,
    };
    let mut by_edge: Vec<(EdgeIx, FiredEdge)> = Vec::with_capacity(fired.len().min(8));
    for crate::graph::fired::EdgeToken { edge, item, reason } in fired {
        let item = item.map(FanOutItem);
        match (by_edge.last_mut(), item) {
            (Some((last, FiredEdge { items: Some(items), .. })), Some(item)) if *last == edge => {
                items.push(item)
            }
            (_, item) => {
                let to = plan.node(plan.edge(edge).to).name.clone();
                let (items, reason) = (item.map(|item| vec![item]), reason.as_deref().map(bounded));
                by_edge.push((edge, FiredEdge { to, items, back: false, reason }));
            }
        }
    }
    by_edge.into_iter().map(|(_, fired)| fired).collect()
}
