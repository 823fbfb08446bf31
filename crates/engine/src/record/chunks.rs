//! The memos of an activation about a durable stream. Each batch of chunks is recorded as a result, under a name that no step can have.
//!
//! For example, `#stream2.000007.tokens` is the name of the eighth batch of the stream `tokens`, after the activation has started this stream for the
//! second time.
//!
//! Its result is `{"attempt":…,"first":…,"chunks":[…]}`. The numbers count starts of the stream from 1 and batches from 0. `first` is the number of the
//! first chunk.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::memo::Memos;

const STREAM: &str = "#stream";

/// A series of consecutive chunks of a stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChunkSeries {
    /// The attempt of the activation that sent the chunks.
    pub attempt: u32,
    /// The number of chunks that were sent before the first chunk of this series since the start of the stream.
    pub first: u64,
    pub chunks: Vec<Arc<RawValue>>,
}

/// Returns the name of the memo of a batch.
pub fn batch_name(round: u32, batch: u32, stream: &str) -> String {
    format!("{STREAM}{round}.{batch:06}.{stream}")
}

/// Parses the name of the memo of a batch. Returns the number of starts of the stream and the name of the stream, or `None` for any other name.
pub fn stream_of(text: &str) -> Option<(u32, &str)> {
    let (round, rest) = text.strip_prefix(STREAM)?.split_once('.')?;
    let (batch, stream) = rest.split_once('.')?;
    batch.parse::<u32>().ok()?;
    Some((round.parse().ok()?, stream))
}

impl Memos {
    /// Returns how often the activation has started a stream.
    pub fn rounds_of(&self, stream: &str) -> u32 {
        let notes = self.range(STREAM.to_owned()..).take_while(|(name, _)| name.starts_with(STREAM));
        let rounds = notes.filter_map(|(name, _)| stream_of(name));
        rounds.filter(|(_, of)| *of == stream).map(|(round, _)| round).max().unwrap_or(0)
    }
}
