//! Tracks which nodes of a run are live. A node is live if it has unfinished activations or waiting tokens (fired edges).

use std::ops::Deref;
use std::sync::Arc;

use crate::graph::node_set::{NodeIx, NodeSet};
use crate::graph::weak_order::WeakOrder;

/// The tokens that wait at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingTokens {
    /// Tokens that arrived on forward edges. They belong to the current round.
    pub(crate) forward: u32,
    /// Tokens that arrived on back edges. They belong to the next round.
    pub(crate) back: u32,
}

impl WaitingTokens {
    /// Counts the tokens.
    pub(crate) fn count(self) -> u32 {
        self.forward + self.back
    }

    /// Returns the count of tokens from back edges if `back` is true, or else the count of other tokens.
    fn of(&mut self, back: bool) -> &mut u32 {
        if back { &mut self.back } else { &mut self.forward }
    }

    /// Returns whether every token arrived on a back edge.
    pub(crate) fn all_back(self) -> bool {
        self.forward == 0
    }
}

/// The activations and tokens of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AtNode {
    in_flight: u32,
    tokens: WaitingTokens,
}

/// The live nodes of a run, with the numbers of their activations and tokens.
///
/// The cost of a change does not depend on the number of tokens or activations at a node, nor on the number of parallel nodes. A decision reads one
/// bit for each node. `Topology::liveness` creates this value, and it must be used only with that topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness {
    order: Arc<WeakOrder>,
    /// The activations and tokens of each node, by node index.
    at: Box<[AtNode]>,
    /// The nodes that have activations or tokens, by their position in the order.
    live: NodeSet,
    /// Nodes with tokens, by position in the order.
    waiting: NodeSet,
    /// The nodes that have activations or tokens of the current round. They block every node that they can reach in this round.
    blocking: NodeSet,
    /// Nodes with tokens from back edges only.
    returning: NodeSet,
}

impl Liveness {
    /// Creates a liveness without live nodes, for a graph in this order.
    pub(crate) fn new(order: Arc<WeakOrder>) -> Self {
        let nodes = order.order().len();
        Self {
            order,
            at: vec![AtNode::default(); nodes].into(),
            live: NodeSet::new(nodes),
            waiting: NodeSet::new(nodes),
            blocking: NodeSet::new(nodes),
            returning: NodeSet::new(nodes),
        }
    }

    /// Adds an active activation of the node.
    pub(crate) fn started(&mut self, node: NodeIx) {
        self.change(node, |at| at.in_flight += 1);
    }

    /// Removes an active activation of the node.
    ///
    /// # Panics
    ///
    /// Panics if none is active.
    pub(crate) fn finished(&mut self, node: NodeIx) {
        self.change(node, |at| {
            at.in_flight = one_less(at.in_flight, "an activation finishes after it started")
        });
    }

    /// Moves the only active activation from `from` to `to`, if no token waits.
    ///
    /// The effect is that of a token that goes from one node to the other and is taken at once.
    pub(crate) fn stepped(&mut self, from: NodeIx, to: NodeIx) {
        self.finished(from);
        self.started(to);
    }

    /// Adds a token at the node. `back` says whether the token arrived on a back edge.
    pub(crate) fn arrived(&mut self, node: NodeIx, back: bool) {
        self.change(node, |at| *at.tokens.of(back) += 1);
    }

    /// Removes a token at the node, because it was used alone or dropped.
    ///
    /// # Panics
    ///
    /// Panics if no such token waits at the node.
    pub(crate) fn used(&mut self, node: NodeIx, back: bool) {
        let used = |at: &mut AtNode| {
            let count = at.tokens.of(back);
            *count = one_less(*count, "a token is used after it arrived");
        };
        self.change(node, used);
    }

    /// Takes all tokens of the node.
    pub(crate) fn take(&mut self, node: NodeIx) -> WaitingTokens {
        self.change(node, |at| std::mem::take(&mut at.tokens))
    }

    /// Puts back tokens that were taken from the node.
    fn put_back(&mut self, node: NodeIx, tokens: WaitingTokens) {
        self.change(node, |at| at.tokens = tokens);
    }

    /// Returns the number of active activations of the node.
    #[cfg(test)]
    pub(crate) fn in_flight(&self, node: NodeIx) -> u32 {
        self.at[node.as_usize()].in_flight
    }

    /// Returns the tokens that wait at the node.
    pub(crate) fn waiting(&self, node: NodeIx) -> WaitingTokens {
        self.at[node.as_usize()].tokens
    }

    /// Returns the nodes with tokens, in weak topological order.
    pub(crate) fn waiting_in_order(&self) -> impl Iterator<Item = (NodeIx, WaitingTokens)> + '_ {
        let order = self.order.order();
        self.waiting.iter().map(|place| order[place.as_usize()]).map(|node| (node, self.waiting(node)))
    }

    /// Returns whether no activation is active and no token waits, which ends the run.
    pub(crate) fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// Returns whether a node other than the one at `except` is live at a position up to `last`.
    pub(crate) fn any_up_to(&self, last: u32, except: u32) -> bool {
        self.live.iter().map(NodeIx::get).find(|&at| at != except).is_some_and(|first| first <= last)
    }

    /// Returns the nodes that block every node they can reach in this round.
    pub(crate) fn blocking(&self) -> &NodeSet {
        &self.blocking
    }

    /// Returns the nodes with tokens from back edges only, active or not.
    pub(crate) fn returning(&self) -> &NodeSet {
        &self.returning
    }

    /// Changes the live parts of one node, and updates the sets.
    fn change<R>(&mut self, node: NodeIx, change: impl FnOnce(&mut AtNode) -> R) -> R {
        let at = &mut self.at[node.as_usize()];
        let result = change(at);
        let AtNode { in_flight, tokens } = *at;
        let place = NodeIx::new(self.order.position(node));
        self.live.set(place, in_flight > 0 || tokens.count() > 0);
        self.waiting.set(place, tokens.count() > 0);
        self.blocking.set(node, in_flight > 0 || tokens.forward > 0);
        self.returning.set(node, tokens.back > 0 && tokens.all_back());
        result
    }
}

fn one_less(count: u32, why: &str) -> u32 {
    count.checked_sub(1).expect(why)
}

/// Tentative changes of a liveness. When this value is dropped, the changes are undone.
///
/// The liveness is not copied, because a copy at each end of an activation would cost time in proportion to all live nodes of the run.
#[derive(Debug)]
pub(crate) struct LivenessTrial<'a> {
    live: &'a mut Liveness,
    changes: Vec<TrialChange>,
}

#[derive(Clone, Copy, Debug)]
enum TrialChange {
    Started(NodeIx),
    Finished(NodeIx),
    Arrived(NodeIx, bool, usize),
    Took(NodeIx, WaitingTokens),
}

impl<'a> LivenessTrial<'a> {
    pub(crate) fn on(live: &'a mut Liveness) -> Self {
        Self { live, changes: Vec::new() }
    }

    /// Adds an active activation of the node tentatively, like [`Liveness::started`].
    pub(crate) fn started(&mut self, node: NodeIx) {
        self.live.started(node);
        self.changes.push(TrialChange::Started(node));
    }

    /// Removes an active activation of the node tentatively, like [`Liveness::finished`].
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`Liveness::finished`].
    pub(crate) fn finished(&mut self, node: NodeIx) {
        self.live.finished(node);
        self.changes.push(TrialChange::Finished(node));
    }

    /// Adds several tokens at the node tentatively, like [`Liveness::arrived`].
    pub(crate) fn arrived(&mut self, node: NodeIx, back: bool, tokens: usize) {
        (0..tokens).for_each(|_| self.live.arrived(node, back));
        self.changes.push(TrialChange::Arrived(node, back, tokens));
    }

    /// Takes all tokens of the node tentatively, like [`Liveness::take`].
    pub(crate) fn take(&mut self, node: NodeIx) {
        let tokens = self.live.take(node);
        self.changes.push(TrialChange::Took(node, tokens));
    }
}

impl Deref for LivenessTrial<'_> {
    type Target = Liveness;

    fn deref(&self) -> &Liveness {
        self.live
    }
}

impl Drop for LivenessTrial<'_> {
    fn drop(&mut self) {
        for change in self.changes.drain(..).rev() {
            match change {
                TrialChange::Started(node) => self.live.finished(node),
                TrialChange::Finished(node) => self.live.started(node),
                TrialChange::Arrived(node, back, tokens) => {
                    (0..tokens).for_each(|_| self.live.used(node, back))
                }
                TrialChange::Took(node, tokens) => self.live.put_back(node, tokens),
            }
        }
    }
}
