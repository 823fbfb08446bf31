//! Prunes and purges. Both write the remaining data first. They keep keys taken for as long as a suspended writer could use them.

use bytes::Bytes;
use ferrata_store::{HeadRef, PruneCut, Record, Removed, RunKey, Seq, check_prune};

use crate::bounded_join::{self, Task};
use crate::bucket::{ListedObject, PutResult, ServerTime};
use crate::codes::RefusalKind;
use crate::error::S3StoreError;
use crate::inner::{ATTEMPTS, KEPT, READS, S3Inner};
use crate::layout::{ObjectPlace, Tree};
use crate::object::{GONE, LogCut};
use crate::read::LogObject;
use crate::view::{OpenedLog, RunLookup};

/// The maximum number of attempts of a purge to end a run that receives appends meanwhile. It is more than the number of appends that fit before a
/// row of marks.
const ENDS: u32 = 600;

/// The number of these attempts with a single mark at the end of the log. Later attempts use a row of marks after a gap.
const STRAIGHT: u32 = 10;

/// The first distance of the end mark from the end of the log. It is more than a writer appends during the write of the marks.
const AHEAD: u64 = 256;

/// The number of marks in a row. It equals the maximum number of records of an urgent append: with fewer marks, such an append could jump over the
/// row.
const ROW: u64 = 64;

impl S3Inner {
    /// Turns the record at the cut into a base, makes the log begin there, and removes the earlier records.
    pub(crate) async fn prune(&self, run: &RunKey, cut: &PruneCut) -> Result<Removed, S3StoreError> {
        for attempt in 0..READS {
            let log = self.open(run).await?.ok_or(S3StoreError::NoRun)?;
            match self.prune_from(run, &log, cut).await {
                Err(fault) if fault.is_damage() && self.has_changed(run, &log).await? => {}
                Ok(None) => self.pause(attempt).await,
                Ok(Some(pruned)) => return Ok(pruned),
                Err(fault) => return Err(fault),
            }
        }
        Err(S3StoreError::Restless { what: self.layout.run(run) })
    }

    /// Returns `None` if another caller pruned meanwhile.
    async fn prune_from(
        &self,
        run: &RunKey,
        log: &OpenedLog,
        cut: &PruneCut,
    ) -> Result<Option<Removed>, S3StoreError> {
        let (first, last, at) = (log.first(), log.last(), cut.at.get());
        if at > last {
            let (at, first, last) = (ferrata_store::At::Seq(cut.at), Seq::new(first), Seq::new(last));
            return Err(S3StoreError::NoRecord { at, first, last });
        }
        if at < first {
            return Ok(Some(Removed::default()));
        }
        let mut chunk = self.chunk_with(run, log, at).await?;
        let place = usize::try_from(at - chunk.head.first()).unwrap_or(usize::MAX);
        let header = chunk.records.get(place).map(|record| &record.header).ok_or(S3StoreError::NoRun)?;
        let base = check_prune(run, header, cut).map_err(S3StoreError::Checked)?.cloned();
        let is_first_object = chunk.head.start == 0;
        if let Some(base) = base {
            chunk.records[place] = base;
            // If the record is in the first object, one write stores the base and the cut.
            if !is_first_object && !self.rewrite(&mut chunk, 0).await? {
                return Ok(None);
            }
        }
        let kept: u64 = chunk.records[place..].iter().map(|record| record.body.len() as u64).sum();
        let dropped = i64::try_from(i128::from(chunk.head.bytes) - i128::from(kept)).unwrap_or(i64::MAX);
        let pruned = Removed {
            records: at - first,
            bytes: u64::try_from(dropped.saturating_sub(log.cut().dropped)).unwrap_or(0),
        };
        if at > first {
            let cut = LogCut { first: at, object: chunk.head.start, dropped };
            if !self.move_cut(run, log, cut, is_first_object.then_some(&chunk.records[place..])).await? {
                return Ok(None);
            }
        }
        // From here on, the log begins at the cut. The following steps only remove garbage.
        if !is_first_object && chunk.head.first() < at {
            self.rewrite(&mut chunk, place).await?;
        }
        self.clear_below(run, log, chunk.head.start).await?;
        Ok(Some(pruned))
    }

    /// Rewrites an object with only its records from `from` on. Returns whether the object was unchanged since it was read.
    pub(crate) async fn rewrite(&self, chunk: &mut LogObject, from: usize) -> Result<bool, S3StoreError> {
        chunk.records.drain(..from);
        chunk.head = chunk.head.clone().with_records(&chunk.records);
        let bytes = chunk.head.encode(self.layout.below_logs(&chunk.key), &chunk.records);
        match self.replace(&chunk.key, &chunk.etag, bytes).await? {
            Some(etag) => {
                chunk.etag = etag;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Records in the first object where the log begins. Returns whether that object was unchanged since it was read.
    async fn move_cut(
        &self,
        run: &RunKey,
        log: &OpenedLog,
        cut: LogCut,
        records: Option<&[Record]>,
    ) -> Result<bool, S3StoreError> {
        let records = records.unwrap_or_default();
        let mut head = log.first_object.head.clone().with_records(records);
        head.cut = (cut.first > 0).then_some(cut);
        let key = self.layout.object(run, ObjectPlace { generation: log.generation(), start: 0 });
        let bytes = head.encode(self.layout.below_logs(&key), records);
        Ok(self.replace(&key, &log.first_object.etag, bytes).await?.is_some())
    }

    /// Replaces an object that has this tag, and returns its new tag. Returns `None` if another caller replaced the object.
    pub(crate) async fn replace(
        &self,
        key: &str,
        etag: &str,
        bytes: Bytes,
    ) -> Result<Option<String>, S3StoreError> {
        let mut failed = S3StoreError::Restless { what: key.to_owned() };
        for attempt in 0..ATTEMPTS {
            match self.bucket.put_over(key, etag, bytes.clone()).await {
                Ok(PutResult::Done(etag)) => return Ok(Some(etag)),
                // After an attempt with unknown outcome, the object may be the one of this call.
                Ok(PutResult::Lost) => {
                    let now = self.bucket.get(key, None).await?;
                    let ours = now.filter(|now| now.value.bytes == bytes);
                    return Ok(ours.map(|ours| ours.value.etag));
                }
                Ok(PutResult::Undecided) => {}
                Err(fault) if matches!(fault.sort(), RefusalKind::Busy | RefusalKind::Unsure) => {
                    failed = fault
                }
                Err(fault) => return Err(fault),
            }
            self.pause(attempt).await;
        }
        Err(failed)
    }

    /// Removes the objects between the first object and the object in which the log begins.
    async fn clear_below(&self, run: &RunKey, log: &OpenedLog, start: u64) -> Result<(), S3StoreError> {
        let items = self.older(run, log, start, 1).await?;
        let now = self.now_of(run, &items).await?;
        self.retire(run, &items, now).await
    }

    /// Asks the server for its time. Returns `None` if no item needs the time.
    async fn now_of(&self, run: &RunKey, items: &[ListedObject]) -> Result<Option<ServerTime>, S3StoreError> {
        if items.is_empty() { Ok(None) } else { Ok(self.items(run, 1).await?.at) }
    }

    /// Removes objects that no log needs. The keys of young objects stay taken for a while. The key of the first object stays taken forever.
    async fn retire(
        &self,
        run: &RunKey,
        items: &[ListedObject],
        now: Option<ServerTime>,
    ) -> Result<(), S3StoreError> {
        let first = self.layout.object(run, ObjectPlace::FIRST);
        let is_old = |item: &ListedObject| {
            item.key != first && now.is_some_and(|now| item.modified <= now.saturating_sub(KEPT))
        };
        let (old, young): (Vec<_>, Vec<_>) = items.iter().partition(|item| is_old(item));
        let tasks = young.into_iter().filter(|item| item.size != GONE.len() as u64).map(|item| {
            Box::pin(self.replace(&item.key, &item.etag, Bytes::from_static(GONE))) as Task<'_, _>
        });
        bounded_join::all(tasks.collect(), self.options.parallel.get()).await?;
        let old: Vec<_> = old.into_iter().map(|item| (item.key.clone(), None)).collect();
        self.bucket.delete_all(&old).await
    }

    /// Removes a run except for two marks. The newest key stays taken and marks the end of this generation. The first key stays taken because a
    /// start would use it.
    pub(crate) async fn purge(
        &self,
        run: &RunKey,
        expected: Option<HeadRef>,
    ) -> Result<Removed, S3StoreError> {
        for attempt in 0..READS {
            let purged = match expected {
                Some(expected) => self.end_at(run, expected).await?,
                None => self.end(run).await?,
            };
            self.cache.remove(run);
            let ended = self.clear(run).await?;
            match purged {
                // Other callers have appended and pruned before the mark arrived, so the mark is before the beginning of the log.
                Some((generation, _)) if ended.is_none_or(|ended| ended < generation) => {
                    self.pause(attempt).await
                }
                purged => return Ok(purged.map(|(_, purged)| purged).unwrap_or_default()),
            }
        }
        Err(S3StoreError::Restless { what: self.layout.run(run) })
    }

    /// Ends a generation of a run with a mark after the expected head, at the key of the next append. The first writer of that key wins. Returns
    /// the number of the generation, and what it contained; `None` if the run does not exist.
    async fn end_at(&self, run: &RunKey, expected: HeadRef) -> Result<Option<(u32, Removed)>, S3StoreError> {
        let Some(log) = self.open(run).await? else { return Ok(None) };
        let conflict = |actual| S3StoreError::Conflict { expected: Some(expected), actual };
        let head = log.seen.last.head();
        if head != expected {
            return Err(conflict(Some(head)));
        }
        let end = ObjectPlace { generation: log.generation(), start: head.seq.next().get() };
        if self.put_mark(run, end).await? {
            return Ok(Some((log.generation(), count(&log))));
        }
        // Another caller has appended, or has purged the run.
        match self.open(run).await? {
            Some(log) => Err(conflict(Some(log.seen.last.head()))),
            None => Ok(None),
        }
    }

    /// Ends a generation of a run with a mark after its last record. Returns the number of the generation, and what it contained; `None` if the run
    /// does not exist.
    async fn end(&self, run: &RunKey) -> Result<Option<(u32, Removed)>, S3StoreError> {
        for _ in 0..ENDS {
            match self.open(run).await {
                Ok(Some(log)) => return self.end_of(run, &log).await,
                Ok(None) => return Ok(None),
                // An unreadable run can still be purged.
                Err(fault) if fault.is_of_run() => {
                    if let Some((place, purged)) = self.end_of_unreadable(run).await? {
                        self.put_mark(run, place).await?;
                        return Ok(Some((place.generation, purged)));
                    }
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(S3StoreError::Restless { what: self.layout.run(run) })
    }

    async fn end_of(&self, run: &RunKey, log: &OpenedLog) -> Result<Option<(u32, Removed)>, S3StoreError> {
        let (generation, cut) = (log.generation(), log.cut());
        let mut end = log.seen.last.seq.next().get();
        let mut purged = count(log);
        // The start of a row of marks that no append can pass.
        let mut row: Option<u64> = None;
        for attempt in 0..ENDS {
            if row.is_none_or(|row| end < row)
                && self.put_mark(run, ObjectPlace { generation, start: end }).await?
            {
                return Ok(Some((generation, purged)));
            }
            if attempt >= STRAIGHT && row.is_none() {
                // A fast writer always appends past the position that was just read. So put the mark further ahead.
                let ahead = end.saturating_add(AHEAD << (attempt - STRAIGHT).min(8));
                row = self.put_row(run, ObjectPlace { generation, start: ahead }).await?.then_some(ahead);
            }
            // Another writer appended, so the next attempt uses the key after that append.
            let after = row.map(|start| self.layout.object(run, ObjectPlace { generation, start }));
            let listed = self.bucket.list(&self.layout.run(run), after.as_deref(), 1).await?;
            let newest = listed.value.items.into_iter().next();
            let Some(newest) = newest.filter(|item| item.size != GONE.len() as u64) else {
                return Ok(Some((generation, purged)));
            };
            if self.layout.place_of(run, &newest.key).is_none_or(|place| place.generation != generation) {
                return Ok(Some((generation, purged)));
            }
            let Some((head, _)) = self.head_of(&newest.key).await? else {
                return Ok(Some((generation, purged)));
            };
            end = head.end();
            let bytes = i128::from(head.bytes) - i128::from(cut.dropped);
            purged = Removed { records: end - cut.first, bytes: u64::try_from(bytes).unwrap_or(0) };
            if row.is_some_and(|row| end >= row) {
                return Ok(Some((generation, purged)));
            }
        }
        Err(S3StoreError::Restless { what: self.layout.run(run) })
    }

    /// Writes a mark at a position without an object. Returns whether the position was free.
    async fn put_mark(&self, run: &RunKey, place: ObjectPlace) -> Result<bool, S3StoreError> {
        let key = self.layout.object(run, place);
        let mut failed = S3StoreError::Restless { what: key.clone() };
        for attempt in 0..ATTEMPTS {
            match self.bucket.put_new(&key, Bytes::from_static(GONE)).await.map(|told| told.value) {
                Ok(PutResult::Done(_)) => return Ok(true),
                // After an attempt with unknown outcome, the mark may be from this call. The mark of any writer is enough.
                Ok(PutResult::Lost) => return Ok(attempt > 0 && self.head_of(&key).await?.is_none()),
                Ok(PutResult::Undecided) => {}
                Err(fault) if matches!(fault.sort(), RefusalKind::Busy | RefusalKind::Unsure) => {
                    failed = fault
                }
                Err(fault) => return Err(fault),
            }
            self.pause(attempt).await;
        }
        Err(failed)
    }

    /// Writes a row of marks. Returns whether all positions were free, so that no append has passed them.
    async fn put_row(&self, run: &RunKey, place: ObjectPlace) -> Result<bool, S3StoreError> {
        let mark = |ahead: u64| {
            let place = ObjectPlace { start: place.start.saturating_add(ahead), ..place };
            Box::pin(self.put_mark(run, place)) as Task<'_, _>
        };
        let marks = bounded_join::all((0..ROW).map(mark).collect(), self.options.parallel.get()).await?;
        Ok(marks.into_iter().all(|is_put| is_put))
    }

    /// Finds a position after all objects of an unreadable run, and counts the objects. Returns `None` if there are none, or after it has removed a
    /// foreign object that hid the run.
    async fn end_of_unreadable(&self, run: &RunKey) -> Result<Option<(ObjectPlace, Removed)>, S3StoreError> {
        if let Ok(RunLookup::There(seen)) = self.look_up(run).await {
            // The head is readable, so the key of the next append is known.
            let start = seen.last.seq.next().get();
            let counted = Removed { records: start, bytes: seen.bytes };
            return Ok(Some((ObjectPlace { generation: seen.place.generation, start }, counted)));
        }
        let listed = self.items(run, 1_000).await?.value.items;
        let Some(newest) = listed.first() else { return Ok(None) };
        let Some(ObjectPlace { generation, .. }) = self.layout.place_of(run, &newest.key) else {
            // A foreign object lies among the run's objects. The run after it may exist.
            self.bucket.delete(&newest.key).await?;
            return Ok(None);
        };
        let counted =
            Removed { records: listed.len() as u64, bytes: listed.iter().map(|item| item.size).sum() };
        Ok(Some((ObjectPlace { generation, start: u64::MAX }, counted)))
    }

    /// Removes the remains of ended generations. Returns the number of the newest ended generation.
    pub(crate) async fn clear(&self, run: &RunKey) -> Result<Option<u32>, S3StoreError> {
        let prefix = self.layout.run(run);
        let Some(newest) = self.items(run, 1).await?.value.items.into_iter().next() else { return Ok(None) };
        let Some(place) = self.layout.place_of(run, &newest.key) else { return Ok(None) };
        // A new generation may have begun already. All earlier generations have ended.
        let is_ended = newest.size == GONE.len() as u64;
        let ended = if is_ended { Some(place.generation) } else { place.generation.checked_sub(1) };
        let Some(ended) = ended else { return Ok(None) };
        let top = self.layout.object(run, ObjectPlace { generation: ended, start: u64::MAX });
        // The mark of the newest ended generation stays.
        self.clear_index(run, ended).await?;
        let mut after = if is_ended { newest.key.clone() } else { top };
        let mut kept = Vec::new();
        let first = self.layout.object(run, ObjectPlace::FIRST);
        let mut is_first_taken = newest.key == first;
        loop {
            let listed = self.bucket.list(&prefix, Some(&after), 1_000).await?;
            let mut items = listed.value.items;
            let Some(last) = items.last() else { break };
            after = last.key.clone();
            is_first_taken |= last.key == first;
            if !is_ended && kept.is_empty() {
                // The mark of the generation before the active one.
                kept.push(items.remove(0).key);
            }
            items.reverse();
            self.retire(run, &items, listed.at).await?;
            if !listed.value.more {
                break;
            }
        }
        if !is_first_taken {
            // The mark was lost, and the run was unreadable. Prevent a writer from starting below the mark.
            self.put_mark(run, ObjectPlace::FIRST).await?;
        }
        self.clear_versions(run).await?;
        Ok(Some(ended))
    }

    /// Removes the index entries of ended generations.
    async fn clear_index(&self, run: &RunKey, ended: u32) -> Result<(), S3StoreError> {
        let Some(first_object) = self.first_object(run, ended).await.ok().flatten() else {
            // Listings remove the stale entries that they find.
            return Ok(());
        };
        let mut stale = Vec::new();
        for tree in [Tree::Live, Tree::Done] {
            let prefix = self.layout.entries(tree, first_object.facts.created, run);
            let listed = self.bucket.list(&prefix, None, 1_000).await?;
            for item in listed.value.items {
                let entry = self.layout.entry_of(tree, &item.key);
                if entry.is_some_and(|(_, _, entry)| entry.generation <= ended) {
                    stale.push((item.key, None));
                }
            }
        }
        self.bucket.delete_all(&stale).await?;
        // Remove this object after its index entries, which are found through it, and before any other object. A reader that misses an object
        // checks this one before it reports damage.
        let second = self.layout.object(run, ObjectPlace { generation: ended, start: 1 });
        let listed = self.bucket.list(&self.layout.run(run), Some(&second), 1).await?;
        self.retire(run, &listed.value.items, listed.at).await
    }

    /// In a bucket that keeps versions, removes all old versions, and the delete markers.
    async fn clear_versions(&self, run: &RunKey) -> Result<(), S3StoreError> {
        if !self.bucket.keeps_versions() {
            return Ok(());
        }
        let prefix = self.layout.run(run);
        let old: Vec<_> = self
            .bucket
            .versions(&prefix)
            .await?
            .into_iter()
            // The newest version may belong to a generation that has begun meanwhile.
            .filter(|version| version.is_marker || !version.is_latest)
            .map(|version| (version.key, Some(version.id)))
            .collect();
        self.bucket.delete_all(&old).await
    }
}

fn count(log: &OpenedLog) -> Removed {
    Removed { records: log.last() - log.first() + 1, bytes: S3Inner::kept_bytes(log) }
}
