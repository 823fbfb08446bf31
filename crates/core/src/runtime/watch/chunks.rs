//! Streams from nodes: what a node sends piece by piece to who watches its run.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

use super::relay::Way;
use super::what::Live;
use crate::error::{Error, ErrorKind, Result};
use crate::node::NodeContext;
use crate::record::chunks::{Batch, batch_name};
use crate::record::codec::to_raw;
use crate::runtime::shared::RuntimeInner;
use crate::runtime::tasks::spawn;
use crate::state::strict;

/// How many chunks are sent without giving watchers a turn.
const TURN: u64 = 128;

/// How long chunks of a durable stream gather after some were recorded, so that a record holds many.
const GATHER: Duration = Duration::from_millis(40);

/// How many bytes of chunks may gather at most: then the node waits until those before are on their way to the store.
const GATHERED: usize = 256 * 1024;

/// How many bytes a durable stream may have. They stay in memory, and in each full record of the run, until the activation ends.
const LONGEST: usize = 4 * 1024 * 1024;

impl NodeContext {
    /// Begins a stream: what is [sent](StreamWriter::send) is told piece by piece to who watches the run, as tokens of a model are shown while
    /// they come. Nothing of it is stored, unless it is made [durable](StreamWriter::durable).
    ///
    /// Watchers in other processes hear of it where the store passes it on ([`CheckpointStore::relay`]: PostgreSQL, Redis and memory do). The
    /// node does not wait for that: chunks gather for 20 ms, and of what comes faster than the store takes it, 256 KiB wait and the oldest are
    /// lost. So is what is sent while the connection is lost. A watcher is told how many are missing once a later chunk has come
    /// ([`Lagged`](super::WatchEventKind::Lagged)).
    ///
    /// [`CheckpointStore::relay`]: crate::store::CheckpointStore::relay
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the name was used before in this attempt, by a step, question, child or stream, or is not 1 to 128 of
    /// `A-Z a-z 0-9 . _ -`.
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
    /// let mut events = run.events().await?;
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
    ///
    /// <!-- held by: streaming::chunks_are_told_in_order_and_before_the_end_of_their_node, streaming::a_stream_has_a_name_of_its_own -->
    pub fn stream(&self, name: impl Into<String>) -> Result<StreamWriter> {
        let name = name.into();
        self.claim_stream(&name)?;
        let shared = self.host().runtime.upgrade().and_then(|host| host.downcast::<RuntimeInner>().ok());
        let name = Arc::from(name);
        Ok(StreamWriter {
            cx: self.clone(),
            way: shared.as_ref().and_then(|shared| Way::of(self, &name, shared)),
            shared: shared.as_ref().map_or_else(Weak::new, Arc::downgrade),
            name,
            sent: 0,
            kept: None,
        })
    }
}

/// The writing end of a stream: see [`NodeContext::stream`].
#[must_use = "nothing is sent until it is told to"]
pub struct StreamWriter {
    cx: NodeContext,
    shared: Weak<RuntimeInner>,
    name: Arc<str>,
    /// How many chunks were sent.
    sent: u64,
    /// What is gathered, if the stream is recorded.
    kept: Option<DurableStream>,
    /// The way to other processes, where there is one.
    way: Option<Way>,
}

/// A durable stream.
#[derive(Clone)]
struct DurableStream {
    gathered: Arc<Mutex<ChunkBatch>>,
    /// One batch is on its way to the driver at a time: what is sent meanwhile joins the next.
    way: Arc<Semaphore>,
}

#[derive(Default)]
struct ChunkBatch {
    chunks: Vec<Arc<RawValue>>,
    bytes: usize,
    /// How many chunks are in batches already.
    first: u64,
    /// How many batches there were, and of which beginning of the stream they are.
    batches: u32,
    round: u32,
    /// The bytes of all chunks.
    all: usize,
    /// Whether a task will look whether something has gathered.
    is_timed: bool,
}

impl ChunkBatch {
    /// Makes a batch of what has gathered, under its name; `None` if nothing has.
    fn take(&mut self, cx: &NodeContext, stream: &str) -> Result<Option<(String, Box<RawValue>)>> {
        if self.chunks.is_empty() {
            return Ok(None);
        }
        let chunks = std::mem::take(&mut self.chunks);
        let name = batch_name(self.round, self.batches, stream);
        let batch = Batch { attempt: cx.attempt(), first: self.first, chunks };
        self.first += batch.chunks.len() as u64;
        self.batches += 1;
        self.bytes = 0;
        Ok(Some((name, to_raw(&batch)?)))
    }
}

impl StreamWriter {
    /// Has what is sent recorded: it is told in whichever process the run is watched, and to watchers that come later, in order and each
    /// chunk once, like everything that is [recorded](super::Recorded::Chunks).
    ///
    /// Chunks gather for 40 ms, so that a record holds many; the first is recorded at once. The node waits only if more than 256 KiB have
    /// gathered before the records before were on their way. What was recorded stays in the log of the run as long as its other records.
    pub fn durable(mut self) -> Self {
        let round = self.cx.rounds_of(&self.name) + 1;
        let gathered = ChunkBatch { round, ..ChunkBatch::default() };
        self.kept = Some(DurableStream {
            gathered: Arc::new(Mutex::new(gathered)),
            way: Arc::new(Semaphore::new(1)),
        });
        self
    }

    /// Sends a chunk: text, or whatever can be expressed in JSON. It never waits for a watcher: one that is too slow is told how much it
    /// missed, or of a durable stream reads it from the log.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the chunk cannot be expressed in JSON.
    /// - [`ErrorKind::TooLarge`]: a durable stream has more than 4 MiB; keep long output elsewhere, and send a reference.
    /// - [`ErrorKind::Closed`]: the run is no longer driven here, or the attempt has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the chunk was sent, or nothing happened.
    ///
    /// <!-- held by: late_words::ended_attempt_is_refused, streaming::chunks_are_told_in_order_and_before_the_end_of_their_node, streaming::a_durable_stream_has_an_end -->
    pub async fn send(&mut self, chunk: impl Serialize) -> Result<()> {
        self.cx.check_not_over()?;
        if self.sent.is_multiple_of(TURN) {
            // Otherwise a node that has all its chunks at hand would not let watchers take any.
            yield_now().await;
        }
        match self.kept.clone() {
            None => self.tell(&chunk)?,
            Some(kept) => self.keep(&kept, strict::to_raw_value(&chunk)?.into()).await?,
        }
        self.sent += 1;
        Ok(())
    }

    /// Tells who watches.
    fn tell(&self, chunk: &impl Serialize) -> Result<()> {
        // A runtime that is gone has no watchers. What has no listener is not even written down.
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        let way = self.way.as_ref().filter(|way| way.is_wanted(&shared));
        if way.is_none() && !shared.has_subscribers() {
            return Ok(());
        }
        let data = Arc::from(strict::to_raw_value(chunk)?);
        if let Some(way) = way {
            way.say(&shared, self.sent, &data);
        }
        shared.feeds().say(self.cx.run(), || Live::Chunk {
            node: self.cx.node().clone(),
            visit: self.cx.visit(),
            attempt: self.cx.attempt(),
            stream: Arc::clone(&self.name),
            number: self.sent,
            data,
        });
        Ok(())
    }

    async fn keep(&self, kept: &DurableStream, data: Arc<RawValue>) -> Result<()> {
        let mut data = Some(data);
        loop {
            let permit = {
                let mut gathered = kept.gathered.lock().unwrap_or_else(PoisonError::into_inner);
                let bytes = data.as_ref().map_or(0, |data| data.get().len());
                if gathered.all + bytes > LONGEST {
                    let message = format!(
                        "the stream has more than {LONGEST} bytes; keep it elsewhere, and send a reference"
                    );
                    return Err(Error::new(ErrorKind::TooLarge, message).with_node(self.cx.node()));
                }
                if gathered.bytes == 0 || gathered.bytes + bytes <= GATHERED {
                    gathered.bytes += bytes;
                    gathered.all += bytes;
                    gathered.chunks.extend(data.take());
                    if !gathered.is_timed {
                        // The first goes at once; what follows gathers until the task looks.
                        gathered.is_timed = true;
                        drop(gathered);
                        self.record(kept)?;
                        self.look_later(kept);
                    }
                    return Ok(());
                }
                drop(gathered);
                Arc::clone(&kept.way).acquire_owned()
            };
            let permit = permit.await.map_err(|_| self.cx.left())?;
            hand_over(&self.cx, &self.name, kept, permit)?;
        }
    }

    /// Hands over what has gathered, if no batch is on its way.
    fn record(&self, kept: &DurableStream) -> Result<()> {
        match Arc::clone(&kept.way).try_acquire_owned() {
            Ok(permit) => hand_over(&self.cx, &self.name, kept, permit),
            Err(_) => Ok(()),
        }
    }

    /// Hands over what gathers while the node does something else.
    fn look_later(&self, kept: &DurableStream) {
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
                if hand_over(&cx, &name, &kept, permit).is_err() {
                    return;
                }
            }
        });
    }

    /// Ends the stream. When it returns, all chunks of a durable one are in the log, or on their way there before everything that follows,
    /// the end of the node included; those of another one were said to other processes that watch the run, if the store took them within
    /// half a second. Of a durable stream that is dropped instead, the last 40 ms may be missing; of another one, watchers elsewhere may hear the
    /// last 20 ms after the end of the node.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`]: the run is no longer driven here.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the last chunks may be recorded or not.
    ///
    /// <!-- held by: streaming::a_durable_stream_is_told_once_to_whoever_watches_whenever, streaming_slow::the_end_of_a_stream_waits_until_its_chunks_are_said_and_half_a_second_at_most -->
    pub async fn finish(self) -> Result<()> {
        let Some(kept) = &self.kept else {
            if let (Some(way), Some(shared)) = (&self.way, self.shared.upgrade()) {
                way.flush(&shared).await;
            }
            return Ok(());
        };
        let taken = Arc::clone(&kept.way).acquire_owned().await.map_err(|_| self.cx.left())?;
        hand_over(&self.cx, &self.name, kept, taken)?;
        // The driver gives it back.
        let _taken = kept.way.acquire().await.map_err(|_| self.cx.left())?;
        Ok(())
    }
}

/// Sends the driver what has gathered; the permit is given back when it has taken it.
fn hand_over(
    cx: &NodeContext,
    stream: &str,
    kept: &DurableStream,
    taken: OwnedSemaphorePermit,
) -> Result<()> {
    let batch = kept.gathered.lock().unwrap_or_else(PoisonError::into_inner).take(cx, stream)?;
    match batch {
        Some((name, text)) => cx.hand_over(name, text, taken),
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
