//! The two relay tasks of a process: one sends, one receives.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::{Clock, within};
use crate::id::ExecutorId;
use crate::kernel::feed::relay::state::{LASTS, RelayBatch, RelayChunk};
use crate::kernel::feed::relay::text::{RelayInbox, RelayMessage, write};
use crate::kernel::feed::watch_event::LiveEvent;
use crate::kernel::inner::RuntimeInner;
use crate::store::{MAX_TEXT_BYTES, RelayTexts};

/// The time for which chunks are collected after a send. It limits the number of sends to fifty per second.
const GATHER: Duration = Duration::from_millis(20);

/// The time limit for the store to pass a message on.
const PATIENCE: Duration = Duration::from_secs(2);

/// The delay before the receiving task retries after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// The maximum number of runs in a message.
const RUNS: usize = 500;

/// Sends queued messages until the runtime ends.
pub(super) async fn send_messages(weak: Weak<RuntimeInner>) {
    {
        let Some(shared) = weak.upgrade() else { return };
        let mut hears = shared.relayed().hears.subscribe();
        // Answers would be lost otherwise.
        let _ = within(&*shared.clock, PATIENCE, hears.wait_for(|hears| *hears)).await;
    }
    let mut message = 0;
    loop {
        let Some(shared) = weak.upgrade() else { return };
        let (relayed, clock) = (Arc::clone(shared.relayed()), Arc::clone(&shared.clock));
        let taken = relayed.state().take(clock.monotonic());
        let (after, holds) = (taken.after, taken.holds);
        let texts = texts(shared.executor, &mut message, taken);
        let is_much = !texts.is_empty();
        if let Some(relay) = shared.store.relay().filter(|_| is_much) {
            match within(&*clock, PATIENCE, relay.publish(texts)).await {
                Some(Ok(())) => {}
                // Watchers notice the gap by the chunk numbers.
                Some(Err(error)) => {
                    tracing::debug!(%error, "cannot send chunks of streams to other processes")
                }
                None => tracing::debug!("dropped chunks of streams; the store forwards them too slowly"),
            }
        }
        relayed.said.send_replace(after);
        drop(shared);
        if is_much || holds {
            tokio::select! {
                biased;
                () = relayed.hurry.notified() => {}
                () = clock.sleep(GATHER) => {}
            }
        } else {
            relayed.bell.notified().await;
        }
    }
}

/// Serializes the batch.
fn texts(by: ExecutorId, message: &mut u64, taken: RelayBatch) -> Vec<String> {
    let mut texts = Vec::new();
    let mut add = |said: RelayMessage| {
        texts.extend(write(by, *message, &said));
        *message += 1;
    };
    if taken.asks {
        add(RelayMessage::Asks);
    }
    taken.wants.chunks(RUNS).for_each(|runs| add(RelayMessage::Wants { runs: runs.to_vec() }));
    joined(taken.chunks).into_iter().for_each(add);
    texts
}

/// Joins consecutive chunks of a stream into messages, as far as they fit into one text.
fn joined(all: impl IntoIterator<Item = RelayChunk>) -> Vec<RelayMessage> {
    // Room for the names of the stream.
    const ROOM: usize = MAX_TEXT_BYTES - 1_000;
    let mut joined: Vec<RelayMessage> = Vec::new();
    let mut bytes = 0;
    for (of, number, data) in all {
        let more = data.get().len() + 1;
        match joined.last_mut() {
            Some(RelayMessage::Chunks { stream, first, chunks })
                if *stream == *of && *first + chunks.len() as u64 == number && bytes + more <= ROOM =>
            {
                bytes += more;
                chunks.push(data);
            }
            _ => {
                bytes = more;
                joined.push(RelayMessage::Chunks {
                    stream: (*of).clone(),
                    first: number,
                    chunks: vec![data],
                });
            }
        }
    }
    joined
}

/// Receives messages of other processes until the runtime ends.
pub(super) async fn receive_messages(weak: Weak<RuntimeInner>) {
    loop {
        let Some(shared) = weak.upgrade() else { return };
        let clock = Arc::clone(&shared.clock);
        let Some(relay) = shared.store.relay() else { return };
        let begun = within(&*clock, PATIENCE, relay.listen()).await;
        match begun {
            Some(Ok(texts)) => {
                shared.relayed().hears.send_replace(true);
                drop(shared);
                return listen(&weak, &*clock, texts).await;
            }
            failed => {
                tracing::debug!(?failed, "cannot receive chunks of streams from other processes; will retry")
            }
        }
        drop(shared);
        clock.sleep(RETRY).await;
    }
}

async fn listen(weak: &Weak<RuntimeInner>, clock: &dyn Clock, mut texts: RelayTexts) {
    let Some(relayed) = weak.upgrade().map(|shared| Arc::clone(shared.relayed())) else { return };
    let mut inbox = RelayInbox::default();
    // Runs while this process has watches.
    let mut again: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
    loop {
        let is_late = async {
            match again.as_mut() {
                Some(again) => again.await,
                None => std::future::pending().await,
            }
        };
        let text = tokio::select! {
            biased;
            () = relayed.news.notified() => {
                again.get_or_insert_with(|| clock.sleep(LASTS / 3));
                None
            }
            () = is_late => {
                let Some(shared) = weak.upgrade() else { return };
                again = announce(&shared).then(|| clock.sleep(LASTS / 3));
                None
            }
            text = texts.next() => match text {
                Ok(text) => text,
                Err(_) => return,
            },
        };
        let Some(shared) = weak.upgrade() else { return };
        if let Some(said) = text.and_then(|text| inbox.read(shared.executor, &text)) {
            take(&shared, said);
        }
    }
}

/// Announces the watches of this process. Returns whether there are any.
fn announce(shared: &RuntimeInner) -> bool {
    let runs = shared.feeds().watched();
    let is_watched = !runs.is_empty();
    if is_watched {
        let relayed = shared.relayed();
        relayed.state().announce(runs);
        relayed.bell.notify_one();
    }
    is_watched
}

/// Handles a message of another process.
fn take(shared: &RuntimeInner, said: RelayMessage) {
    let relayed = shared.relayed();
    match said {
        RelayMessage::Asks => drop(announce(shared)),
        RelayMessage::Wants { runs } => relayed.state().store_interest(runs, shared.clock.monotonic()),
        RelayMessage::Chunks { stream, first, chunks } if shared.has_subscribers() => {
            let heard = relayed.state().streams.record_received(&stream, first, chunks.len() as u64);
            let Some((missed, known)) = heard else { return };
            if missed > 0 {
                shared.feeds().report_missed(&stream.run, missed);
            }
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            for (number, data) in (first..).zip(chunks).skip(known) {
                shared.feeds().publish_live(&stream.run, || LiveEvent::Chunk {
                    node: stream.node.clone(),
                    visit: stream.visit,
                    attempt: stream.attempt,
                    stream: Arc::clone(&stream.name),
                    number,
                    data,
                });
            }
        }
        RelayMessage::Chunks { .. } => {}
    }
}
