//! Applies the end of an activation to the machine: fired edges arrive at their targets, activations start, and the run continues or ends.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Machine, not_in_flight};
use crate::engine::frontier::{Activation, ActivationKey, Local, Overwrite, Token};
use crate::engine::history::{ActivationOutcome, EndedActivation};
use crate::engine::nodes::never_reached;
use crate::error::Result;
use crate::id::Visit;
use crate::record::body::{ActivationStart, FiredEdge, NodeDone, RunEnd, TokenChanges};

impl Machine {
    /// Applies the end of an activation to the machine.
    pub(super) fn end(&mut self, done: &NodeDone) -> Result<()> {
        // Mostly it is the only one.
        let first = self.in_flight().first().map(|(&(node, _), _)| node);
        let node = match first.filter(|&node| *self.name(node) == done.node) {
            Some(node) => node,
            None => self.nodes.known(&done.node)?,
        };
        let key = (node, done.visit);
        if self.step_on(key, done) {
            return Ok(());
        }
        self.end_in_general(key, done)
    }

    pub(super) fn end_in_general(&mut self, key: ActivationKey, done: &NodeDone) -> Result<()> {
        let node = key.0;
        if let Some(failure) = done.failure.as_ref().filter(|_| done.cleanup) {
            self.standing.fail_cleanup(&failure.message);
        }
        let ended = self.frontier.end(&key, self.nodes.index(node));
        let mut activation = ended.ok_or_else(|| not_in_flight(&done.node, done.visit))?;
        if done.end.is_none() {
            self.frontier.reuse(std::mem::take(&mut activation.inputs));
        }
        self.count_end(key, done);
        for (place, fired) in done.fired.iter().enumerate() {
            self.fire(node, done, fired, place);
        }
        for name in &done.dropped {
            let to = self.nodes.known(name)?;
            self.frontier.drop_last(node, to, self.nodes.edge_between(node, to));
        }
        self.note_replans(done);
        if !done.letters.is_empty() {
            self.letters.get_or_insert_default().post(done);
        }
        for name in &done.skipped {
            let skipped = self.nodes.local(name);
            self.nodes.state_mut(skipped).skipped = true;
        }
        for channel in &done.wrote {
            let overwrite = Overwrite { tick: self.ended_count(), node, visit: done.visit };
            self.frontier.overwrite(channel.clone(), overwrite);
        }
        self.begin(&done.settled, node, &done.fired)?;
        self.frontier.drop_seen_overwrites();
        if done.hold {
            self.frontier.hold_successors(key);
        }
        match &done.end {
            None => {}
            Some(RunEnd::Completed) => self.standing.complete(),
            Some(RunEnd::Failed(failure)) => {
                // A failure on an `on_failure` edge is handled: only its token remains.
                if done.failure.is_some() && done.fired.is_empty() {
                    let activation = Activation { retry_at: None, ..activation };
                    self.frontier.stop(key, activation.stopped(failure));
                }
                self.standing.fail(failure.clone());
            }
        }
        Ok(())
    }

    /// Counts an ended activation.
    pub(super) fn count_end(&mut self, (node, visit): ActivationKey, done: &NodeDone) {
        let succeeded = done.failure.is_none();
        let outcome = if succeeded { ActivationOutcome::Succeeded } else { ActivationOutcome::Failed };
        self.progress.end(EndedActivation { node, visit, outcome });
        let state = self.nodes.state_mut(node);
        state.succeeded = Some(succeeded);
        state.left += u32::from(done.left);
    }

    /// Counts a new activation, and returns its key.
    pub(super) fn count_start(&mut self, node: Local) -> ActivationKey {
        self.progress.start();
        let state = self.nodes.state_mut(node);
        state.visits += 1;
        state.skipped = false;
        (node, Visit::new(state.visits))
    }

    /// Stores the replans of an ended activation in the machine.
    fn note_replans(&mut self, done: &NodeDone) {
        if done.fired.iter().all(|fired| fired.reason.is_none()) {
            return;
        }
        for replan in self.replans_of(done) {
            self.nodes.state_mut(replan.to).replans += 1;
            self.progress.add_replan(replan);
        }
    }

    /// Sends the tokens of a fired edge to the target of the edge. `place` is the index of the edge among the fired edges.
    fn fire(&mut self, from: Local, done: &NodeDone, fired: &FiredEdge, place: usize) {
        let to = self.nodes.find_after(from, &fired.to, place);
        let to = to.unwrap_or_else(|| self.nodes.local(&fired.to));
        if fired.back {
            self.nodes.state_mut(to).returned += 1;
        }
        match &fired.items {
            None => self.put(to, token(from, done, None)),
            Some(items) => {
                items.iter().for_each(|item| self.put(to, token(from, done, Some(Arc::clone(&item.0)))));
            }
        }
    }

    /// Adds a token at a node.
    pub(super) fn put(&mut self, to: Local, token: Token) {
        let way = self.nodes.edge_between(token.from, to);
        self.frontier.put(to, token, way);
    }

    /// Creates activations from tokens. If the record has no list of starts, the tokens of the edges in `fired` start their targets.
    pub(super) fn begin(&mut self, settled: &TokenChanges, from: Local, fired: &[FiredEdge]) -> Result<()> {
        match &settled.start {
            Some(starts) => {
                for start in starts {
                    let node = self.nodes.known(start.node())?;
                    self.join(node, matches!(start, ActivationStart::Each { .. }));
                }
            }
            None => {
                for (place, fired) in fired.iter().enumerate() {
                    let node = self.nodes.find_after(from, &fired.to, place);
                    self.join(node.ok_or_else(|| never_reached(&fired.to))?, false);
                }
            }
        }
        for (names, spent) in [(&settled.spent, true), (&settled.fresh, false)] {
            for name in names {
                let node = self.nodes.known(name)?;
                self.nodes.set_spent(node, spent);
            }
        }
        Ok(())
    }

    /// Creates activations from the waiting tokens of a node, if there are any.
    fn join(&mut self, node: Local, each: bool) {
        let Some(tokens) = self.frontier.take_tokens(node, self.nodes.index(node)) else { return };
        if !each && tokens.iter().all(|token| token.item.is_none()) {
            self.activate(node, None, tokens);
            return;
        }
        let mut joined = Vec::new();
        for token in tokens {
            if token.item.is_some() || each {
                let item = token.item.clone();
                self.activate(node, item, vec![token]);
            } else {
                joined.push(token);
            }
        }
        if !joined.is_empty() {
            self.activate(node, None, joined);
        }
    }

    /// Creates an activation.
    pub(super) fn activate(&mut self, node: Local, item: Option<Arc<RawValue>>, inputs: Vec<Token>) {
        let key = self.count_start(node);
        let mut activation = Activation::new(self.ended_count(), item, inputs);
        if self.frontier.take_begun(&key) {
            (activation.intent, activation.in_doubt) = (true, true);
        }
        self.frontier.start(key, activation, self.nodes.index(node));
        self.fresh.push(key);
    }
}

pub(super) fn token(from: Local, done: &NodeDone, item: Option<Arc<RawValue>>) -> Token {
    Token { from, visit: done.visit, output: done.output.clone(), item }
}
