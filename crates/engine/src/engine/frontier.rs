//! The unfinished part of a run. It consists of activations that have not ended (activations in flight) and of tokens (fired edges) that wait at
//! joins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::compact::small_map::FewMap;
use crate::graph::liveness::Liveness;
use crate::graph::node_set::NodeIx;
use crate::id::Visit;
use crate::record::memo::Memos;
use crate::record::{Failure, Resolution};

/// The maximum number of tokens whose memory is reused. A join of many edges must not keep its memory for the rest of the run.
const SPARE: usize = 8;

/// The number of a node in the machine. For nodes of the graph, it is the index in the graph. Nodes that only the log knows have further numbers.
pub type Local = u32;

/// Identifies an activation: the number of the node, and the visit.
pub type ActivationKey = (Local, Visit);

/// A fired edge that waits at its target or was joined into an activation.
#[derive(Clone, Debug)]
pub struct Token {
    pub from: Local,
    pub visit: Visit,
    pub output: Option<Arc<RawValue>>,
    pub item: Option<Arc<RawValue>>,
}

/// An activation in flight.
#[derive(Clone, Debug)]
pub struct Activation {
    /// The number of activations that had ended when this activation started. It cannot have seen the results of later ones.
    pub since: u64,
    /// The number of failed attempts.
    pub failed: u32,
    /// The earliest start of the next attempt.
    pub retry_at: Option<Timestamp>,
    /// Whether the log contains the intent of an attempt that must not be repeated. An intent is a record that is written before such an attempt
    /// starts.
    pub intent: bool,
    /// Whether the outcome of the attempt is unknown and a question about it is open.
    pub in_doubt: bool,
    /// The failure of the attempt whose outcome is unknown. `None` if its process died.
    pub why: Option<Box<Failure>>,
    /// The answer to the question about the unknown outcome.
    pub resolution: Option<Resolution>,
    pub item: Option<Arc<RawValue>>,
    pub inputs: Vec<Token>,
    /// The memos of the activation (results that it recorded), by name.
    pub memos: Memos,
}

impl Activation {
    pub(crate) fn new(since: u64, item: Option<Arc<RawValue>>, inputs: Vec<Token>) -> Self {
        Self {
            since,
            failed: 0,
            retry_at: None,
            intent: false,
            in_doubt: false,
            why: None,
            resolution: None,
            item,
            inputs,
            memos: Memos::default(),
        }
    }
}

/// The last overwrite of a channel, with its position in time and its activation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overwrite {
    pub(crate) tick: u64,
    pub(crate) node: Local,
    pub(crate) visit: Visit,
}

/// An edge of the plan, with what liveness needs to know about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveEdge {
    pub(super) to: NodeIx,
    /// Whether the edge is a back edge.
    pub(super) back: bool,
}

/// The unfinished part of a run, and its live tokens for the join rule.
///
/// Liveness is computed from unfinished activations and waiting tokens. Only this type changes them, and it always updates the liveness too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frontier {
    in_flight: FewMap<ActivationKey, Activation>,
    /// Activations that failed the run. A retry starts them again.
    stopped_at: Vec<(ActivationKey, Activation)>,
    tokens: FewMap<Local, Vec<Token>>,
    /// Overwrites of channels that at least one unfinished activation cannot have seen.
    overwrites: BTreeMap<String, Overwrite>,
    /// Ended activations after which the graph declares a question. Their successors wait until the question is answered.
    holds: BTreeSet<ActivationKey>,
    /// Activations that do not exist yet, but that must not be repeated and had already started according to records that the store lost. When such
    /// an activation is created, its outcome is unknown.
    begun: BTreeSet<ActivationKey>,
    /// The emptied input list of the last ended activation. Its memory is reused for the next tokens.
    spare: Vec<Token>,
    /// The liveness for the join rule. It is present only if the machine has a plan.
    live: Option<Liveness>,
}

impl Frontier {
    pub(super) fn new(live: Option<Liveness>) -> Self {
        Self { live, ..Self::default() }
    }

    pub(super) fn in_flight(&self) -> &FewMap<ActivationKey, Activation> {
        &self.in_flight
    }

    pub(super) fn stopped_at(&self) -> &[(ActivationKey, Activation)] {
        &self.stopped_at
    }

    pub(super) fn tokens(&self) -> &FewMap<Local, Vec<Token>> {
        &self.tokens
    }

    pub(super) fn overwrites(&self) -> &BTreeMap<String, Overwrite> {
        &self.overwrites
    }

    pub(super) fn held_activations(&self) -> &BTreeSet<ActivationKey> {
        &self.holds
    }

    pub(super) fn begun(&self) -> &BTreeSet<ActivationKey> {
        &self.begun
    }

    pub(super) fn live(&self) -> Option<&Liveness> {
        self.live.as_ref()
    }

    pub(super) fn lend_live(&mut self) -> Option<Liveness> {
        self.live.take()
    }

    pub(super) fn return_live(&mut self, live: Liveness) {
        self.live = Some(live);
    }

    /// Returns whether no activation is in flight, no token waits, and no activation stopped the run.
    pub(super) fn is_over(&self) -> bool {
        self.in_flight.is_empty() && self.tokens.is_empty() && self.stopped_at.is_empty()
    }

    /// Returns whether this activation is the only unfinished part.
    pub(super) fn is_only(&self, key: &ActivationKey) -> bool {
        self.in_flight.len() == 1
            && self.tokens.is_empty()
            && self.begun.is_empty()
            && self.in_flight.contains_key(key)
    }

    pub(super) fn activation_mut(&mut self, key: &ActivationKey) -> Option<&mut Activation> {
        self.in_flight.get_mut(key)
    }

    pub(super) fn activations_mut(&mut self) -> impl Iterator<Item = &mut Activation> + '_ {
        self.in_flight.values_mut()
    }

    /// Starts an activation. `at` is its node in the plan.
    pub(super) fn start(&mut self, key: ActivationKey, activation: Activation, at: Option<NodeIx>) {
        self.in_flight.insert(key, activation);
        if let (Some(at), Some(live)) = (at, &mut self.live) {
            live.started(at);
        }
    }

    /// Ends an activation. Returns `None` if it is not in flight.
    pub(super) fn end(&mut self, key: &ActivationKey, at: Option<NodeIx>) -> Option<Activation> {
        let activation = self.in_flight.remove(key)?;
        if let (Some(at), Some(live)) = (at, &mut self.live) {
            live.finished(at);
        }
        Some(activation)
    }

    /// Ends the only activation of the run and starts another. The effect is that of a token from `from` to `to` that starts its target at once.
    pub(super) fn step(&mut self, (from, to): (NodeIx, NodeIx), next: ActivationKey, activation: Activation) {
        self.in_flight.clear();
        self.in_flight.insert(next, activation);
        if let Some(live) = &mut self.live {
            live.stepped(from, to);
        }
    }

    /// Takes the input list of an activation and empties it, so that its memory can be used for the next token.
    pub(super) fn take_inputs(&mut self, key: &ActivationKey) -> Vec<Token> {
        let Some(activation) = self.in_flight.get_mut(key) else { return Vec::new() };
        let mut inputs = std::mem::take(&mut activation.inputs);
        if inputs.capacity() > SPARE {
            return Vec::new();
        }
        inputs.clear();
        inputs
    }

    /// Keeps the memory of an ended activation's inputs for the next tokens.
    pub(super) fn reuse(&mut self, mut inputs: Vec<Token>) {
        if inputs.capacity() <= SPARE {
            inputs.clear();
            self.spare = inputs;
        }
    }

    /// Keeps an activation that failed the run, for a retry.
    pub(super) fn stop(&mut self, key: ActivationKey, activation: Activation) {
        self.stopped_at.push((key, activation));
    }

    pub(super) fn take_stopped(&mut self) -> Vec<(ActivationKey, Activation)> {
        std::mem::take(&mut self.stopped_at)
    }

    /// Adds a token at a node. `way` is its edge in the plan.
    pub(super) fn put(&mut self, to: Local, token: Token, way: Option<LiveEdge>) {
        if let (Some(way), Some(live)) = (way, &mut self.live) {
            live.arrived(way.to, way.back);
        }
        match self.tokens.get_mut(&to) {
            Some(tokens) => tokens.push(token),
            None => {
                let mut tokens = std::mem::take(&mut self.spare);
                tokens.push(token);
                self.tokens.insert(to, tokens);
            }
        }
    }

    /// Takes all waiting tokens of a node, or returns `None`.
    pub(super) fn take_tokens(&mut self, node: Local, at: Option<NodeIx>) -> Option<Vec<Token>> {
        let tokens = self.tokens.remove(&node)?;
        if let (Some(at), Some(live)) = (at, &mut self.live) {
            live.take(at);
        }
        Some(tokens)
    }

    /// Drops the tokens that `from` has just sent to `to`.
    pub(super) fn drop_last(&mut self, from: Local, to: Local, way: Option<LiveEdge>) {
        let Some(waiting) = self.tokens.get_mut(&to) else { return };
        let visit = waiting.last().map(|token| token.visit);
        let kept =
            waiting.iter().rposition(|t| t.from != from || Some(t.visit) != visit).map_or(0, |at| at + 1);
        let dropped = waiting.len() - kept;
        waiting.truncate(kept);
        if waiting.is_empty() {
            self.tokens.remove(&to);
        }
        if let (Some(way), Some(live)) = (way, &mut self.live) {
            (0..dropped).for_each(|_| live.used(way.to, way.back));
        }
    }

    pub(super) fn overwrite(&mut self, channel: String, overwrite: Overwrite) {
        self.overwrites.insert(channel, overwrite);
    }

    /// Drops the overwrites that every activation has seen.
    pub(super) fn drop_seen_overwrites(&mut self) {
        if self.in_flight.is_empty() {
            self.overwrites.clear();
        }
    }

    /// Holds back the successors of an ended activation until an answer releases them.
    pub(super) fn hold_successors(&mut self, key: ActivationKey) {
        self.holds.insert(key);
    }

    pub(super) fn release_successors(&mut self, key: &ActivationKey) {
        self.holds.remove(key);
    }

    /// Marks a future activation as started.
    pub(super) fn mark_begun(&mut self, key: ActivationKey) {
        self.begun.insert(key);
    }

    /// Returns whether the activation had started before, and drops the mark.
    pub(super) fn take_begun(&mut self, key: &ActivationKey) -> bool {
        self.begun.remove(key)
    }

    /// Drops all activations and tokens. The marks of activations that had started according to lost records are retained.
    pub(super) fn clear(&mut self, live: Option<Liveness>) {
        let begun = std::mem::take(&mut self.begun);
        *self = Self { begun, live, ..Self::default() };
    }

    /// Splits the frontier into its parts for another run: the unfinished activations, the activations that failed the run, and the tokens.
    pub(super) fn take_apart(&mut self, live: Option<Liveness>) -> FrontierParts {
        let old = std::mem::take(self);
        (self.live, self.overwrites, self.holds) = (live, old.overwrites, old.holds);
        FrontierParts { in_flight: old.in_flight, stopped_at: old.stopped_at, tokens: old.tokens }
    }
}

/// The parts of a frontier.
pub(super) struct FrontierParts {
    pub(super) in_flight: FewMap<ActivationKey, Activation>,
    pub(super) stopped_at: Vec<(ActivationKey, Activation)>,
    pub(super) tokens: FewMap<Local, Vec<Token>>,
}
