//! Appends. One conditional write decides an append. If its outcome is unknown, the store reads the log.

use std::sync::Arc;

use ferrata_store::index::{IndexMove, RunStanding};
use ferrata_store::{FORMAT, HeadRef, RecordHeader, RunAppend, RunKey, Seq, check_append, is_repeat};

use crate::bucket::{PutResult, ServerTime, TimedAnswer};
use crate::codes::RefusalKind;
use crate::entry::IndexKey;
use crate::error::S3StoreError;
use crate::inner::{ATTEMPTS, S3Inner, TRUSTED};
use crate::layout::{ObjectPlace, Tree};
use crate::line::Tag;
use crate::object::{GONE, ObjectHead};
use crate::view::{CachedHead, RunLookup};

/// The maximum size of the bodies in one append, in bytes. A slow connection can send such an object within the default timeout, and the server
/// accepts it in one request.
pub(crate) const MOST_BYTES: u64 = 256 * 1_024 * 1_024;

/// How an append relates to the current head.
enum AppendVerdict {
    /// The append is stored already.
    Repeat(HeadRef),
    /// The append expects the current head.
    Next,
    /// Another writer was first.
    Lost(S3StoreError),
}

/// The traces that earlier attempts of an append have left.
#[derive(Default)]
struct AppendAttempts {
    /// The error of an earlier attempt with unknown outcome.
    doubt: Option<S3StoreError>,
    /// The position of the last object that an attempt tried to write.
    place: Option<ObjectPlace>,
    /// The index entry of the records, which the store wrote first.
    entry: Option<String>,
}

/// A prepared append.
struct AppendDraft {
    expected: Option<HeadRef>,
    place: ObjectPlace,
    confirmed: Option<ServerTime>,
    head: ObjectHead,
    last: RecordHeader,
    /// The index entry that the new head needs, if it differs from that of the previous head.
    entry: Option<String>,
    /// The index entry of the previous head, if it is known.
    entry_before: Option<(RunStanding, String)>,
    facts: Option<Arc<ferrata_store::RunFacts>>,
}

impl S3Inner {
    /// Appends one entry of a batch. Adds index entries that are then not needed any more to `stale`.
    pub(crate) async fn append(
        &self,
        append: &RunAppend,
        stale: &mut Vec<String>,
    ) -> Result<HeadRef, S3StoreError> {
        check_append(append).map_err(S3StoreError::Checked)?;
        let len = append.records.iter().map(|record| record.body.len() as u64).sum();
        if len > MOST_BYTES {
            return Err(S3StoreError::Large { len, max: MOST_BYTES });
        }
        let mut tried = AppendAttempts::default();
        let done = self.try_append(append, &mut tried, stale).await;
        match done {
            Err(fault @ S3StoreError::Conflict { .. }) => {
                self.resolve_conflict(append, tried, fault, stale).await
            }
            Err(fault) if tried.doubt.is_some() && fault.sort() != RefusalKind::Lost => {
                Err(S3StoreError::Unsure(Box::new(tried.doubt.unwrap_or(fault))))
            }
            done => done,
        }
    }

    /// Finds out whether the log has the records with later records after them. An earlier attempt or an earlier call may have written them.
    async fn resolve_conflict(
        &self,
        append: &RunAppend,
        tried: AppendAttempts,
        conflict: S3StoreError,
        stale: &mut Vec<String>,
    ) -> Result<HeadRef, S3StoreError> {
        let (run, ours) = (&append.run, append.records.last().map(|record| record.header.head()));
        let Some((place, ours)) = tried.place.zip(ours) else { return Err(conflict) };
        // Usually the winner's object is the one that was just read.
        let seen = self.cache.get(run).filter(|seen| seen.place == place && seen.last.id != ours.id);
        let is_ours = match seen {
            Some(_) => Some(false),
            None => match self.head_of(&self.layout.object(run, place)).await {
                Ok(found) => found.map(|(head, _)| is_repeat(head.headers().iter().rev(), append)),
                Err(fault) => return Err(S3StoreError::Unsure(Box::new(fault))),
            },
        };
        match is_ours {
            Some(true) => self.repeated(ours, &tried).await,
            Some(false) => {
                // These records will never be in the log, so nothing needs their index entry.
                stale.extend(tried.entry);
                Err(conflict)
            }
            // The records were pruned or purged. The index entry may belong to an active run; if not, a listing removes it.
            None => Err(tried.doubt.map_or(conflict, |doubt| S3StoreError::Unsure(Box::new(doubt)))),
        }
    }

    async fn try_append(
        &self,
        append: &RunAppend,
        tried: &mut AppendAttempts,
        stale: &mut Vec<String>,
    ) -> Result<HeadRef, S3StoreError> {
        let run = &append.run;
        let mut known = match (append.expected, self.cache.get(run)) {
            (Some(expected), Some(seen)) => (seen.last.head() == expected).then_some(RunLookup::There(seen)),
            // Most starts use new ids and need no read, because the key of the first record of the first generation is never free again. The writer
            // that gets the key has started the run. Any other writer must read.
            (None, None) => Some(RunLookup::Absent { generation: 0, ended: None, at: None }),
            _ => None,
        };
        let mut failed = S3StoreError::Restless { what: self.layout.run(run) };
        for attempt in 0..ATTEMPTS {
            let look = match known.take() {
                Some(look) => look,
                None => self.look_up(run).await?,
            };
            match self.compare_head(&look, append).await? {
                AppendVerdict::Repeat(head) => return self.repeated(head, tried).await,
                AppendVerdict::Lost(fault) => return Err(fault),
                AppendVerdict::Next => {}
            }
            let mut draft = self.draft(&look, append).await?;
            if let Some(entry) = &draft.entry {
                // Write the entry before the log, so that listings never lack a run that has a log.
                let told = self.bucket.put(entry, bytes::Bytes::new()).await?;
                draft.confirmed = draft.confirmed.or(told.at);
                // An earlier attempt may have been for an earlier generation.
                stale.extend(tried.entry.replace(entry.clone()).filter(|before| before != entry));
            }
            let key = self.layout.object(run, draft.place);
            tried.place = Some(draft.place);
            let bytes = draft.head.encode(self.layout.below_logs(&key), &append.records);
            match self.bucket.put_new(&key, bytes).await {
                Ok(TimedAnswer { value: PutResult::Done(etag), at }) => {
                    return self.appended(run, draft, etag, at, stale).await;
                }
                // A writer was first, perhaps an earlier attempt of this call. The log shows which.
                Ok(TimedAnswer { value: PutResult::Lost, .. }) if attempt == 0 => continue,
                Ok(TimedAnswer { value: PutResult::Lost, .. }) => {}
                Ok(TimedAnswer { value: PutResult::Undecided, .. }) => {
                    let (status, code) = (409, "ConditionalRequestConflict".to_owned());
                    failed =
                        S3StoreError::Refused { doing: crate::error::S3Operation::Put, key, status, code };
                }
                Err(fault) => match fault.sort() {
                    RefusalKind::Busy => failed = fault,
                    RefusalKind::Unsure => tried.doubt = Some(fault),
                    _ => return Err(fault),
                },
            }
            if attempt + 1 < ATTEMPTS {
                self.pause(attempt).await;
            }
        }
        // Read once more: the last attempt may have succeeded.
        let look = self.look_up(run).await?;
        match self.compare_head(&look, append).await? {
            AppendVerdict::Repeat(head) => self.repeated(head, tried).await,
            AppendVerdict::Lost(fault) => Err(fault),
            AppendVerdict::Next => Err(failed),
        }
    }

    /// Acknowledges records that an earlier attempt or an earlier call has written.
    async fn repeated(&self, head: HeadRef, tried: &AppendAttempts) -> Result<HeadRef, S3StoreError> {
        if let Some(entry) = &tried.entry {
            self.restore_entry(entry).await?;
        }
        Ok(head)
    }

    /// Compares the append with the head that was found.
    async fn compare_head(
        &self,
        look: &RunLookup,
        append: &RunAppend,
    ) -> Result<AppendVerdict, S3StoreError> {
        let expected = append.expected;
        let RunLookup::There(seen) = look else {
            return Ok(match expected {
                None => AppendVerdict::Next,
                Some(_) => AppendVerdict::Lost(S3StoreError::Conflict { expected, actual: None }),
            });
        };
        let actual = seen.last.head();
        if expected == Some(actual) {
            if seen.last.format > FORMAT {
                let key = self.layout.object(&append.run, seen.place);
                let (seq, found) = (Some(actual.seq), u64::from(seen.last.format));
                return Err(S3StoreError::NewerRecord { key, seq, found, known: FORMAT });
            }
            return Ok(AppendVerdict::Next);
        }
        let is_last = append.records.last().is_some_and(|record| record.header.id == actual.id);
        if is_last && self.is_repeat(seen, append).await? {
            return Ok(AppendVerdict::Repeat(actual));
        }
        Ok(AppendVerdict::Lost(S3StoreError::Conflict { expected, actual: Some(actual) }))
    }

    /// Returns whether the log already ends with the append. Reads at most as many records as the append has.
    async fn is_repeat(&self, seen: &CachedHead, append: &RunAppend) -> Result<bool, S3StoreError> {
        let run = &append.run;
        let mut key = self.layout.object(run, seen.place);
        let mut headers: Vec<RecordHeader> = Vec::new();
        while let Some((head, _)) = self.head_of(&key).await? {
            headers.extend(head.headers().iter().rev().cloned());
            if headers.len() >= append.records.len() || head.start == 0 {
                break;
            }
            let older = self.bucket.list(&self.layout.run(run), Some(&key), 1).await?;
            let Some(older) = older.value.items.into_iter().next() else { break };
            if self
                .layout
                .place_of(run, &older.key)
                .is_none_or(|place| place.generation != seen.place.generation)
            {
                break;
            }
            key = older.key;
        }
        headers.truncate(append.records.len());
        Ok(is_repeat(&headers, append))
    }

    /// Prepares the object and the index entry to write.
    async fn draft(&self, look: &RunLookup, append: &RunAppend) -> Result<AppendDraft, S3StoreError> {
        let run = &append.run;
        // `check_append` has ensured that an append has records.
        let first = append.records.first().ok_or(S3StoreError::NoRun)?;
        let (place, confirmed, log, base, bytes, before) = match look {
            RunLookup::Absent { generation, at, .. } => {
                (ObjectPlace { generation: *generation, start: 0 }, *at, Tag::of(&first.header), 0, 0, None)
            }
            RunLookup::There(seen) => {
                let place =
                    ObjectPlace { generation: seen.place.generation, start: seen.last.seq.next().get() };
                (place, seen.confirmed, seen.log, seen.base, seen.bytes, Some(seen))
            }
        };
        let head = ObjectHead::new(&append.records, log, base, bytes, append.facts.clone());
        let last = head.last().cloned().ok_or(S3StoreError::NoRun)?;
        let mut facts = append.facts.clone().map(Arc::new);
        facts = facts.or_else(|| before.and_then(|seen| seen.facts.clone()));
        let mut entry = None;
        let change = IndexMove::new(before.map(|seen| seen.standing()), RunStanding::after(&last));
        if change.entry_before().is_some() {
            if facts.is_none() {
                facts =
                    self.first_object(run, place.generation).await?.map(|first_object| first_object.facts);
            }
            let key = self.layout.object(run, ObjectPlace { generation: place.generation, start: 0 });
            let missing = S3StoreError::Missing { key, seq: Some(Seq::new(0)) };
            let created = facts.as_ref().ok_or(missing)?.created;
            entry = Some(self.layout.entry(created, run, &IndexKey::of(place.generation, &last)));
        }
        let entry_before = before.and_then(|seen| Some((seen.standing(), seen.entry.clone()?)));
        Ok(AppendDraft {
            expected: append.expected,
            place,
            confirmed,
            head,
            last,
            entry,
            entry_before,
            facts,
        })
    }

    /// Completes an append that is certainly in the bucket.
    async fn appended(
        &self,
        run: &RunKey,
        draft: AppendDraft,
        etag: String,
        at: Option<ServerTime>,
        stale: &mut Vec<String>,
    ) -> Result<HeadRef, S3StoreError> {
        let AppendDraft { expected, place, confirmed, head, last, entry, entry_before, facts } = draft;
        let is_fresh = confirmed.zip(at).is_some_and(|(before, now)| now - before <= TRUSTED);
        if !is_fresh {
            self.confirm(run, (place, &etag), expected, entry.as_deref()).await?;
        }
        let mut seen = CachedHead::of(place, etag, at.unwrap_or(i64::MAX), &head, last);
        let actual = seen.last.head();
        seen.confirmed = at;
        seen.facts = facts;
        match (entry, entry_before) {
            (Some(entry), before) => {
                seen.entry = Some(entry);
                // Keep the previous entry of a finished run for a while: a concurrent listing may have missed the new entry.
                stale.extend(
                    before.filter(|(before, _)| Tree::of(before) == Tree::Live).map(|(_, entry)| entry),
                );
            }
            (None, before) => seen.entry = before.map(|(_, entry)| entry),
        }
        self.cache.put(run, Arc::new(seen));
        Ok(actual)
    }

    /// Checks that the object just written is part of the log. This is needed if the log was last read too long ago: since then, a prune or a purge
    /// may have freed the key of the object.
    async fn confirm(
        &self,
        run: &RunKey,
        (place, etag): (ObjectPlace, &str),
        expected: Option<HeadRef>,
        entry: Option<&str>,
    ) -> Result<(), S3StoreError> {
        self.cache.remove(run);
        // The records are in the bucket, so the outcome of any later failure is unknown.
        if let Some(entry) = entry {
            self.restore_entry(entry).await?;
        }
        let log = self.open(run).await.map_err(|fault| S3StoreError::Unsure(Box::new(fault)))?;
        let is_of_generation = log.as_ref().is_some_and(|log| log.generation() == place.generation);
        // The writer of a generation's first object has started that generation, even if it was pruned since. A log may also begin within an
        // object.
        if let Some(log) = log.as_ref().filter(|_| is_of_generation)
            && (place.start == 0 || place.start >= log.cut().object)
        {
            return Ok(());
        }
        // The object is before the beginning of the log, or in a generation that has ended, so no reader reads it. Its key stays taken, like the
        // keys of other pruned objects.
        let key = self.layout.object(run, place);
        if place != ObjectPlace::FIRST {
            let withdrawn = self.replace(&key, etag, bytes::Bytes::from_static(GONE)).await;
            withdrawn.map_err(|fault| S3StoreError::Unsure(Box::new(fault)))?;
        }
        tracing::warn!(%run, seq = place.start, "withdrew an append that arrived after a prune or purge of the run");
        if is_of_generation {
            // Other writers may have appended after it before it was pruned.
            return Err(S3StoreError::Unsure(Box::new(S3StoreError::Passed { key })));
        }
        Err(S3StoreError::Conflict { expected, actual: log.map(|log| log.seen.last.head()) })
    }

    /// Writes the index entry of stored records again. A listing may have removed the entry, because it looked like that of a failed writer.
    async fn restore_entry(&self, entry: &str) -> Result<(), S3StoreError> {
        let put = self.bucket.put(entry, bytes::Bytes::new()).await;
        put.map(drop).map_err(|fault| S3StoreError::Unsure(Box::new(fault)))
    }

    /// Removes stale index entries. If that fails, the next listing that finds them tries again.
    pub(crate) async fn drop_entries(&self, entries: &[String]) {
        let entries: Vec<_> = entries.iter().map(|entry| (entry.clone(), None)).collect();
        let done = match entries.as_slice() {
            [] => Ok(()),
            [(entry, _)] => self.bucket.delete(entry).await,
            entries => self.bucket.delete_all(entries).await,
        };
        if let Err(error) = done {
            tracing::debug!(%error, "could not remove a stale entry of the index");
        }
    }
}
