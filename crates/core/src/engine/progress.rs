//! How far a run has come: what has ended, what was made, and when it last went on.

use std::collections::VecDeque;

use super::history::EndedActivation;
use super::replan::{KEPT, Replan};
use crate::record::body::{Event, StatusChange};

/// How far a run has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// How many activations have ended.
    tick: u64,
    /// How many activations were made.
    started: u64,
    history: Vec<EndedActivation>,
    /// The latest replans, with their reasons.
    replans: VecDeque<Replan>,
    /// How many claims there were since the run last made any progress.
    claims: u32,
}

impl Progress {
    /// Makes that of a run which a base describes.
    pub(super) fn restore(
        (tick, started): (u64, u64),
        claims: u32,
        history: Vec<EndedActivation>,
        replans: VecDeque<Replan>,
    ) -> Self {
        Self { tick, started, history, replans, claims }
    }

    pub(super) fn tick(&self) -> u64 {
        self.tick
    }

    pub(super) fn started(&self) -> u64 {
        self.started
    }

    pub(super) fn history(&self) -> &[EndedActivation] {
        &self.history
    }

    pub(super) fn replans(&self) -> &VecDeque<Replan> {
        &self.replans
    }

    pub(super) fn claims_without_progress(&self) -> u32 {
        self.claims
    }

    /// Counts a claim, or takes an event for progress.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Claim(_) => self.claims = self.claims.saturating_add(1),
            // A retry that is to come uses up an attempt of its policy: what the claim was for has been done.
            Event::Attempt(attempt) if attempt.retry_at.is_some() => self.claims = 0,
            // A process that ends in order has not been ended by the run: the claim is not held against it.
            Event::Release(released) if released.orderly => self.claims = self.claims.saturating_sub(1),
            // A rest is no progress: a claim that leads to nothing else must not be repeated for ever.
            Event::Attempt(_) | Event::Intent(_) | Event::Release(_) | Event::Base => {}
            Event::Status(StatusChange::Interrupted | StatusChange::Rested(_)) => {}
            _ => self.claims = 0,
        }
    }

    /// Counts an activation that was made.
    pub(super) fn start(&mut self) {
        self.started += 1;
    }

    /// Counts an activation that ended.
    pub(super) fn end(&mut self, ended: EndedActivation) {
        self.tick += 1;
        self.claims = 0;
        self.history.push(ended);
    }

    /// Keeps a replan, and drops the oldest where too many are kept.
    pub(super) fn replan(&mut self, replan: Replan) {
        self.replans.push_back(replan);
        if self.replans.len() > KEPT {
            self.replans.pop_front();
        }
    }

    /// Forgets how often the run was claimed, as a run that branches off does.
    pub(super) fn forget_claims(&mut self) {
        self.claims = 0;
    }
}
