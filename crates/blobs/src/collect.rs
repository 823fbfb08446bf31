//! Removing values that no record names any more.
//!
//! A value goes in two steps, one grace apart. The first step removes its index entry, so that no later put returns it, and writes a note of the
//! time. If no record names the value one grace later, the second step removes the value. Between the steps, a writer that got the name from a put
//! has one grace to record it. Git and Perforce's proxies remove unreferenced data in the same way.

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

/// The first byte of each envelope of `ferrata-store-envelope`. A record's body is JSON and never starts with it.
const ENVELOPE: u8 = 0xFE;

/// The maximum number of rounds of reading the stores, if runs are removed or pruned meanwhile.
const ROUNDS: u32 = 10;

/// Options of a collection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CollectOptions {
    /// The time that a writer has to record a value's name, and the time that a value stays after the last record that names it. The default is a
    /// week, by the clock of the place.
    pub grace: Duration,
    /// Whether to report only and change nothing. The default is false. With `dry_run`, ages use this machine's clock.
    pub dry_run: bool,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self { grace: Duration::from_secs(7 * 24 * 60 * 60), dry_run: false }
    }
}

impl CollectOptions {
    /// Sets the grace. Longer than any node and any request takes from a put to the record that names the value.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets whether nothing is changed.
    #[must_use]
    pub fn with_dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// The result of a collection; with `dry_run`, the result that it would have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionReport {
    /// The number of runs read.
    pub runs: u64,
    /// The number of values that stay because a record names them.
    pub named: u64,
    /// The number of values that stay within the grace: they are younger, or lost their last name more recently.
    pub waiting: u64,
    /// The number of these values that a later collection removes unless a record names them. No put returns them from now on.
    pub condemned: u64,
    /// The number of removed values.
    pub removed: u64,
    /// The size of the removed values in bytes.
    pub removed_bytes: u64,
}

/// A value at the place.
pub(crate) struct StoredValue {
    pub(crate) path: Path,
    pub(crate) size: u64,
    modified: SystemTime,
}

/// The objects at the place.
#[derive(Default)]
pub(crate) struct StoredObjects {
    pub(crate) values: HashMap<(TenantId, Uuid), StoredValue>,
    pub(crate) entries: HashMap<(TenantId, Uuid), Vec<Path>>,
    condemned: HashMap<(TenantId, Uuid), StoredValue>,
}

impl Blobs {
    /// Removes values of all tenants that no record of these stores names, in two steps that are a grace apart: call it every day.
    ///
    /// Pass **every store whose runs have names of values at this place**, with the keys of encrypted stores. The collection removes values named
    /// only in stores that are missing here. It reads each store and all of its records.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`]: a store or the place failed, or runs were removed in every round of reading. Call it again; if the error names
    ///   a file or an object, first make that readable.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: a run or one of its records is unreadable, so its names are unknown. Restore, purge or
    ///   upgrade first. Nothing was removed.
    /// - [`ErrorKind::Invalid`]: a record is in an envelope. Pass the `EnvelopeStore` instead of the store inside. Nothing was removed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was not removed is removed by the next.
    pub async fn collect(
        &self,
        stores: &[&dyn CheckpointStore],
        options: CollectOptions,
    ) -> Result<CollectionReport> {
        // The order is what makes it safe: the time and the values first, then what names them.
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
                // A put that stood still for the grace has entered it since, so later puts may have returned it: it begins with the first step again.
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
            // The value is gone: an earlier collection removed it and ended before it removed this object.
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

    /// Asks the place for its time: all ages are by one clock.
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

/// The time by the clock of this machine.
fn local_time() -> SystemTime {
    let since = u64::try_from(SystemClock::new().now().unix_ms()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_millis(since)
}

/// Returns the ids of all values that a record of these stores names, and how many runs there are.
///
/// A name may be copied from one run to another during the reads, and the first run removed before it is read. Then only the unread copy names the
/// value. So after a round that lost a run before reading it, the next round reads all changes. A round without a loss has read every run that
/// existed when it began, and each later name is a copy of one of theirs. The copy may be in another store, so a round lists all stores before it
/// reads any. At least two rounds run: the second finds runs that a wrong clock hid from the first listing, and runs that moved to an already listed
/// store.
async fn list_named(stores: &[&dyn CheckpointStore]) -> Result<(HashSet<Uuid>, u64)> {
    let mut ids = HashSet::new();
    // The last record read of each run of a store.
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

/// Lists all runs, oldest first, so that a run created meanwhile is listed too.
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

/// Reads all records of a run, and its facts. Returns false if records that were listed are gone.
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
