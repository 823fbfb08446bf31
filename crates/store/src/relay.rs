//! Messages between the processes of a store. They are not stored in logs: a message is delivered at once or not at all.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::error::{Error, ErrorKind, Result};

/// Sends texts between the processes that use a store, for data that is shown while it arrives, such as the tokens of a model.
///
/// A relay is optional: see [`CheckpointStore::relay`](crate::CheckpointStore::relay). The relay stores nothing. A text may be lost, and while a
/// connection is down all texts may be lost. A text may arrive twice, and may also arrive at the process that sent it.
///
/// # To ensure correctness, implementors must
///
/// - deliver each text complete and unchanged, or not at all; if one call has several equal texts, one delivery is enough;
/// - keep the order of the texts of one call, and the order of calls if each call waits for the previous call;
/// - deliver to a listener every text that any process sends after [`listen`](Self::listen) has returned, unless a connection is lost;
/// - never wait for a listener: a listener that is too slow loses texts, and learns that it lost some.
#[async_trait]
pub trait Relay: Send + Sync {
    /// Sends texts to every process that listens at this time. A text has at most [`MAX_TEXT_BYTES`] bytes and contains no NUL.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TooLarge`]: a text is too long. Nothing was sent.
    /// - [`ErrorKind::Invalid`]: a text contains a NUL. Nothing was sent.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: the store is unreachable. Listeners may have received some of the texts.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: listeners may have received some of the texts.
    async fn publish(&self, texts: Vec<String>) -> Result<()>;

    /// Starts to listen. The listener receives every text that is sent after this call returns.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`]: the store cannot be reached.
    /// - [`ErrorKind::Invalid`]: the store's user has no permission to listen.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    async fn listen(&self) -> Result<RelayTexts>;
}

/// The maximum length of a text, in bytes. A PostgreSQL notification holds at most 7,999 bytes.
pub const MAX_TEXT_BYTES: usize = 7_000;

/// Makes the checks that every relay must make before it sends.
///
/// # Errors
///
/// - [`ErrorKind::TooLarge`]: a text is longer than [`MAX_TEXT_BYTES`].
/// - [`ErrorKind::Invalid`]: a text contains a NUL, which PostgreSQL does not allow in text.
pub fn check_texts(texts: &[String]) -> Result<()> {
    let refuse = |kind, message| Err(Error::new(kind, message).with_operation("store.say"));
    if let Some(text) = texts.iter().find(|text| text.len() > MAX_TEXT_BYTES) {
        let message = format!(
            "the text has {} bytes, and a notice has at most {MAX_TEXT_BYTES}; split the text",
            text.len()
        );
        return refuse(ErrorKind::TooLarge, message);
    }
    match texts.iter().any(|text| text.contains('\0')) {
        true => refuse(
            ErrorKind::Invalid,
            "the text contains a NUL character; encode it, for example as JSON".to_owned(),
        ),
        false => Ok(()),
    }
}

/// A stream of texts from the processes of a store.
#[derive(Debug)]
pub struct RelayTexts(broadcast::Receiver<Arc<str>>);

impl RelayTexts {
    /// Creates the stream from the receiver of a store's channel.
    pub fn new(receiver: broadcast::Receiver<Arc<str>>) -> Self {
        Self(receiver)
    }

    /// Waits for the next text. `Ok(None)` means that some texts were missed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] when the store is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses no text.
    pub async fn next(&mut self) -> Result<Option<Arc<str>>> {
        match self.0.recv().await {
            Ok(text) => Ok(Some(text)),
            Err(broadcast::error::RecvError::Lagged(_)) => Ok(None),
            Err(broadcast::error::RecvError::Closed) => {
                Err(Error::new(ErrorKind::Closed, "the store was closed, so no more notices arrive"))
            }
        }
    }
}
