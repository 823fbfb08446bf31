//! Reads a stream: the last message of a subject, the messages of a subject from a position on, and the new messages of all subjects.

use std::time::Duration;

use async_nats::{HeaderMap, Message, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ferrata_store::Timestamp;
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{NO_CONSUMER, NO_MESSAGE, NatsStoreError};
use crate::message::{self, OutgoingMessage, SAID, StoredMessage};
use crate::store::NatsInner;

/// The maximum number of messages in one request.
const BATCH: usize = 500;

/// The maximum number of bytes that a server sends for one request; it may be two messages of the largest size. It is less than the amount by which
/// a server lets a client fall behind.
const BATCH_BYTES: usize = 16 << 20;

/// How long a server waits for messages that a replica lacks.
const PATIENCE: Duration = Duration::from_millis(100);

/// The number of requests to a feed that wrongly returns nothing, before another feed replaces it.
pub(crate) const EMPTY: u32 = 5;

/// How long a server keeps a consumer without readers.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// A message from the leader of the stream.
pub(crate) struct StreamMessage {
    pub(crate) at: u64,
    pub(crate) time: Timestamp,
    pub(crate) said: Option<String>,
    pub(crate) payload: Bytes,
}

#[derive(Deserialize)]
struct GotAnswer {
    message: GotMessage,
}

#[derive(Deserialize)]
struct GotMessage {
    seq: u64,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
    time: String,
}

impl GotMessage {
    fn read(self) -> Option<StreamMessage> {
        let headers = String::from_utf8(STANDARD.decode(self.hdrs).ok()?).ok()?;
        let said = headers.lines().find_map(|line| line.strip_prefix(SAID)?.strip_prefix(": "));
        let time = self.time.parse::<jiff::Timestamp>().ok()?;
        let payload = STANDARD.decode(self.data).ok()?.into();
        let time = Timestamp::from_unix_ms(time.as_millisecond());
        Some(StreamMessage { at: self.seq, time, said: said.map(str::to_owned), payload })
    }
}

#[derive(Deserialize)]
struct StreamCreation {
    name: String,
}

/// A message that a consumer delivered.
pub(crate) struct DeliveredMessage {
    pub(crate) subject: String,
    pub(crate) at: u64,
    pub(crate) time: Timestamp,
    pub(crate) said: Option<String>,
    pub(crate) payload: Bytes,
}

impl DeliveredMessage {
    fn read(message: Message) -> Option<Self> {
        let reply = message.reply?;
        let tokens: Vec<&str> = reply.as_str().split('.').collect();
        // `$JS.ACK.stream.consumer.deliveries.place.count.time.pending`; a later form has a domain and an account before the stream.
        let skipped = if tokens.len() > 9 { 4 } else { 2 };
        let number = |n: usize| tokens.get(skipped + n)?.parse::<u64>().ok();
        let ms = i64::try_from(number(5)? / 1_000_000).ok()?;
        Some(Self {
            subject: message.subject.as_str().to_owned(),
            at: number(3)?,
            time: Timestamp::from_unix_ms(ms),
            said: content_header(message.headers.as_ref()),
            payload: message.payload,
        })
    }
}

fn content_header(headers: Option<&HeaderMap>) -> Option<String> {
    Some(headers?.get(SAID)?.as_str().to_owned())
}

/// A consumer of a stream, from which a process reads message after message.
#[derive(Debug)]
pub(crate) struct StreamFeed {
    stream: String,
    name: String,
}

/// The start position of a feed.
pub(crate) enum FeedStart {
    /// At this message.
    Message(u64),
    /// At the last message of each subject. All new messages follow.
    LastOfEach,
}

/// Whether a feed delivers bodies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyDelivery {
    With,
    Without,
}

/// The server to read messages from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadSource {
    /// The server that has the consumer. A request returns many messages.
    Replica,
    /// The leader of the stream, which has all acknowledged messages. A request returns one message.
    Leader,
}

/// The result of reading the messages of a subject.
enum ScanResult {
    Whole(Vec<DeliveredMessage>),
    /// The last of the requested messages does not exist any more.
    Gone,
    /// The feed does not deliver messages that exist.
    Stuck,
}

/// The maximum number of feeds for one read.
const ATTEMPTS: usize = 8;

impl NatsInner {
    /// Asks the leader of a stream for a message. Returns `None` if it does not exist.
    pub(crate) async fn get(
        &self,
        stream: &str,
        which: Value,
    ) -> Result<Option<StreamMessage>, NatsStoreError> {
        match self.link.api::<GotAnswer>(&format!("STREAM.MSG.GET.{stream}"), &which).await {
            Ok(answer) => {
                let got = answer.message.read();
                got.map(Some).ok_or_else(|| NatsStoreError::corrupt(None, "a message cannot be read"))
            }
            Err(fault) if fault.code() == Some(NO_MESSAGE) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Asks the leader for the last message of a subject.
    pub(crate) async fn last(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<StreamMessage>, NatsStoreError> {
        self.get(stream, json!({ "last_by_subj": subject })).await
    }

    /// Parses a message. Returns `None` for an end. If the description of the records is in the body and the body is missing, requests the body.
    pub(crate) async fn stored(
        &self,
        at: u64,
        said: Option<String>,
        payload: Bytes,
    ) -> Result<Option<StoredMessage>, NatsStoreError> {
        let read = message::read(at, said.as_deref(), &payload)?;
        if !read.as_ref().is_some_and(|stored| stored.lacks_body) {
            return Ok(read);
        }
        match self.get(&self.layout.logs(), json!({ "seq": at })).await? {
            Some(got) => message::read(at, got.said.as_deref(), &got.payload),
            None => Err(NatsStoreError::Busy { what: "the run was pruned or purged during the read" }),
        }
    }

    /// Opens a feed of the subjects that match `filter`.
    pub(crate) async fn feed(
        &self,
        stream: &str,
        filter: &str,
        from: FeedStart,
        bodies: BodyDelivery,
    ) -> Result<StreamFeed, NatsStoreError> {
        let mut config = json!({
            "ack_policy": "none",
            "filter_subject": filter,
            "headers_only": bodies == BodyDelivery::Without,
            "inactive_threshold": u64::try_from(FORGOTTEN.as_nanos()).unwrap_or(u64::MAX),
            "mem_storage": true,
            "num_replicas": 1,
            "replay_policy": "instant",
        });
        match from {
            FeedStart::Message(at) => {
                config["deliver_policy"] = json!("by_start_sequence");
                config["opt_start_seq"] = json!(at.max(1));
            }
            FeedStart::LastOfEach => config["deliver_policy"] = json!("last_per_subject"),
        }
        let body = json!({ "stream_name": stream, "config": config });
        let made: StreamCreation = self.link.api(&format!("CONSUMER.CREATE.{stream}"), &body).await?;
        Ok(StreamFeed { stream: stream.to_owned(), name: made.name })
    }

    /// Reads the next messages, at most those of one request. Returns no messages if none arrives within a short time.
    ///
    /// The feed delivers each message once. So after a failed or dropped call, the feed must not be used again.
    pub(crate) async fn pull(&self, feed: &StreamFeed) -> Result<Vec<DeliveredMessage>, NatsStoreError> {
        let client = self.link.client().await?;
        let mut cut = self.link.lost.subscribe();
        let inbox = client.new_inbox();
        let closed = || NatsStoreError::lost("the connection was closed");
        let subscribed = self.link.wait_bounded(&mut cut, client.subscribe(inbox.clone())).await?;
        let mut replies = subscribed.map_err(|_| closed())?;
        let most = BATCH_BYTES.max(client.max_payload().saturating_mul(2));
        let patience = u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX);
        // With `no_wait`, the reply comes once the available messages are sent. Used alone, it makes servers of version 2.9 report nothing although
        // messages exist, after a removal of messages. These servers also never reply if their messages are removed at that moment.
        let ask = json!({ "batch": BATCH, "max_bytes": most, "no_wait": true, "expires": patience });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", feed.stream, feed.name);
        let asked = client.publish_with_reply(subject, inbox, ask.to_string().into());
        self.link.wait_bounded(&mut cut, asked).await?.map_err(|_| closed())?;
        let mut found = Vec::new();
        while found.len() < BATCH {
            let message = self.link.wait_bounded(&mut cut, replies.next()).await?.ok_or_else(closed)?;
            match message.status {
                None => {}
                Some(StatusCode::NO_RESPONDERS) => {
                    let description = "the consumer no longer exists".to_owned();
                    return Err(NatsStoreError::Refused { code: NO_CONSUMER, status: 404, description });
                }
                // Only this status ends the request: messages that the server sends for an abandoned request would be lost.
                Some(_) => break,
            }
            found.push(
                DeliveredMessage::read(message)
                    .ok_or_else(|| NatsStoreError::strange("a delivery has no position"))?,
            );
        }
        Ok(found)
    }

    /// Closes a feed. The server removes a feed by itself if it is not closed.
    pub(crate) async fn close(&self, feed: StreamFeed) {
        let subject = format!("$JS.API.CONSUMER.DELETE.{}.{}", feed.stream, feed.name);
        if let Err(fault) = self.link.send_unacknowledged(subject, OutgoingMessage::default()).await {
            tracing::debug!(%fault, "could not delete a consumer; the server removes it when it is idle");
        }
    }

    /// Reads the messages of a subject between two positions. Returns `None` if the last of them was removed meanwhile.
    pub(crate) async fn walk(
        &self,
        subject: &str,
        (from, to): (u64, u64),
        bodies: BodyDelivery,
    ) -> Result<Option<Vec<DeliveredMessage>>, NatsStoreError> {
        let stream = self.layout.logs();
        for _ in 0..ATTEMPTS {
            let feed = self.feed(&stream, subject, FeedStart::Message(from), bodies).await?;
            let walked = self.walk_feed(&feed, to).await;
            self.close(feed).await;
            match walked {
                Ok(ScanResult::Whole(found)) => return Ok(Some(found)),
                Ok(ScanResult::Gone) => return Ok(None),
                Ok(ScanResult::Stuck) => {}
                // The consumer's server failed, or lost its replica of the stream. Another server soon takes its place, so wait and try again.
                Err(fault) if fault.code() == Some(NO_CONSUMER) => self.clock.sleep(PATIENCE).await,
                Err(fault) => return Err(fault),
            }
        }
        Err(NatsStoreError::Busy { what: "a replica of the stream is far behind" })
    }

    async fn walk_feed(&self, feed: &StreamFeed, to: u64) -> Result<ScanResult, NatsStoreError> {
        let mut found: Vec<DeliveredMessage> = Vec::new();
        let mut empty = 0;
        while empty < EMPTY {
            let pulled = self.pull(feed).await?;
            if pulled.is_empty() {
                empty += 1;
                // The consumer is on some replica, which may be behind.
                if self.get(&feed.stream, json!({ "seq": to })).await?.is_none() {
                    return Ok(ScanResult::Gone);
                }
            }
            found.extend(pulled);
            if found.last().is_some_and(|last| last.at >= to) {
                found.retain(|message| message.at <= to);
                let is_whole = found.last().is_some_and(|last| last.at == to);
                return Ok(if is_whole { ScanResult::Whole(found) } else { ScanResult::Gone });
            }
        }
        Ok(ScanResult::Stuck)
    }

    /// Like [`walk`](Self::walk), but asks the leader of the stream for one message at a time. The leader has all acknowledged messages.
    async fn walk_leader(
        &self,
        subject: &str,
        (from, to): (u64, u64),
    ) -> Result<Option<Vec<DeliveredMessage>>, NatsStoreError> {
        let (mut found, mut next) = (Vec::new(), from.max(1));
        while next <= to {
            let which = json!({ "seq": next, "next_by_subj": subject });
            let Some(StreamMessage { at, time, said, payload }) =
                self.get(&self.layout.logs(), which).await?
            else {
                break;
            };
            next = at + 1;
            found.push(DeliveredMessage { subject: subject.to_owned(), at, time, said, payload });
        }
        found.retain(|message| message.at <= to);
        Ok(found.last().is_some_and(|last| last.at == to).then_some(found))
    }

    /// Reads the messages of one generation of a run between two positions. Returns `None` if the last of them was removed meanwhile.
    pub(crate) async fn scan(
        &self,
        subject: &str,
        between: (u64, u64),
        bodies: BodyDelivery,
        from: ReadSource,
    ) -> Result<Option<Vec<StoredMessage>>, NatsStoreError> {
        let walked = match from {
            ReadSource::Replica => self.walk(subject, between, bodies).await?,
            ReadSource::Leader => self.walk_leader(subject, between).await?,
        };
        let Some(walked) = walked else { return Ok(None) };
        let mut found = Vec::with_capacity(walked.len());
        for DeliveredMessage { at, said, payload, .. } in walked {
            match self.stored(at, said, payload).await? {
                Some(stored) => found.push(stored),
                // Drop the remains of an incomplete purge.
                None => found.clear(),
            }
        }
        Ok(Some(found))
    }
}
