//! Operator requests for outbox messages.

use super::OutboxMessage;
use crate::error::Result;
use crate::id::RunKey;
use crate::past::folded_at;
use crate::record::body::SignalKind;
use crate::record::outbox::LetterChange;
use crate::runtime::requests::SignalRequest;
use crate::runtime::runtime::Runtime;
use crate::store::At;

/// Outbox messages.
impl Runtime {
    /// Lists the undelivered outbox messages of a run in order, including rejected ones.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the run does not exist. Store errors pass through.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn outbox(&self, run: &RunKey) -> Result<Vec<OutboxMessage>> {
        let machine = folded_at(&**self.store(), run, At::Latest, None).await?.machine;
        let waiting = machine.letters().map_or(&[][..], |letters| letters.waiting());
        Ok(waiting.iter().map(|posted| OutboxMessage::new(run, machine.generation(), posted)).collect())
    }

    /// Retries rejected messages; all of the run's if `numbers` is empty. A process that has their sink and serves a workflow delivers them at its
    /// next poll. If the caller is in the process that drives the run, delivery starts at once, unless an earlier message of the topic waits for
    /// its next attempt. Later messages may have been delivered before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the run does not exist, or no rejected message has this number.
    pub fn retry_outbox(&self, run: &RunKey, numbers: &[u64]) -> SignalRequest {
        let change = Box::new(LetterChange::Retry { numbers: numbers.to_vec() });
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Letters { life: None, change }))
    }

    /// Drops messages, so that they are not delivered any more. If `numbers` is empty, drops all rejected messages of the run. Otherwise drops the
    /// listed messages, rejected or not. A message whose delivery is in progress may still arrive, and so may messages in the same batch or
    /// directly after it. A message that waits for its next attempt does not arrive.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the run does not exist, or no waiting message has this number.
    pub fn drop_outbox(&self, run: &RunKey, numbers: &[u64]) -> SignalRequest {
        let change = Box::new(LetterChange::Drop { numbers: numbers.to_vec() });
        SignalRequest::new(self.shared(), run, Ok(SignalKind::Letters { life: None, change }))
    }
}
