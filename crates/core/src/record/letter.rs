//! Letters: what nodes send out of their runs, and what is said of them afterwards.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::clock::Timestamp;

/// A letter as the record of its node holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OutboxRecord {
    /// Which outlet takes it.
    pub(crate) topic: Arc<str>,
    pub(crate) payload: Arc<RawValue>,
    /// When its node ended.
    pub(crate) at: Timestamp,
}

impl PartialEq for OutboxRecord {
    fn eq(&self, other: &Self) -> bool {
        self.topic == other.topic && self.payload.get() == other.payload.get() && self.at == other.at
    }
}

/// What is said of letters after they were sent. They are named by their numbers in the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LetterChange {
    /// A process has begun to deliver what waits.
    Taken,
    /// Their outlet has taken them.
    Delivered {
        /// Which.
        numbers: Vec<u64>,
    },
    /// Their outlet did not take the first of them.
    Failed {
        /// Which.
        number: u64,
        /// How often that has happened.
        tries: u32,
        /// Why.
        why: String,
        /// When it is tried again; absent if it is put aside.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// Those that were put aside are to be delivered after all; all of them if none is named.
    Retry {
        /// Which.
        numbers: Vec<u64>,
    },
    /// They are not to be delivered any more; those that were put aside if none is named.
    Drop {
        /// Which.
        numbers: Vec<u64>,
    },
}
