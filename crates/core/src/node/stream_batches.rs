//! The parts of an attempt that a durable stream needs: a name for the stream, and the channel to the driver of the run.

use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::context::{DriverRequest, NodeContext};
use crate::claim::ClaimId;
use crate::error::Result;

/// The permit for a batch of chunks. The driver returns the permit to the sender after it has accepted the batch. If the permit is dropped instead,
/// the sender learns that the driver accepts no further batches.
pub(crate) struct BatchTurn(Option<OwnedSemaphorePermit>);

impl BatchTurn {
    /// Returns the permit to the sender.
    pub(crate) fn return_permit(mut self) {
        self.0 = None;
    }
}

impl Drop for BatchTurn {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            permit.semaphore().close();
        }
    }
}

impl NodeContext {
    /// Claims the name of a stream for this attempt.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the name is in use or is not valid.
    pub(crate) fn claim_stream(&self, name: &str) -> Result<()> {
        self.claim(name.to_owned()).map(|_| ())
    }

    /// Returns the claim by which this process drives the run.
    pub(crate) fn claim_id(&self) -> ClaimId {
        self.scope.run.claim
    }

    /// Returns how often the activation has begun a stream before this attempt.
    pub(crate) fn rounds_of(&self, stream: &str) -> u32 {
        self.scope.memos.rounds_of(stream)
    }

    /// Sends a batch of a durable stream to the driver. The driver returns the permit `taken` when the batch has its position in the log.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Closed`](crate::ErrorKind::Closed) if this process no longer drives the run, or the attempt has ended.
    pub(crate) fn send_batch(
        &self,
        name: String,
        text: Box<RawValue>,
        taken: OwnedSemaphorePermit,
    ) -> Result<()> {
        self.check_not_over()?;
        let taken = BatchTurn(Some(taken));
        let command = DriverRequest::Chunks { by: self.scope.attempt_key, name, text, taken };
        self.scope.run.commands.send(command).map_err(|_| self.driver_gone_error())
    }
}
