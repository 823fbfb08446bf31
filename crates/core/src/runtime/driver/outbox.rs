//! Passes the outbox messages of an active run to their sinks after the records of the messages are durable.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::{RunDriver, signal};
use crate::error::Result;
use crate::id::Seq;
use crate::record::body::{Signal, SignalKind};
use crate::record::outbox::LetterChange;
use crate::runtime::outbox;
use crate::state::State;

/// Outbox messages in records that are not durable yet, and deferred signals about messages.
#[derive(Default)]
pub(super) struct OutboxSend {
    /// The number of the last message that is in a record.
    noted: u64,
    /// The records that are not durable yet, each with the number of its last message.
    written: VecDeque<(Seq, u64)>,
    /// Delivery results that arrived while a transaction is open.
    deferred: VecDeque<(Signal, oneshot::Sender<Result<()>>)>,
}

impl<S: State> RunDriver<S> {
    fn sent_count(&self) -> u64 {
        self.machine.letters().map_or(0, |letters| letters.sent_count())
    }

    /// Remembers which record contains the absorbed messages.
    pub(super) fn mark_sent_messages(&mut self) {
        let sent = self.sent_count();
        let noted = self.journal.sending.as_ref().map_or(0, |sending| sending.noted);
        if sent > noted
            && let Some(seq) = self.journal.holding_all()
        {
            let sending = self.journal.sending.get_or_insert_default();
            sending.noted = sent;
            sending.written.push_back((seq, sent));
        }
    }

    /// Passes the messages of records that became durable to the tasks that deliver them.
    pub(super) fn deliver_durable(&mut self, durable: Seq) {
        let Some(sending) = &mut self.journal.sending else { return };
        let mut to = None;
        while let Some((_, sent)) = sending.written.front().copied().filter(|(seq, _)| *seq <= durable) {
            sending.written.pop_front();
            to = Some(sent);
        }
        if let Some(to) = to {
            outbox::queue_messages(&self.shared, self.journal.run(), &self.machine, to);
        }
    }

    /// Passes all messages of the run to the tasks that deliver them, after the machine was rebuilt from the log.
    pub(super) fn deliver_all(&mut self) {
        let sent = self.sent_count();
        if sent > 0 || self.journal.sending.is_some() {
            let sending = self.journal.sending.get_or_insert_default();
            sending.noted = sent;
            sending.written.clear();
        }
        if self.machine.is_delivering() {
            outbox::queue_messages(&self.shared, self.journal.run(), &self.machine, sent);
        }
    }

    /// Returns the number of the last rejected message, if an operator retries rejected messages.
    pub(super) fn last_rejected(&self, what: &SignalKind) -> Option<u64> {
        let SignalKind::Letters { change, .. } = what else { return None };
        let letters = self.machine.letters().filter(|_| matches!(**change, LetterChange::Retry { .. }))?;
        letters.waiting().iter().rfind(|letter| letter.dead).map(|letter| letter.number)
    }

    /// Returns whether a signal must wait. The result of a delivery waits while a transaction is open, because it must not abort the transaction.
    pub(super) fn is_deferred(&self, signal: &Signal) -> bool {
        matches!(signal.what, SignalKind::Letters { .. }) && self.has_transaction()
    }

    pub(super) fn defer(&mut self, signal: Signal, reply: oneshot::Sender<Result<()>>) {
        self.journal.sending.get_or_insert_default().deferred.push_back((signal, reply));
    }

    pub(super) fn has_deferred(&self) -> bool {
        self.journal.sending.as_ref().is_some_and(|sending| !sending.deferred.is_empty())
    }

    /// Handles delivery results that arrived while a transaction was open.
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
