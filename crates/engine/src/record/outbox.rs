//! Outbox messages in records: the messages that nodes send out of their runs, and the later changes of their delivery.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::clock::Timestamp;

/// An outbox message in the record of its node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutboxRecord {
    /// The topic, which selects the sink.
    pub topic: Arc<str>,
    pub payload: Arc<RawValue>,
    /// The time at which the node of the message ended.
    pub at: Timestamp,
}

impl PartialEq for OutboxRecord {
    fn eq(&self, other: &Self) -> bool {
        self.topic == other.topic && self.payload.get() == other.payload.get() && self.at == other.at
    }
}

/// A change of outbox messages. The messages are identified by their numbers in the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterChange {
    /// A process has started to deliver the waiting messages.
    Taken,
    /// The sink has accepted the messages.
    Delivered {
        /// The numbers of the messages.
        numbers: Vec<u64>,
    },
    /// The sink did not accept the first of the messages.
    Failed {
        /// The number of the message.
        number: u64,
        /// Number of failed deliveries.
        tries: u32,
        /// The error.
        why: String,
        /// The time of the next attempt. Absent if the message is rejected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// The rejected messages with these numbers are retried, or all rejected messages if the list is empty.
    Retry {
        /// The numbers of the messages.
        numbers: Vec<u64>,
    },
    /// The messages with these numbers are dropped, or all rejected messages if the list is empty.
    Drop {
        /// The numbers of the messages.
        numbers: Vec<u64>,
    },
}
