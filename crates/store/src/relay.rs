//! Messages between the processes of a store, outside the logs: delivered at once or not at all.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::error::{Error, ErrorKind, Result};

/// Passes texts on between the processes that use a store, for what is shown while it comes, such as the tokens of a model.
///
/// A store without a relay is complete: see [`CheckpointStore::relay`](crate::CheckpointStore::relay). The relay stores nothing. A text may be
/// lost, and so may all texts while a connection is lost. It may arrive twice, and at the process that sent it.
///
/// # To ensure correctness, implementors must
///
/// - pass each text on whole and unchanged, or not at all; of equal texts in one call, one is enough;
/// - pass the texts of one call on in their order, and those of calls that wait for each other;
/// - deliver to a listener every text that any process sends after [`listen`](Self::listen) has returned, unless a connection is lost;
/// - never wait for a listener: one that is too slow loses texts, and gets a notice of that.
#[async_trait]
pub trait Relay: Send + Sync {
    /// Says texts, of at most [`MAX_TEXT_BYTES`] bytes each and without a NUL, to every process that hears at this time.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TooLarge`]: a text is longer. [`ErrorKind::Invalid`]: there is a NUL in it. Nothing was said.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`]: the store is unreachable. Listeners may have received some of the texts.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: listeners may have received some of the texts.
    async fn publish(&self, texts: Vec<String>) -> Result<()>;

    /// Begins to listen: receives every text sent after this call returns.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`]: the store cannot be reached.
    /// - [`ErrorKind::Invalid`]: the user of the store may not hear.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    async fn listen(&self) -> Result<RelayTexts>;
}

/// The most bytes of one text. PostgreSQL takes 7,999 in a notice.
pub const MAX_TEXT_BYTES: usize = 7_000;

/// Checks what every relay must refuse.
///
/// # Errors
///
/// [`ErrorKind::TooLarge`] if a text is longer than [`MAX_TEXT_BYTES`], [`ErrorKind::Invalid`] if there is a NUL in one, which PostgreSQL takes in no
/// text.
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

/// Texts from the processes of a store.
#[derive(Debug)]
pub struct RelayTexts(broadcast::Receiver<Arc<str>>);

impl RelayTexts {
    /// Wraps the receiving end of a store's channel.
    pub fn new(receiver: broadcast::Receiver<Arc<str>>) -> Self {
        Self(receiver)
    }

    /// Waits for the next text; `Ok(None)` says that some were missed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] when the store is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no text is lost by dropping the future.
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
