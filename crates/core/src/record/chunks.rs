//! What an activation notes of a durable stream: a batch of chunks as a result, under a name that no step can have.
//!
//! `#stream2.000007.tokens` is the eighth batch of the stream `tokens`, which the activation has begun for the second time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::memo::Memos;

const STREAM: &str = "#stream";

/// Chunks that follow each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// Which attempt of the activation sent them.
    pub(crate) attempt: u32,
    /// How many chunks were sent before, since the stream was begun.
    pub(crate) first: u64,
    pub(crate) chunks: Vec<Arc<RawValue>>,
}

/// The name under which a batch is noted.
pub(crate) fn batch_name(round: u32, batch: u32, stream: &str) -> String {
    format!("{STREAM}{round}.{batch:06}.{stream}")
}

/// Reads the name of a batch: how often the stream was begun, and its name; `None` for any other name.
pub(crate) fn stream_of(text: &str) -> Option<(u32, &str)> {
    let (round, rest) = text.strip_prefix(STREAM)?.split_once('.')?;
    let (batch, stream) = rest.split_once('.')?;
    batch.parse::<u32>().ok()?;
    Some((round.parse().ok()?, stream))
}

impl Memos {
    /// Returns how often the activation has begun a stream.
    pub(crate) fn rounds_of(&self, stream: &str) -> u32 {
        let notes = self.range(STREAM.to_owned()..).take_while(|(name, _)| name.starts_with(STREAM));
        let rounds = notes.filter_map(|(name, _)| stream_of(name));
        rounds.filter(|(_, of)| *of == stream).map(|(round, _)| round).max().unwrap_or(0)
    }
}
