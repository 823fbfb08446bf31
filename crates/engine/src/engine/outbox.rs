//! The outbox messages of a run that are not delivered yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, Visit};
use crate::record::body::NodeDone;
use crate::record::outbox::LetterChange;

/// The lease of waiting messages: for this time after the last record of a run, only the process that wrote the record delivers its messages. It is
/// longer than one delivery attempt may take.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The wake time of a run that has only rejected messages. It is the last time that RFC 3339 can express. Such messages need an operator. With this
/// wake time, the run stays in the listing of runs with messages.
const NEVER: i64 = 253_402_300_799_999;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// An outbox message that is not delivered yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UndeliveredMessage {
    pub number: u64,
    pub topic: Arc<str>,
    pub payload: Arc<RawValue>,
    pub node: NodeName,
    pub visit: Visit,
    pub at: Timestamp,
    /// The number of failed deliveries.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Whether the message was rejected.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dead: bool,
}

/// The outbox messages of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OutboxState {
    /// The number of messages that were sent, which is also the number of the last message.
    sent: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<UndeliveredMessage>,
}

impl OutboxState {
    /// Checks the messages of a base: they must be in order, and no number may be larger than `sent`.
    pub(super) fn is_sound(&self) -> bool {
        let ordered = self.waiting.windows(2).all(|two| two[0].number < two[1].number);
        ordered && self.waiting.last().is_none_or(|last| last.number <= self.sent) && self.sent < u64::MAX / 2
    }

    pub fn sent_count(&self) -> u64 {
        self.sent
    }

    /// Returns the undelivered messages in order, including rejected ones.
    pub fn waiting(&self) -> &[UndeliveredMessage] {
        &self.waiting
    }

    /// Adds the messages of an ended activation.
    pub(super) fn post(&mut self, done: &NodeDone) {
        for letter in &done.letters {
            self.sent += 1;
            self.waiting.push(UndeliveredMessage {
                number: self.sent,
                topic: Arc::clone(&letter.topic),
                payload: Arc::clone(&letter.payload),
                node: done.node.clone(),
                visit: done.visit,
                at: letter.at,
                tries: 0,
                why: None,
                retry_at: None,
                dead: false,
            });
        }
    }

    /// Returns the time at which a process must next check the messages, if no record is written after `now`.
    pub fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let mut firsts = BTreeMap::new();
        for letter in self.waiting.iter().filter(|letter| !letter.dead) {
            firsts.entry(&letter.topic).or_insert_with(|| letter.retry_at.unwrap_or(now).plus(LEASE));
        }
        let first = firsts.into_values().min();
        first.or((!self.waiting.is_empty()).then_some(Timestamp::from_unix_ms(NEVER)))
    }

    /// Checks whether a change applies.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongStatus`] if the change is already recorded or a later change has made it obsolete. Returns [`ErrorKind::NotFound`]
    /// if an operator names a message that does not wait or was not rejected.
    pub(crate) fn check(&self, change: &LetterChange) -> Result<()> {
        let overtaken = || Err(Error::new(ErrorKind::WrongStatus, "the outbox message is no longer waiting"));
        let find = |number: &u64| self.waiting.iter().find(|letter| letter.number == *number);
        match change {
            LetterChange::Taken if self.waiting.is_empty() => overtaken(),
            LetterChange::Delivered { numbers } if !numbers.iter().any(|number| find(number).is_some()) => {
                overtaken()
            }
            LetterChange::Failed { number, tries, .. }
                if !find(number).is_some_and(|letter| !letter.dead && letter.tries < *tries) =>
            {
                overtaken()
            }
            LetterChange::Retry { numbers } | LetterChange::Drop { numbers } => {
                let is_drop = matches!(change, LetterChange::Drop { .. });
                let meant = |letter: &UndeliveredMessage| letter.dead || is_drop;
                let bad = numbers.iter().find(|number| !find(number).is_some_and(meant));
                match bad {
                    Some(number) => {
                        let message = format!(
                            "cannot find outbox message {number} among the undelivered messages of the run"
                        );
                        Err(Error::new(ErrorKind::NotFound, message))
                    }
                    None if numbers.is_empty() && !self.waiting.iter().any(|letter| letter.dead) => {
                        Err(Error::new(ErrorKind::NotFound, "the run has no rejected outbox message"))
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Applies a change. If two processes deliver the same message, the later change no longer applies, and has no effect.
    pub(super) fn change(&mut self, change: &LetterChange, at: Timestamp) {
        match change {
            LetterChange::Taken => {
                // The process that took them over now handles due messages, as it does new ones.
                for letter in
                    self.waiting.iter_mut().filter(|letter| letter.retry_at.is_some_and(|due| due <= at))
                {
                    letter.retry_at = None;
                }
            }
            LetterChange::Delivered { numbers } => {
                let numbers: BTreeSet<_> = numbers.iter().collect();
                self.waiting.retain(|letter| !numbers.contains(&letter.number));
            }
            LetterChange::Failed { number, tries, why, retry_at } => {
                if let Some(letter) = self.waiting.iter_mut().find(|letter| letter.number == *number) {
                    (letter.tries, letter.why) = (*tries, Some(why.clone()));
                    (letter.retry_at, letter.dead) = (*retry_at, retry_at.is_none());
                }
            }
            LetterChange::Retry { numbers } => {
                let meant = |letter: &&mut UndeliveredMessage| {
                    letter.dead && (numbers.is_empty() || numbers.contains(&letter.number))
                };
                for letter in self.waiting.iter_mut().filter(meant) {
                    // Due at once, for the first process that checks.
                    let lease = i64::try_from(LEASE.as_millis()).unwrap_or_default();
                    letter.retry_at = Some(Timestamp::from_unix_ms(at.unix_ms().saturating_sub(lease)));
                    (letter.dead, letter.tries) = (false, 0);
                }
            }
            LetterChange::Drop { numbers } => self.waiting.retain(|letter| match numbers.is_empty() {
                true => !letter.dead,
                false => !numbers.contains(&letter.number),
            }),
        }
    }
}
