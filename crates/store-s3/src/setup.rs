//! Prepares a bucket: writes the marker of the layout, and tests whether the server supports conditional writes.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use ferrata_store::IdSource as _;
use serde::{Deserialize, Serialize};

use crate::bounded_join::{self, Task};
use crate::bucket::PutResult;
use crate::codes::RefusalKind;
use crate::error::S3StoreError;
use crate::inner::{ATTEMPTS, S3Inner};
use crate::layout::VERSION;

/// The contents of the marker.
#[derive(Debug, Serialize, Deserialize)]
struct LayoutMarker {
    /// The version of the layout. The markers of unreleased versions have none.
    #[serde(default)]
    version: u32,
}

fn unfit(what: impl Into<String>) -> S3StoreError {
    S3StoreError::Unfit { what: what.into() }
}

impl S3Inner {
    /// Sets up the bucket. Changes no existing object.
    pub(crate) async fn set_up(&self) -> Result<(), S3StoreError> {
        self.mark().await?;
        let name = self.ids.next(self.clock.now()).to_string();
        let probed = self.probe(&name).await;
        let used = 1 + self.options.probe_rounds.get();
        let keys: Vec<_> = (0..used).map(|number| (self.layout.probe(&name, number), None)).collect();
        let swept = self.bucket.delete_all(&keys).await;
        probed.and(swept)?;
        self.sweep_executors().await
    }

    /// Checks the layout before the first read or write. Writes nothing, because a reader may have no permission to write.
    pub(crate) async fn ready(&self) -> Result<(), S3StoreError> {
        if self.is_marked.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.read_mark().await.map(drop)
    }

    async fn mark(&self) -> Result<(), S3StoreError> {
        let json = serde_json::to_vec(&LayoutMarker { version: VERSION }).unwrap_or_default();
        for attempt in 0..ATTEMPTS {
            if self.read_mark().await? {
                return Ok(());
            }
            // All processes write the same marker, so it does not matter which process wins.
            match self.bucket.put_new(&self.layout.marker(), json.clone().into()).await {
                Ok(_) => {}
                Err(fault) if matches!(fault.sort(), RefusalKind::Busy | RefusalKind::Unsure) => {}
                Err(fault) => return Err(fault),
            }
            self.pause(attempt).await;
        }
        Err(unfit("a written object cannot be read back"))
    }

    async fn read_mark(&self) -> Result<bool, S3StoreError> {
        let key = self.layout.marker();
        let Some(object) = self.bucket.get(&key, None).await? else { return Ok(false) };
        let marker: LayoutMarker = serde_json::from_slice(&object.value.bytes).map_err(|error| {
            S3StoreError::Damaged { key: key.clone(), seq: None, what: error.to_string() }
        })?;
        match marker.version {
            VERSION => {
                self.is_marked.store(true, Ordering::Relaxed);
                Ok(true)
            }
            0 => Err(S3StoreError::Unreleased { key }),
            found => Err(S3StoreError::Newer { key, found, known: VERSION }),
        }
    }

    /// Tests whether the server does everything that the store relies on. Fails if the server does not.
    async fn probe(&self, name: &str) -> Result<(), S3StoreError> {
        let key = self.layout.probe(name, 0);
        let first = self.decide(&key, "first").await?;
        let PutResult::Done(etag) = first else {
            return Err(unfit("it rejects a write to a key that does not exist"));
        };
        if self.decide(&key, "second").await? != PutResult::Lost {
            return Err(unfit("it ignores `If-None-Match: *`: a second write replaced the first"));
        }
        let found = self.bucket.get(&key, None).await?;
        let Some(found) = found else {
            return Err(unfit("a written object cannot be read back"));
        };
        if found.value.bytes != "first" {
            return Err(unfit("it rejected a second write but stored it"));
        }
        if found.at.is_none() {
            return Err(unfit("its answers have no `Date` header"));
        }
        let listed = self.bucket.list(&key, None, 2).await?.value.items;
        if listed.first().is_none_or(|item| item.key != key || item.size != 5) {
            return Err(unfit("its listing omits an object that was just written"));
        }
        if self.bucket.put_over(&key, "\"0123456789abcdef0123456789abcdef\"", "x".into()).await?
            != PutResult::Lost
        {
            return Err(unfit("it ignores `If-Match`: it replaced an object with another tag"));
        }
        if !matches!(self.bucket.put_over(&key, &etag, "third".into()).await?, PutResult::Done(_)) {
            return Err(unfit("it rejects `If-Match` with the object's own tag"));
        }
        self.bucket.delete(&key).await?;
        if !self.bucket.list(&key, None, 1).await?.value.items.is_empty() {
            return Err(unfit("its listing shows an object that was just deleted"));
        }
        for round in 1..=self.options.probe_rounds.get() {
            self.race(&self.layout.probe(name, round)).await?;
        }
        Ok(())
    }

    /// Makes a conditional write. Repeats it if the server does not decide.
    async fn decide(&self, key: &str, text: &'static str) -> Result<PutResult, S3StoreError> {
        for attempt in 0..ATTEMPTS {
            match self.bucket.put_new(key, Bytes::from_static(text.as_bytes())).await?.value {
                PutResult::Undecided => self.pause(attempt).await,
                decided => return Ok(decided),
            }
        }
        Err(unfit("it never completes a conditional write, even without another writer"))
    }

    /// Tests many concurrent writers of one key, because some servers check the condition first and write later.
    async fn race(&self, key: &str) -> Result<(), S3StoreError> {
        let writers = self.options.probe_writers.get();
        let put = async |number: usize| {
            let text = Bytes::from(format!("writer {number}"));
            let put = self.bucket.put_new(key, text.clone()).await?;
            Ok(matches!(put.value, PutResult::Done(_)).then_some(text))
        };
        let tasks = (0..writers).map(|number| Box::pin(put(number)) as Task<'_, _>);
        // Send all writes at once, even if that is more than the configured limit, because this is the purpose of the test. Await all of them: a
        // dropped request may still write.
        let puts = bounded_join::each(tasks.collect(), writers).await;
        let puts: Vec<Option<Bytes>> = puts.into_iter().collect::<Result<_, S3StoreError>>()?;
        let winners: Vec<Bytes> = puts.into_iter().flatten().collect();
        if winners.len() > 1 {
            let what = format!("of {writers} writers of one new object at once, {} succeeded", winners.len());
            return Err(unfit(what));
        }
        let found = self.bucket.get(key, None).await?.map(|object| object.value.bytes);
        match (winners.first(), found) {
            (Some(winner), Some(found)) if *winner == found => Ok(()),
            // The server may have asked every writer to retry.
            (None, None) => Ok(()),
            _ => Err(unfit("an object does not have the content of the writer that succeeded")),
        }
    }
}
