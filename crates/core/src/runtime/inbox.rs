//! The messages that wait in a run until a node takes them.

use serde::de::DeserializeOwned;

use crate::clock::Timestamp;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::record::body::SignalKind;

/// A message that waits in a run until a node takes it. [`Runtime::inbox`](super::Runtime::inbox) lists these messages.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The number of the message in its run, counted from 0. Events and records identify the message by this number.
    pub number: u64,
    /// The content of the message, as JSON text.
    pub body: String,
    /// The sender, if the caller of `send` named one.
    pub by: Option<String>,
    /// The time when the message was sent, by the sender's clock.
    pub at: Timestamp,
}

impl Message {
    /// Deserializes the content of the message.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the content is not of type `M`.
    pub fn read<M: DeserializeOwned>(&self) -> Result<M> {
        serde_json::from_str(&self.body).map_err(|source| {
            let message = format!("message {} is not of type {}", self.number, std::any::type_name::<M>());
            Error::new(ErrorKind::Invalid, message).with_source(source)
        })
    }
}

impl std::fmt::Debug for Message {
    /// Formats the message without its content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("number", &self.number)
            .field("bytes", &self.body.len())
            .field("by", &self.by)
            .field("at", &self.at)
            .finish()
    }
}

/// Returns an error for a new message if the run has its maximum number of waiting messages. There is such a limit because every load of the run
/// reads all waiting messages.
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
