//! Heartbeats of executors: one message for each executor, with a timestamp of the server.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ferrata_store::{ExecutorId, Timestamp};
use futures_util::future::try_join_all;

use crate::error::NatsStoreError;
use crate::message::OutgoingMessage;
use crate::store::NatsInner;

/// How long the store estimates the server's time from the last reply. It does so only where a small error has no effect.
const RECKONED: Duration = Duration::from_millis(200);

/// The server's time, and the time on this process's monotonic clock at which it was received.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<(Duration, Timestamp)>>);

impl ServerTime {
    fn reckoned(&self, now: Duration) -> Option<Timestamp> {
        let said = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (heard, time) = said?;
        let since = now.saturating_sub(heard);
        (since <= RECKONED).then(|| time.plus(since))
    }

    fn update(&self, now: Duration, time: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, time));
    }
}

impl NatsInner {
    pub(crate) async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<(), NatsStoreError> {
        self.generation().await?;
        // Round up, so that a heartbeat never ends too early.
        let ms = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let subject = self.layout.beat(executor);
        self.link.publish(None, &subject, OutgoingMessage::plain(ms.to_string())).await.map(drop)
    }

    /// Returns the server's time. Writes a message and reads its timestamp.
    pub(crate) async fn now(&self) -> Result<Timestamp, NatsStoreError> {
        let subject = self.layout.now();
        self.link.publish(None, &subject, OutgoingMessage::default()).await?;
        let got = self.last(&self.layout.beats(), &subject).await?;
        let time = got.ok_or_else(|| NatsStoreError::strange("a written message is missing"))?.time;
        self.time.update(self.clock.monotonic(), time);
        Ok(time)
    }

    /// Returns the server's time: an estimate if the last reply is recent, otherwise a new reply.
    pub(crate) async fn estimated_now(&self) -> Result<Timestamp, NatsStoreError> {
        match self.time.reckoned(self.clock.monotonic()) {
            Some(time) => Ok(time),
            None => self.now().await,
        }
    }

    pub(crate) async fn is_alive(&self, executor: &ExecutorId) -> Result<bool, NatsStoreError> {
        let now = self.estimated_now().await?;
        Ok(!self.alive([*executor].into(), now).await?.is_empty())
    }

    /// Returns the executors whose heartbeats have not expired at the server's time `now`.
    pub(crate) async fn alive(
        &self,
        executors: HashSet<ExecutorId>,
        now: Timestamp,
    ) -> Result<HashSet<ExecutorId>, NatsStoreError> {
        let stream = self.layout.beats();
        let asked = executors.into_iter().map(async |executor| {
            let got = self.last(&stream, &self.layout.beat(&executor)).await?;
            let until = got.and_then(|got| {
                let ms: u64 = std::str::from_utf8(&got.payload).ok()?.parse().ok()?;
                (ms > 0).then(|| got.time.plus(Duration::from_millis(ms)))
            });
            Ok::<_, NatsStoreError>(until.is_some_and(|until| until > now).then_some(executor))
        });
        Ok(try_join_all(asked).await?.into_iter().flatten().collect())
    }
}
