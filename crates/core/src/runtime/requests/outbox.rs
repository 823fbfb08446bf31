//! Methods by which an operator lists, retries and drops outbox messages.

use crate::error::Result;
use crate::id::RunKey;
use crate::kernel::outbox::OutboxMessage;
use crate::past::folded_at;
use crate::record::body::SignalKind;
use crate::record::outbox::LetterChange;
use crate::runtime::runtime::Runtime;
use crate::runtime::signals::signal::SignalRequest;
use crate::store::At;

/// Methods for outbox messages.
impl Runtime {
    /// Lists the outbox messages of a run that are not delivered, in order. The list includes rejected messages.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the run does not exist, and the errors of the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn outbox(&self, run: &RunKey) -> Result<Vec<OutboxMessage>> {
        let machine = folded_at(&**self.store(), run, At::Latest, None).await?.machine;
        let waiting = machine.letters().map_or(&[][..], |letters| letters.waiting());
        Ok(waiting.iter().map(|posted| OutboxMessage::new(run, machine.start_id(), posted)).collect())
    }

    /// Retries the rejected messages with these `numbers`, or all rejected messages of the run if `numbers` is empty. A process that has a sink for
    /// the topic and serves a workflow delivers the messages at its next poll. If this process drives the run, the delivery starts at once, unless an
    /// earlier message of the topic waits for its next attempt. A retried message may arrive after messages that were sent later.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the run does not exist, or if no rejected message has one of the numbers.
    pub fn retry_outbox(&self, run: &RunKey, numbers: &[u64]) -> SignalRequest {
        let change = Box::new(LetterChange::Retry { numbers: numbers.to_vec() });
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Letters { start_id: None, change }))
    }

    /// Drops messages, so that they are not delivered. If `numbers` is empty, all rejected messages of the run are dropped. Otherwise the messages
    /// with these numbers are dropped, whether they were rejected or not. If the delivery of a message is in progress, this message may still arrive,
    /// and so may other messages in the same batch or directly after it. A message that waits for its next attempt does not arrive.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the run does not exist, or if no undelivered message has one of the numbers.
    pub fn drop_outbox(&self, run: &RunKey, numbers: &[u64]) -> SignalRequest {
        let change = Box::new(LetterChange::Drop { numbers: numbers.to_vec() });
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Letters { start_id: None, change }))
    }
}
