//! What is live in a run, summed up for each node: activations in flight and tokens waiting. Kept up to date, never searched.

use std::ops::Deref;
use std::sync::Arc;

use crate::graph::node_set::{NodeIx, NodeSet};
use crate::graph::weak_order::WeakOrder;

/// The tokens that wait at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingTokens {
    /// Tokens that did not come by a back edge: they belong to the round that is running.
    pub(crate) forward: u32,
    /// Tokens that came by a back edge: they belong to the next round.
    pub(crate) back: u32,
}

impl WaitingTokens {
    /// Counts the tokens.
    pub(crate) fn count(self) -> u32 {
        self.forward + self.back
    }

    /// Returns the count of those that came by back edges, or of the others.
    fn of(&mut self, back: bool) -> &mut u32 {
        if back { &mut self.back } else { &mut self.forward }
    }

    /// Tells whether every token came by a back edge.
    pub(crate) fn all_back(self) -> bool {
        self.forward == 0
    }
}

/// What is live at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AtNode {
    in_flight: u32,
    tokens: WaitingTokens,
}

/// Which nodes are live, and how.
///
/// Ten thousand tokens at one node cost what one costs, and so do ten thousand activations of one node. Of a thousand nodes beside each
/// other, a change of one costs as much, and a decision a look at a bit of each.
/// Made by [`Topology::liveness`](crate::graph::topology::Topology::liveness), and of use with that topology only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Liveness {
    order: Arc<WeakOrder>,
    /// By node.
    at: Box<[AtNode]>,
    /// Nodes in flight or with tokens, by their places in the order.
    live: NodeSet,
    /// Nodes with tokens, by their places in the order.
    waiting: NodeSet,
    /// Nodes in flight or with a token of this round: they hold up every node that they can reach in this round.
    blocking: NodeSet,
    /// Nodes whose tokens all came by back edges.
    returning: NodeSet,
}

impl Liveness {
    /// Nothing is live in a graph whose nodes are in this order.
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

    /// Counts one more activation of the node as in flight.
    pub(crate) fn started(&mut self, node: NodeIx) {
        self.change(node, |at| at.in_flight += 1);
    }

    /// Counts one activation of the node less.
    ///
    /// # Panics
    ///
    /// Panics if none is in flight.
    pub(crate) fn finished(&mut self, node: NodeIx) {
        self.change(node, |at| {
            at.in_flight = one_less(at.in_flight, "an activation finishes after it started")
        });
    }

    /// Where nothing waits and the one activation in flight is of `from`: makes it one of `to` instead.
    ///
    /// That is what a token does that goes from one to the other and is taken at once.
    pub(crate) fn stepped(&mut self, from: NodeIx, to: NodeIx) {
        self.finished(from);
        self.started(to);
    }

    /// Counts one more token at the node; `back` if it came by a back edge.
    pub(crate) fn arrived(&mut self, node: NodeIx, back: bool) {
        self.change(node, |at| *at.tokens.of(back) += 1);
    }

    /// Counts one token at the node less: it was used alone, or dropped.
    ///
    /// # Panics
    ///
    /// Panics if no token of that sort waits there.
    pub(crate) fn used(&mut self, node: NodeIx, back: bool) {
        let used = |at: &mut AtNode| {
            let count = at.tokens.of(back);
            *count = one_less(*count, "a token is used after it arrived");
        };
        self.change(node, used);
    }

    /// Takes every token that waits at the node.
    pub(crate) fn take(&mut self, node: NodeIx) -> WaitingTokens {
        self.change(node, |at| std::mem::take(&mut at.tokens))
    }

    /// Puts tokens back that were taken.
    fn put_back(&mut self, node: NodeIx, tokens: WaitingTokens) {
        self.change(node, |at| at.tokens = tokens);
    }

    /// Returns how many activations of the node are in flight.
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

    /// Tells whether nothing is in flight and nothing waits: the run is at its end.
    pub(crate) fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// Tells whether a node other than the one at `except` is live at a position up to `last`.
    pub(crate) fn any_up_to(&self, last: u32, except: u32) -> bool {
        self.live.iter().map(NodeIx::get).find(|&at| at != except).is_some_and(|first| first <= last)
    }

    /// Returns the nodes that hold up whatever they can reach in this round.
    pub(crate) fn blocking(&self) -> &NodeSet {
        &self.blocking
    }

    /// Returns the nodes whose tokens all came by back edges, whether or not they are in flight as well.
    pub(crate) fn returning(&self) -> &NodeSet {
        &self.returning
    }

    /// Changes what is live at one node, and brings the sets up to date with it.
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

/// Changes of what is live that are taken back when this is dropped.
///
/// A copy to try them on would cost each end of an activation what the whole run has in flight.
#[derive(Debug)]
pub(crate) struct LivenessTrial<'a> {
    live: &'a mut Liveness,
    changes: Vec<Change>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Started(NodeIx),
    Finished(NodeIx),
    Arrived(NodeIx, bool, usize),
    Took(NodeIx, WaitingTokens),
}

impl<'a> LivenessTrial<'a> {
    pub(crate) fn on(live: &'a mut Liveness) -> Self {
        Self { live, changes: Vec::new() }
    }

    /// As [`Liveness::started`].
    pub(crate) fn started(&mut self, node: NodeIx) {
        self.live.started(node);
        self.changes.push(Change::Started(node));
    }

    /// As [`Liveness::finished`].
    ///
    /// # Panics
    ///
    /// As [`Liveness::finished`].
    pub(crate) fn finished(&mut self, node: NodeIx) {
        self.live.finished(node);
        self.changes.push(Change::Finished(node));
    }

    /// As [`Liveness::arrived`] of so many tokens.
    pub(crate) fn arrived(&mut self, node: NodeIx, back: bool, tokens: usize) {
        (0..tokens).for_each(|_| self.live.arrived(node, back));
        self.changes.push(Change::Arrived(node, back, tokens));
    }

    /// As [`Liveness::take`].
    pub(crate) fn take(&mut self, node: NodeIx) {
        let tokens = self.live.take(node);
        self.changes.push(Change::Took(node, tokens));
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
                Change::Started(node) => self.live.finished(node),
                Change::Finished(node) => self.live.started(node),
                Change::Arrived(node, back, tokens) => (0..tokens).for_each(|_| self.live.used(node, back)),
                Change::Took(node, tokens) => self.live.put_back(node, tokens),
            }
        }
    }
}
