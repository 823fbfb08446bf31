//! What is live in a run, summed up for each node: activations in flight and tokens waiting. Kept up to date, never searched.

use std::ops::Deref;
use std::sync::Arc;

use crate::compact::few_map::FewMap;
use crate::graph::node_set::{NodeIx, NodeSet};

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

    /// Tells whether every token came by a back edge.
    pub(crate) fn all_back(self) -> bool {
        self.forward == 0
    }
}

/// Which nodes are live, and how.
///
/// Ten thousand tokens at one node cost what one costs, and so do ten thousand activations of one node.
/// Made by [`Topology::liveness`](crate::graph::topology::Topology::liveness), and of use with that topology only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Liveness {
    positions: Arc<[u32]>,
    /// Activations in flight, by the node's position in the order.
    in_flight: FewMap<u32, u32>,
    /// Nodes with tokens, by position.
    waiting: FewMap<u32, (NodeIx, WaitingTokens)>,
    /// Nodes in flight or with a token of this round: they hold up every node that they can reach in this round.
    blocking: NodeSet,
    /// Nodes whose tokens all came by back edges.
    returning: NodeSet,
}

impl Liveness {
    /// Nothing is live in a graph whose nodes have these positions.
    pub(crate) fn new(positions: Arc<[u32]>) -> Self {
        let nodes = positions.len();
        Self {
            positions,
            in_flight: FewMap::default(),
            waiting: FewMap::default(),
            blocking: NodeSet::new(nodes),
            returning: NodeSet::new(nodes),
        }
    }

    /// Counts one more activation of the node as in flight.
    pub(crate) fn started(&mut self, node: NodeIx) {
        *self.in_flight.or_insert(self.position(node), 0) += 1;
        self.refresh(node);
    }

    /// Counts one activation of the node less.
    ///
    /// # Panics
    ///
    /// Panics if none is in flight.
    pub(crate) fn finished(&mut self, node: NodeIx) {
        let position = self.position(node);
        let count = self.in_flight.get_mut(&position).expect("an activation finishes after it started");
        *count -= 1;
        if *count == 0 {
            self.in_flight.remove(&position);
        }
        self.refresh(node);
    }

    /// Where nothing waits and the one activation in flight is of `from`: makes it one of `to` instead.
    ///
    /// That is what a token does that goes from one to the other and is taken at once.
    pub(crate) fn stepped(&mut self, from: NodeIx, to: NodeIx) {
        self.in_flight.clear();
        self.in_flight.insert(self.position(to), 1);
        self.blocking.remove(from);
        self.blocking.insert(to);
    }

    /// Counts one more token at the node; `back` if it came by a back edge.
    pub(crate) fn arrived(&mut self, node: NodeIx, back: bool) {
        let (_, tokens) = self.waiting.or_insert(self.position(node), (node, WaitingTokens::default()));
        *if back { &mut tokens.back } else { &mut tokens.forward } += 1;
        self.refresh(node);
    }

    /// Counts one token at the node less: it was used alone, or dropped.
    ///
    /// # Panics
    ///
    /// Panics if no token of that sort waits there.
    pub(crate) fn used(&mut self, node: NodeIx, back: bool) {
        let position = self.position(node);
        let (_, tokens) = self.waiting.get_mut(&position).expect("a token is used after it arrived");
        let count = if back { &mut tokens.back } else { &mut tokens.forward };
        *count = count.checked_sub(1).expect("a token is used after it arrived");
        if tokens.count() == 0 {
            self.waiting.remove(&position);
        }
        self.refresh(node);
    }

    /// Takes every token that waits at the node.
    pub(crate) fn take(&mut self, node: NodeIx) -> WaitingTokens {
        let tokens = self.waiting.remove(&self.position(node)).map(|(_, tokens)| tokens);
        self.refresh(node);
        tokens.unwrap_or_default()
    }

    /// Puts tokens back that were taken.
    fn put_back(&mut self, node: NodeIx, tokens: WaitingTokens) {
        if tokens.count() > 0 {
            self.waiting.insert(self.position(node), (node, tokens));
            self.refresh(node);
        }
    }

    /// Returns how many activations of the node are in flight.
    pub(crate) fn in_flight(&self, node: NodeIx) -> u32 {
        self.in_flight.get(&self.position(node)).copied().unwrap_or(0)
    }

    /// Returns the tokens that wait at the node.
    pub(crate) fn waiting(&self, node: NodeIx) -> WaitingTokens {
        self.waiting.get(&self.position(node)).map(|&(_, tokens)| tokens).unwrap_or_default()
    }

    /// Returns the nodes with tokens, in weak topological order.
    pub(crate) fn waiting_in_order(&self) -> impl Iterator<Item = (NodeIx, WaitingTokens)> + '_ {
        self.waiting.values().copied()
    }

    /// Tells whether nothing is in flight and nothing waits: the run is at its end.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// Tells whether a node other than the one at `except` is live at a position up to `last`.
    pub(crate) fn any_up_to(&self, last: u32, except: u32) -> bool {
        // At most two steps in each list, since a position is there once.
        self.in_flight.range(0..=last).any(|(&at, _)| at != except)
            || self.waiting.range(0..=last).any(|(&at, _)| at != except)
    }

    /// Returns the nodes that hold up whatever they can reach in this round.
    pub(crate) fn blocking(&self) -> &NodeSet {
        &self.blocking
    }

    /// Returns the nodes whose tokens all came by back edges, whether or not they are in flight as well.
    pub(crate) fn returning(&self) -> &NodeSet {
        &self.returning
    }

    fn position(&self, node: NodeIx) -> u32 {
        self.positions[node.as_usize()]
    }

    /// Brings the two sets up to date with the counts of one node.
    fn refresh(&mut self, node: NodeIx) {
        let tokens = self.waiting(node);
        if tokens.forward > 0 || self.in_flight(node) > 0 {
            self.blocking.insert(node);
        } else {
            self.blocking.remove(node);
        }
        if tokens.back > 0 && tokens.all_back() {
            self.returning.insert(node);
        } else {
            self.returning.remove(node);
        }
    }
}

/// Changes of what is live that are taken back when this is dropped.
///
/// A copy to try them on would cost each end of an activation what the whole run has in flight.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
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

impl<'a> Trial<'a> {
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

impl Deref for Trial<'_> {
    type Target = Liveness;

    fn deref(&self) -> &Liveness {
        self.live
    }
}

impl Drop for Trial<'_> {
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
