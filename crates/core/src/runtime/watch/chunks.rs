//! Streams, by which nodes send chunks to the watchers of a run.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

use super::relay::StreamOutput;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::feed::watch_event::LiveEvent;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::spawn;
use crate::node::NodeContext;
use crate::record::chunks::{ChunkSeries, batch_name};
use crate::record::codec::to_raw;
use crate::state::strict;

/// The number of chunks after which the sender yields to watchers.
const TURN: u64 = 128;

/// The time for which a durable stream collects chunks after a record, so that the next record contains many chunks.
const GATHER: Duration = Duration::from_millis(40);

/// The maximum size of a batch in bytes. If more chunks are collected, the node waits until the earlier chunks are sent to the store.
const GATHERED: usize = 256 * 1024;

/// The maximum size of a durable stream in bytes. Its chunks stay in memory, and in each record with the full state, until the activation ends.
const LONGEST: usize = 4 * 1024 * 1024;

impl NodeContext {
    /// Opens a stream by which the node [sends](StreamWriter::send) chunks to the watchers of the run, for example the tokens of a model as they
    /// arrive. Chunks are not stored, unless the stream is [durable](StreamWriter::durable).
    ///
    /// Watchers in other processes receive chunks if the store relays them ([`CheckpointStore::relay`]: PostgreSQL, Redis, NATS and memory do). The
    /// node does not wait for the relay: the runtime collects chunks for 20 ms and then sends them. If the store is too slow, at most 256 KiB of
    /// chunks wait and the oldest chunks are lost. Chunks that are sent while there is no connection are lost too. With the next chunk, the watcher
    /// learns how many chunks are missing ([`Lagged`](crate::runtime::WatchEventKind::Lagged)).
    ///
    /// [`CheckpointStore::relay`]: crate::store::CheckpointStore::relay
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if a step, question, child or stream of this attempt already has the name, or if the name does not have 1 to
    /// 128 of the characters `A-Z a-z 0-9 . _ -`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ferrata_core::graph::Graph;
    /// # use ferrata_core::runtime::Runtime;
    /// # use ferrata_core::state::Context;
    /// # use ferrata_core::store::MemoryStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = Graph::<Context>::builder("answer")
    ///     .node("model", async |cx, mut s| {
    ///         let mut tokens = cx.stream("tokens")?.durable();
    ///         for token in ["It", " depends", "."] {
    ///             tokens.send(token).await?;
    ///         }
    ///         tokens.finish().await?;
    ///         s.set("answer", "It depends.")?;
    ///         Ok(s)
    ///     })
    ///     .entry("model")
    ///     .build()?;
    /// # let runtime = Runtime::builder(MemoryStore::new()).build().await?;
    /// let run = runtime.start(&graph, Context::new()).await?;
    /// let mut events = run.watch().await?;
    /// let mut text = String::new();
    /// while let Some(event) = events.next().await? {
    ///     for chunk in event.chunks() {
    ///         text.push_str(&chunk.read::<String>()?);
    ///     }
    /// }
    /// assert_eq!(text, "It depends.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(&self, name: impl Into<String>) -> Result<StreamWriter> {
        let name = name.into();
        self.claim_stream(&name)?;
        let shared = self.host().runtime.upgrade();
        let name = Arc::from(name);
        Ok(StreamWriter {
            cx: self.clone(),
            way: shared.as_ref().and_then(|shared| StreamOutput::of(self, &name, shared)),
            shared: shared.as_ref().map_or_else(Weak::new, Arc::downgrade),
            name,
            sent: 0,
            kept: None,
        })
    }
}

/// The writing end of a stream of chunks. [`NodeContext::stream`] opens it.
#[must_use = "a stream is empty until `send` is called"]
pub struct StreamWriter {
    cx: NodeContext,
    shared: Weak<RuntimeInner>,
    name: Arc<str>,
    /// The number of sent chunks.
    sent: u64,
    /// The batch, if the stream is durable.
    kept: Option<DurableStream>,
    /// The relay to other processes, if any.
    way: Option<StreamOutput>,
}

/// A durable stream.
#[derive(Clone)]
struct DurableStream {
    gathered: Arc<Mutex<ChunkBatch>>,
    /// Limits the number of batches that the driver has not accepted yet to one. Later chunks are added to the next batch.
    way: Arc<Semaphore>,
}

#[derive(Default)]
struct ChunkBatch {
    chunks: Vec<Arc<RawValue>>,
    bytes: usize,
    /// The number of chunks in earlier batches.
    first: u64,
    /// The number of batches. The field after it counts the starts of the stream.
    batches: u32,
    round: u32,
    /// The size of all chunks in bytes.
    all: usize,
    /// Whether a flush task is scheduled.
    is_timed: bool,
}

impl ChunkBatch {
    /// Takes the collected chunks as a batch with a name. Returns `None` if there are none.
    fn take(&mut self, cx: &NodeContext, stream: &str) -> Result<Option<(String, Box<RawValue>)>> {
        if self.chunks.is_empty() {
            return Ok(None);
        }
        let chunks = std::mem::take(&mut self.chunks);
        let name = batch_name(self.round, self.batches, stream);
        let batch = ChunkSeries { attempt: cx.attempt(), first: self.first, chunks };
        self.first += batch.chunks.len() as u64;
        self.batches += 1;
        self.bytes = 0;
        Ok(Some((name, to_raw(&batch)?)))
    }
}

impl StreamWriter {
    /// Makes the stream durable. Its chunks are [recorded](crate::runtime::RecordedEvent::Chunks) in the log, so all watchers, in any process and at
    /// any later time, receive each chunk once and in order.
    ///
    /// The first chunk is recorded at once. Later chunks are collected for 40 ms, so that one record contains many chunks. The node waits only if
    /// more than 256 KiB of chunks are collected before the earlier records are sent. Recorded chunks stay in the log of the run as long as its other
    /// records.
    pub fn durable(mut self) -> Self {
        let round = self.cx.rounds_of(&self.name) + 1;
        let gathered = ChunkBatch { round, ..ChunkBatch::default() };
        self.kept = Some(DurableStream {
            gathered: Arc::new(Mutex::new(gathered)),
            way: Arc::new(Semaphore::new(1)),
        });
        self
    }

    /// Sends a chunk, which is text or any value that can be expressed in JSON. The call never waits for a watcher. A slow watcher learns how many
    /// chunks it has missed. If the stream is durable, it reads all chunks from the log.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the chunk cannot be expressed in JSON.
    /// - [`ErrorKind::TooLarge`]: a durable stream exceeds 4 MiB; store long output elsewhere, and send a reference.
    /// - [`ErrorKind::Closed`]: this process no longer drives the run, or the attempt has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the chunk was sent, or the call had no effect.
    pub async fn send(&mut self, chunk: impl Serialize) -> Result<()> {
        self.cx.check_not_over()?;
        if self.sent.is_multiple_of(TURN) {
            // Otherwise a node with all its chunks at hand would starve the watchers.
            yield_now().await;
        }
        match self.kept.clone() {
            None => self.send_to_watchers(&chunk)?,
            Some(kept) => self.gather_chunk(&kept, strict::to_raw_value(&chunk)?.into()).await?,
        }
        self.sent += 1;
        Ok(())
    }

    /// Sends the chunk to watchers.
    fn send_to_watchers(&self, chunk: &impl Serialize) -> Result<()> {
        // A dropped runtime has no watchers. Without a listener, skip the serialization.
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        let way = self.way.as_ref().filter(|way| way.is_wanted(&shared));
        if way.is_none() && !shared.has_subscribers() {
            return Ok(());
        }
        let data = Arc::from(strict::to_raw_value(chunk)?);
        if let Some(way) = way {
            way.queue_chunk(&shared, self.sent, &data);
        }
        shared.feeds().publish_live(self.cx.run(), || LiveEvent::Chunk {
            node: self.cx.node().clone(),
            visit: self.cx.visit(),
            attempt: self.cx.attempt(),
            stream: Arc::clone(&self.name),
            number: self.sent,
            data,
        });
        Ok(())
    }

    async fn gather_chunk(&self, kept: &DurableStream, data: Arc<RawValue>) -> Result<()> {
        let mut data = Some(data);
        loop {
            let permit = {
                let mut gathered = kept.gathered.lock().unwrap_or_else(PoisonError::into_inner);
                let bytes = data.as_ref().map_or(0, |data| data.get().len());
                if gathered.all + bytes > LONGEST {
                    let message = format!(
                        "the stream has more than {LONGEST} bytes; store it elsewhere, and send a reference"
                    );
                    return Err(Error::new(ErrorKind::TooLarge, message).with_node(self.cx.node()));
                }
                if gathered.bytes == 0 || gathered.bytes + bytes <= GATHERED {
                    gathered.bytes += bytes;
                    gathered.all += bytes;
                    gathered.chunks.extend(data.take());
                    if !gathered.is_timed {
                        // Send the first at once; later chunks gather until the flush task runs.
                        gathered.is_timed = true;
                        drop(gathered);
                        self.record(kept)?;
                        self.schedule_flush(kept);
                    }
                    return Ok(());
                }
                drop(gathered);
                Arc::clone(&kept.way).acquire_owned()
            };
            let permit = permit.await.map_err(|_| self.cx.not_driven_error())?;
            send_batch(&self.cx, &self.name, kept, permit)?;
        }
    }

    /// Sends the collected chunks to the driver, unless an earlier batch is not accepted yet.
    fn record(&self, kept: &DurableStream) -> Result<()> {
        match Arc::clone(&kept.way).try_acquire_owned() {
            Ok(permit) => send_batch(&self.cx, &self.name, kept, permit),
            Err(_) => Ok(()),
        }
    }

    /// Schedules a task that sends the collected chunks later, while the node continues to work.
    fn schedule_flush(&self, kept: &DurableStream) {
        let (cx, name, kept) = (self.cx.clone(), Arc::clone(&self.name), kept.clone());
        spawn(async move {
            loop {
                cx.clock().sleep(GATHER).await;
                {
                    let mut gathered = kept.gathered.lock().unwrap_or_else(PoisonError::into_inner);
                    if gathered.chunks.is_empty() {
                        gathered.is_timed = false;
                        return;
                    }
                }
                let Ok(permit) = Arc::clone(&kept.way).acquire_owned().await else { return };
                // The node, or the run, may be gone.
                if send_batch(&cx, &name, &kept, permit).is_err() {
                    return;
                }
            }
        });
    }

    /// Ends the stream. When the call returns for a durable stream, all its chunks are recorded, or will be recorded before any later record,
    /// including the end of the node. For other streams, the chunks were sent to the processes that watch the run, if the store accepted them within
    /// half a second.
    ///
    /// If a durable stream is dropped without this call, the chunks of its last 40 ms may be lost. If another stream is dropped, watchers in other
    /// processes may receive the chunks of its last 20 ms after the end of the node.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Closed`] if this process no longer drives the run.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the last chunks may or may not be recorded.
    pub async fn finish(self) -> Result<()> {
        let Some(kept) = &self.kept else {
            if let (Some(way), Some(shared)) = (&self.way, self.shared.upgrade()) {
                way.flush(&shared).await;
            }
            return Ok(());
        };
        let taken = Arc::clone(&kept.way).acquire_owned().await.map_err(|_| self.cx.not_driven_error())?;
        send_batch(&self.cx, &self.name, kept, taken)?;
        // The driver returns the permit.
        let _taken = kept.way.acquire().await.map_err(|_| self.cx.not_driven_error())?;
        Ok(())
    }
}

/// Sends the batch to the driver, which returns the permit after it has accepted the batch.
fn send_batch(
    cx: &NodeContext,
    stream: &str,
    kept: &DurableStream,
    taken: OwnedSemaphorePermit,
) -> Result<()> {
    let batch = kept.gathered.lock().unwrap_or_else(PoisonError::into_inner).take(cx, stream)?;
    match batch {
        Some((name, text)) => cx.send_batch(name, text, taken),
        None => Ok(()),
    }
}

impl fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWriter")
            .field("activation", &self.cx)
            .field("name", &self.name)
            .field("sent", &self.sent)
            .field("durable", &self.kept.is_some())
            .finish()
    }
}
