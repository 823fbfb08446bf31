//! The messages of a run that no node has taken, and the keys of keyed messages.

use std::collections::VecDeque;

use crate::error::{Error, ErrorKind, Result};
use crate::record::pause::{MessageKey, MessageRecord};

/// The number of keys that a run remembers in addition to the keys of waiting messages. It is enough for a sender that retries within minutes, and
/// adds only a few KiB to each base.
const KEYS: usize = 256;

static NONE: VecDeque<MessageRecord> = VecDeque::new();

/// The messages of a run that no node has taken, in the order of sending. Absent before the first message.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunInbox(Option<Box<Messages>>);

#[derive(Clone, Debug, Default)]
struct Messages {
    waiting: VecDeque<MessageRecord>,
    /// Number of messages sent.
    sent: u64,
    /// The last keys, the oldest first.
    keys: Vec<MessageKey>,
}

impl RunInbox {
    /// Restores an inbox from a base.
    pub(super) fn restore(waiting: Vec<MessageRecord>, sent: u64, keys: Vec<MessageKey>) -> Self {
        if sent == 0 && waiting.is_empty() && keys.is_empty() {
            return Self::default();
        }
        Self(Some(Box::new(Messages { waiting: waiting.into(), sent, keys })))
    }

    pub(super) fn keys(&self) -> &[MessageKey] {
        self.0.as_ref().map_or(&[], |messages| &messages.keys)
    }

    /// Remembers the key of the last message. The newest [`KEYS`] keys are retained, and one more for each waiting message, so that the keys of
    /// waiting messages are always retained. Older keys are dropped.
    pub(super) fn remember(&mut self, key: MessageKey) {
        let Messages { waiting, keys, .. } = &mut **self.0.get_or_insert_default();
        keys.push(key);
        let most = KEYS + waiting.len();
        keys.drain(..keys.len().saturating_sub(most));
    }

    pub(super) fn waiting(&self) -> &VecDeque<MessageRecord> {
        self.0.as_ref().map_or(&NONE, |messages| &messages.waiting)
    }

    pub(super) fn sent_count(&self) -> u64 {
        self.0.as_ref().map_or(0, |messages| messages.sent)
    }

    /// Numbers a message and appends it.
    pub(super) fn push(&mut self, message: impl FnOnce(u64) -> MessageRecord) {
        let Messages { waiting, sent, .. } = &mut **self.0.get_or_insert_default();
        waiting.push_back(message(*sent));
        *sent += 1;
    }

    /// Takes the message with this number.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if no waiting message has this number.
    pub(super) fn take(&mut self, number: u64) -> Result<MessageRecord> {
        let at = self.waiting().iter().position(|message| message.number == number);
        let waiting = self.0.as_mut().map(|messages| &mut messages.waiting);
        at.zip(waiting).and_then(|(at, waiting)| waiting.remove(at)).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("the log receives message {number}, which is not waiting"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::Fingerprint;

    /// The documentation promises the last 256 keys, and the run remembers at most one more for each waiting message.
    #[test]
    fn newest_keys_and_those_of_waiting_messages_stay() {
        for waiting in [0, 1, 4, 300] {
            let mut inbox = RunInbox::default();
            let send = |inbox: &mut RunInbox, n: u64| {
                let body = serde_json::value::RawValue::NULL.to_owned().into();
                inbox.push(|number| MessageRecord { number, body, by: None, at: Timestamp::from_unix_ms(0) });
                inbox.remember(MessageKey { name: n.to_string(), print: Fingerprint::of(b"m") });
            };
            for n in 0..1_000 {
                send(&mut inbox, n);
                if n >= waiting {
                    inbox.take(n - waiting).unwrap();
                }
            }
            // The last message also waited when it arrived.
            let count = 256 + usize::try_from(waiting).unwrap() + 1;
            let names: Vec<u64> = inbox.keys().iter().map(|key| key.name.parse().unwrap()).collect();
            assert_eq!(names, (1_000 - count as u64..1_000).collect::<Vec<_>>());
        }
    }
}
