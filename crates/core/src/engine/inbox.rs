//! The messages of a run that no node has taken, and the keys of those that were sent with one.

use std::collections::VecDeque;

use crate::error::{Error, ErrorKind, Result};
use crate::record::pause::{Message, MessageKey};

/// How many keys are remembered beside those of waiting messages: some KiB of each base at the most, and enough for a sender that asks again within minutes.
const KEYS: usize = 256;

static NONE: VecDeque<Message> = VecDeque::new();

/// The messages of a run that no node has taken, in the order in which they were sent; absent as long as none was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox(Option<Box<Messages>>);

#[derive(Clone, Debug, Default)]
struct Messages {
    waiting: VecDeque<Message>,
    /// How many messages were sent.
    sent: u64,
    /// The last keys, the oldest first.
    keys: Vec<MessageKey>,
}

impl Inbox {
    /// Makes that of a run which a base describes.
    pub(super) fn restore(waiting: Vec<Message>, sent: u64, keys: Vec<MessageKey>) -> Self {
        if sent == 0 && waiting.is_empty() && keys.is_empty() {
            return Self::default();
        }
        Self(Some(Box::new(Messages { waiting: waiting.into(), sent, keys })))
    }

    pub(super) fn keys(&self) -> &[MessageKey] {
        self.0.as_ref().map_or(&[], |messages| &messages.keys)
    }

    /// Remembers the key of the message that came last, and forgets all but the newest [`KEYS`] and one more for each message that waits, so
    /// that no waiting message loses its key.
    pub(super) fn remember(&mut self, key: MessageKey) {
        let Messages { waiting, keys, .. } = &mut **self.0.get_or_insert_default();
        keys.push(key);
        let most = KEYS + waiting.len();
        keys.drain(..keys.len().saturating_sub(most));
    }

    pub(super) fn waiting(&self) -> &VecDeque<Message> {
        self.0.as_ref().map_or(&NONE, |messages| &messages.waiting)
    }

    pub(super) fn sent(&self) -> u64 {
        self.0.as_ref().map_or(0, |messages| messages.sent)
    }

    /// Numbers a message and puts it behind the others.
    pub(super) fn push(&mut self, message: impl FnOnce(u64) -> Message) {
        let Messages { waiting, sent, .. } = &mut **self.0.get_or_insert_default();
        waiting.push_back(message(*sent));
        *sent += 1;
    }

    /// Takes the message with this number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if it does not wait.
    pub(super) fn take(&mut self, number: u64) -> Result<Message> {
        let at = self.waiting().iter().position(|message| message.number == number);
        let waiting = self.0.as_mut().map(|messages| &mut messages.waiting);
        at.zip(waiting).and_then(|(at, waiting)| waiting.remove(at)).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("the log takes message {number}, which does not wait"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::Fingerprint;

    /// The documentation promised the last 256 keys, and the run remembered up to as many more as messages waited.
    #[test]
    fn newest_keys_and_those_of_waiting_messages_stay() {
        for waiting in [0, 1, 4, 300] {
            let mut inbox = Inbox::default();
            let send = |inbox: &mut Inbox, n: u64| {
                let body = serde_json::value::RawValue::NULL.to_owned().into();
                inbox.push(|number| Message { number, body, by: None, at: Timestamp::from_unix_ms(0) });
                inbox.remember(MessageKey { name: n.to_string(), print: Fingerprint::of(b"m") });
            };
            for n in 0..1_000 {
                send(&mut inbox, n);
                if n >= waiting {
                    inbox.take(n - waiting).unwrap();
                }
            }
            // The last one waited, too, when it came.
            let count = 256 + usize::try_from(waiting).unwrap() + 1;
            let names: Vec<u64> = inbox.keys().iter().map(|key| key.name.parse().unwrap()).collect();
            assert_eq!(names, (1_000 - count as u64..1_000).collect::<Vec<_>>());
        }
    }
}
