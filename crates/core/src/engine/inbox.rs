//! The messages of a run that no node has taken.

use std::collections::VecDeque;

use crate::error::{Error, ErrorKind, Result};
use crate::record::pause::Message;

/// The messages of a run that no node has taken, in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    waiting: VecDeque<Message>,
    /// How many messages were sent.
    sent: u64,
}

impl Inbox {
    /// Makes that of a run which a base describes.
    pub(super) fn restore(waiting: Vec<Message>, sent: u64) -> Self {
        Self { waiting: waiting.into(), sent }
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
