//! Waiting messages of a run.

use serde::de::DeserializeOwned;

use crate::clock::Timestamp;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::record::body::SignalKind;

/// A waiting message of a run: see [`Runtime::inbox`](super::Runtime::inbox).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The number of messages sent to the run before it. Events and records identify the message by it.
    pub number: u64,
    /// The content, as JSON text.
    pub body: String,
    /// The sender, if named.
    pub by: Option<String>,
    /// The time of sending, by the sender's clock.
    pub at: Timestamp,
}

impl Message {
    /// Deserializes the message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the message is of another type.
    pub fn read<M: DeserializeOwned>(&self) -> Result<M> {
        serde_json::from_str(&self.body).map_err(|source| {
            let message = format!("message {} is not of type {}", self.number, std::any::type_name::<M>());
            Error::new(ErrorKind::Invalid, message).with_source(source)
        })
    }
}

impl std::fmt::Debug for Message {
    /// Omits the content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("number", &self.number)
            .field("bytes", &self.body.len())
            .field("by", &self.by)
            .field("at", &self.at)
            .finish()
    }
}

/// Rejects a message if the run is at its limit. Every load of the run reads all waiting messages.
pub(crate) fn check_room(machine: &Machine, what: &SignalKind, most: usize) -> Result<()> {
    let waiting = machine.inbox().len();
    if !matches!(what, SignalKind::Message { .. }) || waiting < most {
        return Ok(());
    }
    let message = format!(
        "{waiting} messages wait in the run, and at most {most} are allowed; send again after a node has received some, or raise \
         `max_waiting_messages`"
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Returns the waiting messages, oldest first.
pub(crate) fn inbox(machine: &Machine) -> Vec<Message> {
    let message = |message: &crate::record::pause::MessageRecord| Message {
        number: message.number,
        body: message.body.get().to_owned(),
        by: message.by.clone(),
        at: message.at,
    };
    machine.inbox().iter().map(message).collect()
}
