//! The trait [`OutboxSink`], which applications implement to deliver outbox messages, and the message that a sink receives.

use crate::claim::StartId;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::engine::outbox::UndeliveredMessage;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, RunKey, Visit};

/// A message that a node sent out of its run and that is not delivered yet.
#[derive(Clone)]
#[non_exhaustive]
pub struct OutboxMessage {
    /// The run that sent the message.
    pub run: RunKey,
    /// The number of the message in its run, counted from 1 in the order of the records.
    pub number: u64,
    /// The topic, which selects the sink.
    pub topic: Arc<str>,
    /// The node that sent the message.
    pub node: NodeName,
    /// The visit in which the node sent the message.
    pub visit: Visit,
    /// The time at which that node ended, by the clock of its process.
    pub sent: Timestamp,
    /// The number of failed deliveries.
    pub tries: u32,
    /// The error of the last failed delivery.
    pub why: Option<String>,
    /// The time of the next attempt, if an earlier delivery failed.
    pub retry_at: Option<Timestamp>,
    /// Whether the message was rejected. A rejected message is delivered only after a call of
    /// [`Runtime::retry_outbox`](crate::runtime::Runtime::retry_outbox).
    pub is_dead: bool,
    pub(crate) start_id: StartId,
    payload: Arc<RawValue>,
}

impl OutboxMessage {
    pub(crate) fn new(run: &RunKey, start_id: StartId, posted: &UndeliveredMessage) -> Self {
        Self {
            run: run.clone(),
            number: posted.number,
            topic: Arc::clone(&posted.topic),
            node: posted.node.clone(),
            visit: posted.visit,
            sent: posted.at,
            tries: posted.tries,
            why: posted.why.clone(),
            retry_at: posted.retry_at,
            is_dead: posted.dead,
            start_id,
            payload: Arc::clone(&posted.payload),
        }
    }

    /// Returns the idempotency key of the message. Every delivery of the message by any process has the same key. No other message has this key, even
    /// in a later run with the same id.
    ///
    /// The key has the form `{start id}:{number}` and at most 56 bytes.
    pub fn key(&self) -> String {
        format!("{}:{}", self.start_id, self.number)
    }

    /// Returns the payload as JSON text.
    pub fn json(&self) -> &str {
        self.payload.get()
    }

    /// Parses the payload as type `T`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the payload is not of this type.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.json()).map_err(|source| {
            let message = format!(
                "the payload of outbox message {} is not of type {}",
                self.number,
                std::any::type_name::<T>()
            );
            Error::new(ErrorKind::Invalid, message).with_run(&self.run).with_source(source)
        })
    }
}

impl fmt::Debug for OutboxMessage {
    /// Formats the message without its payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outbox message {} of {} to {}", self.number, self.run, self.topic)
    }
}

/// The error of the delivery of a batch. It contains the number of messages that were delivered before the error.
#[derive(Debug)]
pub struct SinkError {
    pub(crate) taken: usize,
    pub(crate) why: String,
    pub(crate) is_final: bool,
}

impl SinkError {
    /// Creates an error which says that no message of the batch was delivered. The delivery is retried.
    pub fn new(why: impl fmt::Display) -> Self {
        Self { taken: 0, why: why.to_string(), is_final: false }
    }

    /// Sets the number of messages that were delivered before the message that failed.
    #[must_use]
    pub fn after(mut self, letters: usize) -> Self {
        self.taken = letters;
        self
    }

    /// Marks the failed message as permanently rejected. The message is set aside at once, and the delivery continues with the next message.
    #[must_use]
    pub fn refused(mut self) -> Self {
        self.is_final = true;
        self
    }
}

impl<E: std::error::Error> From<E> for SinkError {
    /// Copies the text of the error and of its causes.
    fn from(error: E) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            why = format!("{why}: {error}");
            cause = error.source();
        }
        Self::new(why)
    }
}

/// Code of the application that delivers the outbox messages of one topic, for example to a message broker or a webhook.
///
/// Register a sink with [`RuntimeBuilder::sink`](crate::runtime::RuntimeBuilder::sink).
///
/// # Examples
///
/// ```
/// use ferrata_core::runtime::{OutboxMessage, OutboxSink, SinkError};
///
/// struct Printer;
///
/// #[async_trait::async_trait]
/// impl OutboxSink for Printer {
///     async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError> {
///         for letter in batch {
///             println!("{} {}", letter.key(), letter.json());
///         }
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait OutboxSink: Send + Sync + 'static {
    /// Delivers messages of one run and topic in order.
    ///
    /// An implementation must return only after the receiver has stored the messages durably, and must pass [`OutboxMessage::key`] to the receiver.
    /// After a crash, a lost reply or a timeout, messages are delivered again with the same keys. If the receiver ignores messages whose key it
    /// knows, it processes each message once. Calls for different runs may be concurrent. A process never makes two concurrent calls for one run. A
    /// call fails after 20 seconds.
    ///
    /// # Errors
    ///
    /// After an error, the messages that were not delivered are retried after a delay. If you return an error with `?`, it means that no message of
    /// the batch was delivered.
    ///
    /// # Cancel safety
    ///
    /// The runtime drops the future at its timeout, and when the runtime ends. The messages are then delivered again.
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError>;
}
