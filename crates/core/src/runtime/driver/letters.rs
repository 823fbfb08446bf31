//! Letters of a run that goes on here: handed in for delivery once their record is durable.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::{RunDriver, signal};
use crate::error::Result;
use crate::id::Seq;
use crate::record::body::{Signal, SignalKind};
use crate::record::letter::LetterChange;
use crate::runtime::post;
use crate::state::State;

/// What is on its way.
#[derive(Default)]
pub(super) struct OutboxSend {
    /// Up to which letter records were made.
    noted: u64,
    /// Records that are not durable, each with the last letter in it.
    written: VecDeque<(Seq, u64)>,
    /// What became of letters, while a transaction is open.
    deferred: VecDeque<(Signal, oneshot::Sender<Result<()>>)>,
}

impl<S: State> RunDriver<S> {
    fn sent(&self) -> u64 {
        self.machine.letters().map_or(0, |letters| letters.sent())
    }

    /// Notes which record holds the letters that were absorbed.
    pub(super) fn note_sent(&mut self) {
        let sent = self.sent();
        let noted = self.journal.sending.as_ref().map_or(0, |sending| sending.noted);
        if sent > noted
            && let Some(seq) = self.journal.holding_all()
        {
            let sending = self.journal.sending.get_or_insert_default();
            sending.noted = sent;
            sending.written.push_back((seq, sent));
        }
    }

    /// Hands in the letters of records that have become durable.
    pub(super) fn hand_in_durable(&mut self, durable: Seq) {
        let Some(sending) = &mut self.journal.sending else { return };
        let mut to = None;
        while let Some((_, sent)) = sending.written.front().copied().filter(|(seq, _)| *seq <= durable) {
            sending.written.pop_front();
            to = Some(sent);
        }
        if let Some(to) = to {
            post::hand_in(&self.shared, self.journal.run(), &self.machine, to);
        }
    }

    /// Hands in all letters of the log, which the machine has just been made of.
    pub(super) fn hand_in_all(&mut self) {
        let sent = self.sent();
        if sent > 0 || self.journal.sending.is_some() {
            let sending = self.journal.sending.get_or_insert_default();
            sending.noted = sent;
            sending.written.clear();
        }
        if self.machine.is_delivering() {
            post::hand_in(&self.shared, self.journal.run(), &self.machine, sent);
        }
    }

    /// Returns the number of the last letter that was put aside, if an operator has such letters delivered after all.
    pub(super) fn put_aside(&self, what: &SignalKind) -> Option<u64> {
        let SignalKind::Letters { change, .. } = what else { return None };
        let letters = self.machine.letters().filter(|_| matches!(**change, LetterChange::Retry { .. }))?;
        letters.waiting().iter().rfind(|letter| letter.dead).map(|letter| letter.number)
    }

    /// Whether a signal is to wait: what became of letters breaks no transaction off.
    pub(super) fn is_deferred(&self, signal: &Signal) -> bool {
        matches!(signal.what, SignalKind::Letters { .. }) && self.has_transaction()
    }

    pub(super) fn defer(&mut self, signal: Signal, reply: oneshot::Sender<Result<()>>) {
        self.journal.sending.get_or_insert_default().deferred.push_back((signal, reply));
    }

    pub(super) fn has_deferred(&self) -> bool {
        self.journal.sending.as_ref().is_some_and(|sending| !sending.deferred.is_empty())
    }

    /// Takes in what became of letters while a transaction was open.
    pub(super) async fn take_in_deferred(&mut self) -> Result<()> {
        while !self.has_transaction()
            && let Some((signal, reply)) =
                self.journal.sending.as_mut().and_then(|sending| sending.deferred.pop_front())
        {
            signal::reply_to_signaller(Box::pin(self.signal(signal)).await, reply)?;
        }
        Ok(())
    }
}
