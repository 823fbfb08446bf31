//! Letters of a run that goes on here: handed in for delivery once their record is durable.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::{Driver, signal};
use crate::error::Result;
use crate::id::Seq;
use crate::record::body::{Signal, SignalKind};
use crate::runtime::post;
use crate::state::State;

/// What is on its way.
#[derive(Default)]
pub(super) struct Sending {
    /// Up to which letter records were made.
    noted: u64,
    /// Records that are not durable, each with the last letter in it.
    written: VecDeque<(Seq, u64)>,
    /// What became of letters, while a transaction is open.
    deferred: Vec<(Signal, oneshot::Sender<Result<()>>)>,
}

impl<S: State> Driver<S> {
    fn sent(&self) -> u64 {
        self.machine.letters().map_or(0, |letters| letters.sent())
    }

    /// Notes which record holds the letters that were absorbed.
    pub(super) fn note_sent(&mut self) {
        let sent = self.sent();
        if sent > self.journal.sending.noted
            && let Some(seq) = self.journal.holding_all()
        {
            self.journal.sending.noted = sent;
            self.journal.sending.written.push_back((seq, sent));
        }
    }

    /// Hands in the letters of records that have become durable.
    pub(super) fn hand_in_durable(&mut self, durable: Seq) {
        let mut to = None;
        while let Some(&(seq, sent)) = self.journal.sending.written.front()
            && seq <= durable
        {
            self.journal.sending.written.pop_front();
            to = Some(sent);
        }
        if let Some(to) = to {
            post::hand_in(&self.shared, self.journal.run(), &self.machine, to);
        }
    }

    /// Hands in all letters of the log, which the machine has just been made of.
    pub(super) fn hand_in_all(&mut self) {
        let sent = self.sent();
        self.journal.sending.noted = sent;
        self.journal.sending.written.clear();
        if self.machine.is_delivering() {
            post::hand_in(&self.shared, self.journal.run(), &self.machine, sent);
        }
    }

    /// Whether a signal is to wait: what became of letters breaks no transaction off.
    pub(super) fn is_deferred(&self, signal: &Signal) -> bool {
        matches!(signal.what, SignalKind::Letters { .. }) && self.has_transaction()
    }

    pub(super) fn defer(&mut self, signal: Signal, reply: oneshot::Sender<Result<()>>) {
        self.journal.sending.deferred.push((signal, reply));
    }

    /// Takes in what became of letters while a transaction was open.
    pub(super) async fn take_in_deferred(&mut self) -> Result<()> {
        while !(self.journal.sending.deferred.is_empty() || self.has_transaction()) {
            let (signal, reply) = self.journal.sending.deferred.remove(0);
            signal::reply_to_signaller(Box::pin(self.signal(signal)).await, reply)?;
        }
        Ok(())
    }
}
