//! The counters of a run: ended and created activations, replans, and claims without progress.

use std::collections::VecDeque;

use super::history::EndedActivation;
use super::replan::{KEPT, Replan};
use crate::record::body::{RecordEvent, StatusChange};

/// The counters that describe the progress of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunProgress {
    /// Number of ended activations.
    tick: u64,
    /// Number of created activations.
    started: u64,
    history: Vec<EndedActivation>,
    /// The latest replans, with their reasons.
    replans: VecDeque<Replan>,
    /// Number of claims since the last progress.
    claims: u32,
}

impl RunProgress {
    /// Restores the progress from a base.
    pub(super) fn restore(
        (tick, started): (u64, u64),
        claims: u32,
        history: Vec<EndedActivation>,
        replans: VecDeque<Replan>,
    ) -> Self {
        Self { tick, started, history, replans, claims }
    }

    pub(super) fn ended_count(&self) -> u64 {
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

    /// Counts a claim. If the event is progress of the run, the count of claims starts again at 0.
    pub(super) fn count_event(&mut self, event: &RecordEvent) {
        match event {
            RecordEvent::Claim(_) => self.claims = self.claims.saturating_add(1),
            // A scheduled retry uses an attempt of its policy, so the claim had an effect.
            RecordEvent::Attempt(attempt) if attempt.retry_at.is_some() => self.claims = 0,
            // The run did not kill a process that ends in order, so the claim does not count.
            RecordEvent::Release(released) if released.orderly => self.claims = self.claims.saturating_sub(1),
            // Becoming idle is no progress: a claim without any other effect must not repeat forever.
            RecordEvent::Attempt(_)
            | RecordEvent::Intent(_)
            | RecordEvent::Release(_)
            | RecordEvent::Base => {}
            RecordEvent::Status(StatusChange::Interrupted | StatusChange::Rested(_)) => {}
            _ => self.claims = 0,
        }
    }

    /// Counts a created activation.
    pub(super) fn start(&mut self) {
        self.started += 1;
    }

    /// Counts an ended activation.
    pub(super) fn end(&mut self, ended: EndedActivation) {
        self.tick += 1;
        self.claims = 0;
        self.history.push(ended);
    }

    /// Stores a replan, and drops the oldest one above the limit.
    pub(super) fn add_replan(&mut self, replan: Replan) {
        self.replans.push_back(replan);
        if self.replans.len() > KEPT {
            self.replans.pop_front();
        }
    }

    /// Resets the number of claims, for a fork.
    pub(super) fn reset_claims(&mut self) {
        self.claims = 0;
    }
}
