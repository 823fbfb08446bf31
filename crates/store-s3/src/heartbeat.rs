//! Heartbeats of executors: one object for each executor. The server dates the objects.

use std::time::Duration;

use ferrata_store::ExecutorId;
use serde::{Deserialize, Serialize};

use crate::bucket::ServerTime;
use crate::error::S3StoreError;
use crate::inner::S3Inner;

/// The extra time for which a heartbeat counts. The server's dates have no fraction of a second, and an executor must not look dead too early.
const GRAIN: ServerTime = 1_000;

/// How long the object of an executor that did not sign off stays after its expiry, before a setup removes it.
const REMEMBERED: ServerTime = 24 * 60 * 60 * 1_000;

#[derive(Debug, Serialize, Deserialize)]
struct HeartbeatObject {
    ttl_ms: u64,
}

impl S3Inner {
    /// Records that an executor is alive, or has ended.
    pub(crate) async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<(), S3StoreError> {
        let key = self.layout.executor(executor);
        if ttl.is_zero() {
            return self.bucket.delete(&key).await;
        }
        let beat = HeartbeatObject { ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX) };
        let json = serde_json::to_vec(&beat).unwrap_or_default();
        self.bucket.put(&key, json.into()).await.map(drop)
    }

    /// Returns whether an executor's heartbeat has not expired.
    pub(crate) async fn is_alive(&self, executor: &ExecutorId) -> Result<bool, S3StoreError> {
        Ok(self.time_left(&self.layout.executor(executor)).await?.is_some_and(|left| left > 0))
    }

    /// Returns how long a heartbeat is still valid; negative if it has expired, and `None` if it does not exist.
    async fn time_left(&self, key: &str) -> Result<Option<ServerTime>, S3StoreError> {
        let Some(object) = self.bucket.get(key, None).await? else { return Ok(None) };
        let Ok(beat) = serde_json::from_slice::<HeartbeatObject>(&object.value.bytes) else {
            tracing::warn!(key, "ignored an unreadable heartbeat");
            return Ok(None);
        };
        let now = object.at.ok_or_else(|| S3StoreError::Nonsense {
            key: key.to_owned(),
            what: "the answer has no time".into(),
        })?;
        let ttl = i64::try_from(beat.ttl_ms).unwrap_or(i64::MAX);
        let end = object.value.modified.saturating_add(ttl).saturating_add(GRAIN);
        Ok(Some(end.saturating_sub(now)))
    }

    /// Removes the heartbeats of executors that ended long ago.
    pub(crate) async fn sweep_executors(&self) -> Result<(), S3StoreError> {
        let listed = self.bucket.list(&self.layout.executors(), None, 1_000).await?;
        let Some(now) = listed.at else { return Ok(()) };
        for item in listed.value.items {
            if item.modified < now.saturating_sub(REMEMBERED)
                && self.time_left(&item.key).await?.is_none_or(|left| left < -REMEMBERED)
            {
                self.bucket.delete(&item.key).await?;
            }
        }
        Ok(())
    }
}
