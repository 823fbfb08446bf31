//! What applications implement to take letters, and the letter as they see it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::engine::letters::UndeliveredMessage;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, RunKey, Visit};

/// What a node sent out of its run, and no outlet has taken yet.
#[derive(Clone)]
#[non_exhaustive]
pub struct OutboxMessage {
    /// The run that sent it.
    pub run: RunKey,
    /// Its number among the letters of the run, from 1: the order in which they were recorded.
    pub number: u64,
    /// Which outlet takes it.
    pub topic: Arc<str>,
    /// The node that sent it.
    pub node: NodeName,
    /// Which visit of that node.
    pub visit: Visit,
    /// When that node ended, by the clock of its process.
    pub sent: Timestamp,
    /// How often its outlet did not take it.
    pub tries: u32,
    /// Why the last time.
    pub why: Option<String>,
    /// When it is tried again, if it failed before.
    pub retry_at: Option<Timestamp>,
    /// Whether it was put aside: only [`Runtime::retry_letters`](crate::runtime::Runtime::retry_letters) delivers it.
    pub is_dead: bool,
    pub(super) life: Uuid,
    payload: Arc<RawValue>,
}

impl OutboxMessage {
    pub(crate) fn new(run: &RunKey, life: Uuid, posted: &UndeliveredMessage) -> Self {
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
            life,
            payload: Arc::clone(&posted.payload),
        }
    }

    /// Returns a key that is the same each time this letter is delivered, by whichever process, and that no other letter has, also
    /// of another run of the same name after a purge.
    ///
    /// Text of the form `{life of the run}:{number}`, at most 56 bytes.
    pub fn key(&self) -> String {
        format!("{}:{}", self.life, self.number)
    }

    /// Returns the payload as JSON text.
    pub fn json(&self) -> &str {
        self.payload.get()
    }

    /// Reads the payload.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is not of this type.
    ///
    /// <!-- held by: letters::a_letter_is_delivered_after_its_record_and_the_delivery_is_recorded -->
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.json()).map_err(|source| {
            let message = format!(
                "the payload of letter {} is not of type {}",
                self.number,
                std::any::type_name::<T>()
            );
            Error::new(ErrorKind::Invalid, message).with_run(&self.run).with_source(source)
        })
    }
}

impl fmt::Debug for OutboxMessage {
    /// Never shows the payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "letter {} of {} to {}", self.number, self.run, self.topic)
    }
}

/// Why an outlet did not take a batch, and how much of it it took.
#[derive(Debug)]
pub struct SinkError {
    pub(crate) taken: usize,
    pub(crate) why: String,
    pub(crate) is_final: bool,
}

impl SinkError {
    /// None of the batch was taken, for this reason. It is tried again.
    pub fn new(why: impl fmt::Display) -> Self {
        Self { taken: 0, why: why.to_string(), is_final: false }
    }

    /// So many letters were taken, and the next one was not.
    #[must_use]
    pub fn after(mut self, letters: usize) -> Self {
        self.taken = letters;
        self
    }

    /// The letter that was not taken never will be: it is put aside at once, and those after it go on.
    #[must_use]
    pub fn refused(mut self) -> Self {
        self.is_final = true;
        self
    }
}

impl<E: std::error::Error> From<E> for SinkError {
    /// Takes the text of the error and of its causes.
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

/// Takes letters of one topic out of runs: to a queue, a memory, a webhook.
///
/// Registered by [`RuntimeBuilder::outlet`](crate::runtime::RuntimeBuilder::outlet).
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
    /// Delivers letters of one run, in order.
    ///
    /// Implementors must return only when the receiver has them for good, and hand [`OutboxMessage::key`] on: after a crash, a lost reply or a
    /// timeout, letters come again under the same keys, and a receiver that drops known keys sees each once. Calls for several runs may be
    /// under way at once, for one run never two in a process. A call that takes longer than 20 seconds has failed.
    ///
    /// # Errors
    ///
    /// What was not taken is delivered again after a delay; a `?` on any error means that nothing of the batch was taken.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when its time is up or the runtime ends; the letters come again.
    ///
    /// <!-- held by: letters::an_outlet_that_is_down_holds_up_its_own_topic_alone, letters::an_outlet_that_hangs_keeps_no_letter -->
    async fn deliver(&self, batch: &[OutboxMessage]) -> Result<(), SinkError>;
}
