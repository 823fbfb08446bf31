//! Removes values that no record names.
//!
//! A value is removed in two steps, which are at least one grace period apart. The first step removes the index entry of the value, so that no later
//! put returns it, and stores a note with the time. If no record names the value one grace period later, the second step removes the value. A writer
//! that got the name from a put before the first step has one grace period to record the name. Git and Perforce's proxies remove unreferenced data in
//! the same way.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ferrata_store::{
    CheckpointStore, Clock as _, Error, ErrorKind, HeadRef, IdSource as _, Order, Page, Record, Result,
    RunHead, RunKey, RunQuery, SystemClock, TenantId, for_each_record,
};
use futures_util::TryStreamExt as _;
use object_store::{ObjectStoreExt as _, path::Path};
use uuid::Uuid;

use crate::blob::collect_blob_ids;
use crate::blobs::Blobs;
use crate::place::{self, ObjectKind};

/// The first byte of each encrypted record of `ferrata-store-envelope`. The body of a plain record is JSON and never starts with this byte.
const ENVELOPE: u8 = 0xFE;

/// The maximum number of times that a collection reads the stores, if runs are removed or pruned during the reads.
const ROUNDS: u32 = 10;

/// Options of [`Blobs::collect`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CollectOptions {
    /// The grace period: the time that a writer has to record a value's name, and the time that a value stays after no record names it. The default
    /// is a week. The clock of the object store counts.
    pub grace: Duration,
    /// Whether the call only reports and changes nothing. The default is false. With `dry_run`, the clock of this machine counts.
    pub dry_run: bool,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self { grace: Duration::from_secs(7 * 24 * 60 * 60), dry_run: false }
    }
}

impl CollectOptions {
    /// Sets the grace period. The grace period must be longer than any node or request takes from a put to the record that names the value.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets whether the call only reports and changes nothing.
    #[must_use]
    pub fn with_dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// The result of a collection. With `dry_run`, the result that the collection would have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionReport {
    /// The number of runs that were read.
    pub runs: u64,
    /// The number of values that stay because a record names them.
    pub named: u64,
    /// The number of values that no record names but that stay for now, because their grace period has not ended.
    pub waiting: u64,
    /// The number of values in `waiting` that passed the first step. A later collection removes them unless a record names them. No put returns their
    /// names.
    pub condemned: u64,
    /// The number of removed values.
    pub removed: u64,
    /// The total size of the removed values in bytes.
    pub removed_bytes: u64,
}

/// A value in the object store.
pub(crate) struct StoredValue {
    pub(crate) path: Path,
    pub(crate) size: u64,
    modified: SystemTime,
}

/// The objects of the blobs in the object store.
#[derive(Default)]
pub(crate) struct StoredObjects {
    pub(crate) values: HashMap<(TenantId, Uuid), StoredValue>,
    pub(crate) entries: HashMap<(TenantId, Uuid), Vec<Path>>,
    condemned: HashMap<(TenantId, Uuid), StoredValue>,
}

impl Blobs {
    /// Removes the values of all tenants that no record of these stores names. A value is removed in two steps, one grace period apart, so call this
    /// method every day.
    ///
    /// Pass **every store whose runs name values in this object store**. Wrap an encrypted store in its `EnvelopeStore`. If a store is missing, the
    /// collection removes the values that only this store names. The call reads all records of each store.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`]: a store or the object store failed, or runs were removed during each read. Call it again. If the error names a
    ///   file or an object, first make that file or object readable.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: a run or one of its records is unreadable, so its names are unknown. Restore or purge
    ///   the run, or upgrade this process. Nothing was removed.
    /// - [`ErrorKind::Invalid`]: a record is encrypted. Pass the `EnvelopeStore` instead of the store that it wraps. Nothing was removed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call removes the remaining values.
    pub async fn collect(
        &self,
        stores: &[&dyn CheckpointStore],
        options: CollectOptions,
    ) -> Result<CollectionReport> {
        // The order makes the collection safe: first read the time and list the values, then read the records that name them.
        let now = if options.dry_run { local_time() } else { self.time().await? };
        let found = self.list_objects().await?;
        let (named, runs) = list_named(stores).await?;
        // A time in the future counts as age zero.
        let is_old = |at: SystemTime| now.duration_since(at).unwrap_or_default() >= options.grace;
        let mut collected = CollectionReport { runs, ..CollectionReport::default() };
        for (key, value) in &found.values {
            let condemned = found.condemned.get(key);
            if named.contains(&key.1) {
                collected.named += 1;
                // Do not restore the index entry: a concurrent collection may have condemned the value.
                if let Some(note) = condemned.filter(|_| !options.dry_run) {
                    self.delete(&note.path).await?;
                }
                continue;
            }
            match condemned {
                // A put may have stalled for the grace period, and then have written the index entry. Later puts may return this value, so it starts
                // with the first step again.
                Some(note) if is_old(note.modified) && !found.entries.contains_key(key) => {
                    collected.removed += 1;
                    collected.removed_bytes += value.size;
                    if !options.dry_run {
                        self.delete(&value.path).await?;
                        self.delete(&note.path).await?;
                    }
                }
                _ if is_old(condemned.map_or(value.modified, |note| note.modified)) => {
                    collected.waiting += 1;
                    collected.condemned += 1;
                    if !options.dry_run {
                        for entry in found.entries.get(key).into_iter().flatten() {
                            self.delete(entry).await?;
                        }
                        let note = place::path(&key.0, ObjectKind::Condemned, &[&key.1.simple().to_string()]);
                        self.objects.put(&note, Bytes::new().into()).await.map_err(place::failed)?;
                    }
                }
                _ => collected.waiting += 1,
            }
        }
        if !options.dry_run {
            // The value no longer exists: an earlier collection removed it, and stopped before it removed this object.
            let orphans = found
                .condemned
                .iter()
                .filter(|(key, note)| !found.values.contains_key(key) && is_old(note.modified));
            for (_, note) in orphans {
                self.delete(&note.path).await?;
            }
        }
        Ok(collected)
    }

    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(place::failed(error)),
        }
    }

    /// Asks the object store for its time, so that all ages come from one clock.
    async fn time(&self) -> Result<SystemTime> {
        let id = self.ids.next(SystemClock::new().now()).simple().to_string();
        let path = place::path(&self.tenant, ObjectKind::Clock, &[&id]);
        self.objects.put(&path, Bytes::new().into()).await.map_err(place::failed)?;
        let written = self.objects.head(&path).await.map_err(place::failed)?;
        self.delete(&path).await?;
        Ok(written.last_modified.into())
    }

    pub(crate) async fn list_objects(&self) -> Result<StoredObjects> {
        let mut found = StoredObjects::default();
        let mut objects = self.objects.list(None);
        while let Some(object) = objects.try_next().await.map_err(place::failed)? {
            let Some((tenant, kind, id)) = place::read(&object.location) else { continue };
            let key = (tenant, id);
            let kept = StoredValue {
                path: object.location,
                size: object.size,
                modified: object.last_modified.into(),
            };
            match kind {
                ObjectKind::Data => drop(found.values.insert(key, kept)),
                ObjectKind::Index => found.entries.entry(key).or_default().push(kept.path),
                ObjectKind::Condemned => drop(found.condemned.insert(key, kept)),
                ObjectKind::Clock => {}
            }
        }
        Ok(found)
    }
}

/// Returns the time of this machine's clock.
fn local_time() -> SystemTime {
    let since = u64::try_from(SystemClock::new().now().unix_ms()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_millis(since)
}

/// Returns the ids of all values that a record of these stores names, and the number of runs.
///
/// During the reads, a name may be copied from one run to another, and the first run may be removed before it is read. In this case, only the copy
/// names the value, and the copy was not read. So after a round that missed a removed run, the next round reads all changes. A round that missed no
/// run has read every run that existed when the round began, and each later name is a copy from one of these runs. The copy may be in another store,
/// so a round lists all stores before it reads any of them. A collection makes at least two rounds of reads. The second round finds runs that a wrong
/// clock hid from the first listing, and runs that moved to a store that was already listed.
async fn list_named(stores: &[&dyn CheckpointStore]) -> Result<(HashSet<Uuid>, u64)> {
    let mut ids = HashSet::new();
    // The last record that was read, for each run of a store.
    let mut read: HashMap<(usize, RunKey), HeadRef> = HashMap::new();
    let mut rounds = 0;
    loop {
        let mut listed = Vec::with_capacity(stores.len());
        for store in stores {
            listed.push(heads(*store).await?);
        }
        let mut is_lost = false;
        for (index, heads) in listed.into_iter().enumerate() {
            for head in heads {
                let place = (index, head.run.clone());
                if read.get(&place) != Some(&head.head()) {
                    is_lost |= !scan(stores[index], &head, &mut ids).await?;
                    read.insert(place, head.head());
                }
            }
        }
        rounds += 1;
        if rounds > 1 && !is_lost {
            return Ok((ids, read.len() as u64));
        }
        if rounds == ROUNDS {
            let message = "cannot read a stable list of runs, because runs keep being purged or pruned; nothing was collected; retry at a \
                quieter time";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
    }
}

/// Lists all runs, oldest first, so that the listing includes runs that are created during it.
async fn heads(store: &dyn CheckpointStore) -> Result<Vec<RunHead>> {
    let mut all = Vec::new();
    let mut page = Page::first(Page::MAX).with_order(Order::OldestFirst);
    // Include every run: a value named only in an excluded run would count as unused.
    let mut query = RunQuery::default();
    query.complete = true;
    loop {
        let listed = store.runs(&query, page.clone()).await?;
        all.extend(listed.items);
        match listed.next {
            Some(next) => page = page.with_cursor(next),
            None => return Ok(all),
        }
    }
}

/// Reads all records of a run, and its facts. Returns false if listed records no longer exist.
async fn scan(store: &dyn CheckpointStore, head: &RunHead, ids: &mut HashSet<Uuid>) -> Result<bool> {
    let labels = head.facts.labels.iter().map(|(_, value)| value);
    labels.chain(head.facts.user.as_deref()).for_each(|text| collect_blob_ids(text.as_bytes(), ids));
    let take = |record: &Record| {
        if record.body.first() == Some(&ENVELOPE) {
            let message = "the record is compressed or encrypted, so the blobs that it names are unknown; pass the `EnvelopeStore` to the \
                collection, not the store inside";
            let error = Error::new(ErrorKind::Invalid, message);
            return Err(error.with_run(&head.run).with_seq(record.header.seq));
        }
        collect_blob_ids(&record.body, ids);
        Ok(())
    };
    for_each_record(store, head, take).await
}
