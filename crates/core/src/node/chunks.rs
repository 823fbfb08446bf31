//! What a stream needs of the attempt that sends it: a name, and the way to the driver.

use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::context::{Command, NodeContext};
use crate::error::Result;
use crate::id::Epoch;

/// The turn of a batch, which comes back to its sender when the driver has taken the batch in. Dropped before, it comes to nobody: the sender learns
/// that nothing more is taken.
pub(crate) struct BatchTurn(Option<OwnedSemaphorePermit>);

impl BatchTurn {
    /// Gives the turn back.
    pub(crate) fn give_back(mut self) {
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
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it is taken, or is no name.
    pub(crate) fn claim_stream(&self, name: &str) -> Result<()> {
        self.claim(name.to_owned()).map(|_| ())
    }

    /// Returns which life of the run this is, and which claim of it.
    pub(crate) fn life_and_epoch(&self) -> (Uuid, Epoch) {
        (self.scope.run.life, self.scope.run.epoch)
    }

    /// Returns how often the activation has begun a stream before this attempt.
    pub(crate) fn rounds_of(&self, stream: &str) -> u32 {
        self.scope.memos.rounds_of(stream)
    }

    /// Hands a batch of a durable stream over to the driver, which gives `taken` back once it is in the log's order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the run is no longer driven here, or the attempt has ended.
    pub(crate) fn hand_over(
        &self,
        name: String,
        text: Box<RawValue>,
        taken: OwnedSemaphorePermit,
    ) -> Result<()> {
        self.check_not_over()?;
        let taken = BatchTurn(Some(taken));
        let command = Command::Chunks { by: self.scope.attempt_key, name, text, taken };
        self.scope.run.commands.send(command).map_err(|_| self.gone())
    }
}
