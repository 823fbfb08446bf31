//! Cuts. A cut is a message that changes the log before it: it removes records from the beginning of the log, or replaces records. Some earlier
//! messages are then not needed any more.

use std::collections::HashSet;

use ferrata_store::Record;

use crate::error::NatsStoreError;
use crate::message::{BasePosition, MessageContent, OutgoingMessage};
use crate::read::{LogEntry, SubjectLog};

/// The position of a message that is not stored yet.
const SENT: u64 = 0;

impl SubjectLog {
    /// Creates the message that makes the log begin at the record at index `place`, and that replaces the records with the numbers of `records`.
    /// Updates this log to the state after that message. Call [`changed`](Self::changed) once the message is stored.
    pub(crate) fn change(
        &mut self,
        place: usize,
        records: &[Record],
    ) -> Result<OutgoingMessage, NatsStoreError> {
        for record in records {
            if let Some(place) = self.place(record.header.seq) {
                self.entries[place] = LogEntry { at: SENT, record: record.clone() };
            }
            if record.header.seq == self.last.head.seq {
                self.last.head = record.header.clone();
            }
        }
        let kept = &self.entries[place..];
        let newest = kept.iter().rposition(|entry| entry.record.header.base).unwrap_or(0);
        // A replaced record is in a later message than the records that follow it.
        let stored = kept[newest..].iter().map(|entry| entry.at).filter(|at| *at != SENT);
        self.last = MessageContent {
            first: kept[0].record.header.seq,
            base: BasePosition { record: kept[newest].record.header.seq, at: stored.min().unwrap_or(SENT) },
            head: self.last.head.clone(),
            records: records.iter().map(|record| record.header.clone()).collect(),
            is_cut: true,
            facts: self.last.facts.clone(),
        };
        OutgoingMessage::of(&self.last, self.end, records)
    }

    /// Records the position of the message of the last change.
    pub(crate) fn changed(&mut self, stored: u64) {
        self.entries.iter_mut().filter(|entry| entry.at == SENT).for_each(|entry| entry.at = stored);
        self.messages.push(stored);
        self.end = stored;
    }

    /// Removes and returns the messages that hold no record at or after index `place`. Keeps the last message.
    pub(crate) fn take_unneeded(&mut self, place: usize) -> Vec<u64> {
        let kept = self.entries[place..].iter().map(|entry| entry.at);
        let needed: HashSet<u64> = kept.chain([self.end]).collect();
        let (needed, unneeded) = self.messages.iter().partition(|at| needed.contains(at));
        self.messages = needed;
        unneeded
    }
}
