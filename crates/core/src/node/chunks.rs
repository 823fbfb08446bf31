//! What a stream needs of the attempt that sends it: a name, and the way to the driver.

use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::context::{Command, NodeContext};
use crate::error::Result;
use crate::id::Epoch;

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
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the run is no longer driven here.
    pub(crate) fn hand_over(
        &self,
        name: String,
        text: Box<RawValue>,
        taken: OwnedSemaphorePermit,
    ) -> Result<()> {
        let command = Command::Chunks { by: self.scope.attempt_key, name, text, taken };
        self.scope.run.commands.send(command).map_err(|_| self.gone())
    }
}
