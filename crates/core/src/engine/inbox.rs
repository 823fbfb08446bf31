//! The messages of a run that no node has taken, and the keys of those that were sent with one.

use std::collections::VecDeque;

use crate::error::{Error, ErrorKind, Result};
use crate::record::pause::{Message, MessageKey};

/// How many keys are remembered: some KiB of each base at the most, and enough for a sender that asks again within minutes.
const KEYS: usize = 256;

/// The messages of a run that no node has taken, in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    waiting: VecDeque<Message>,
    /// How many messages were sent.
    sent: u64,
    /// The last keys, the oldest first.
    keys: Vec<MessageKey>,
}

impl Inbox {
    /// Makes that of a run which a base describes.
    pub(super) fn restore(waiting: Vec<Message>, sent: u64, keys: Vec<MessageKey>) -> Self {
        Self { waiting: waiting.into(), sent, keys }
    }

    pub(super) fn keys(&self) -> &[MessageKey] {
        &self.keys
    }

    /// Remembers the key of a message. Those of as many messages as wait are remembered beyond the others, so that none of a message
    /// that waits is forgotten.
    pub(super) fn remember(&mut self, key: MessageKey) {
        self.keys.push(key);
        let most = KEYS + self.waiting.len();
        self.keys.drain(..self.keys.len().saturating_sub(most));
    }

    pub(super) fn waiting(&self) -> &VecDeque<Message> {
        &self.waiting
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Numbers a message and puts it behind the others.
    pub(super) fn push(&mut self, message: impl FnOnce(u64) -> Message) {
        self.waiting.push_back(message(self.sent));
        self.sent += 1;
    }

    /// Takes the message with this number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if it does not wait.
    pub(super) fn take(&mut self, number: u64) -> Result<Message> {
        let at = self.waiting.iter().position(|message| message.number == number);
        at.and_then(|at| self.waiting.remove(at)).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("the log takes message {number}, which does not wait"))
        })
    }
}
