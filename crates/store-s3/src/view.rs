//! Reads a run's head from its newest object, and its facts from its first object.

use std::sync::Arc;

use ferrata_store::index::RunStanding;
use ferrata_store::{FORMAT, RecordHeader, RunFacts, RunHead, RunKey, Seq};

use crate::bucket::{BucketPage, ListedObject, ServerTime, TimedAnswer};
use crate::error::S3StoreError;
use crate::inner::{READS, S3Inner};
use crate::layout::{ObjectPlace, VERSION};
use crate::line::Tag;
use crate::object::{GONE, InvalidObject, LogCut, ObjectHead};

/// The number of bytes to read for an object's head. The heads of about 30 records fit.
const HEAD_BYTES: usize = 8 * 1_024;

/// A cached head.
#[derive(Clone, Debug)]
pub(crate) struct CachedHead {
    /// The position of the newest object.
    pub(crate) place: ObjectPlace,
    pub(crate) etag: String,
    /// The server's time of the write of that object.
    pub(crate) modified: ServerTime,
    /// The header of the last record.
    pub(crate) last: RecordHeader,
    /// The tag of the log.
    pub(crate) log: Tag,
    /// The number of the object that contains the newest base.
    pub(crate) base: u64,
    /// The total size of all bodies in bytes, as written.
    pub(crate) bytes: u64,
    /// The server's last time at which this was known to be the head.
    pub(crate) confirmed: Option<ServerTime>,
    /// The run's facts, if known.
    pub(crate) facts: Option<Arc<RunFacts>>,
    /// The index entry of this head, if known.
    pub(crate) entry: Option<String>,
}

/// The state of a run in the bucket.
#[derive(Clone, Debug)]
pub(crate) enum RunLookup {
    /// The run does not exist. `generation` is the number of the generation that a start would begin.
    Absent { generation: u32, ended: Option<ServerTime>, at: Option<ServerTime> },
    /// The run exists.
    There(Arc<CachedHead>),
}

/// An opened run: its head, and the contents of its first object.
#[derive(Clone, Debug)]
pub(crate) struct OpenedLog {
    pub(crate) seen: Arc<CachedHead>,
    pub(crate) first_object: FirstObject,
}

/// The first object of a log. It stays until the run is purged.
#[derive(Clone, Debug)]
pub(crate) struct FirstObject {
    pub(crate) head: ObjectHead,
    pub(crate) etag: String,
    pub(crate) facts: Arc<RunFacts>,
}

impl CachedHead {
    pub(crate) fn of(
        place: ObjectPlace,
        etag: String,
        modified: ServerTime,
        head: &ObjectHead,
        last: RecordHeader,
    ) -> Self {
        let base = if head.has_base() { head.start } else { head.base };
        let facts = head.facts.clone().map(Arc::new);
        let (log, bytes) = (head.log, head.bytes);
        Self { place, etag, modified, last, log, base, bytes, confirmed: None, facts, entry: None }
    }

    pub(crate) fn standing(&self) -> RunStanding {
        RunStanding::after(&self.last)
    }

    #[cfg(test)]
    pub(crate) fn example() -> Self {
        let json = r#"{"v":1,"seq":0,"id":"018f3a4e-0000-7000-8000-000000000001","kind":"start",
            "status":"in_progress","epoch":1,"at":0,"base":true,"len":0,"crc":0}"#;
        let last: RecordHeader = serde_json::from_str(json).unwrap();
        let head = ObjectHead::new(&[], Tag::of(&last), 0, 0, None);
        Self::of(ObjectPlace::FIRST, String::new(), 0, &head, last)
    }
}

impl OpenedLog {
    pub(crate) fn generation(&self) -> u32 {
        self.seen.place.generation
    }

    pub(crate) fn cut(&self) -> LogCut {
        self.first_object.head.cut.unwrap_or(LogCut { first: 0, object: 0, dropped: 0 })
    }

    /// Returns the number of the oldest stored record.
    pub(crate) fn first(&self) -> u64 {
        self.cut().first
    }

    /// Returns the number of the last record.
    pub(crate) fn last(&self) -> u64 {
        self.seen.last.seq.get()
    }

    pub(crate) fn run_head(&self, run: &RunKey, owner_alive: bool) -> RunHead {
        let facts = RunFacts::clone(&self.first_object.facts);
        RunHead::after(run.clone(), Seq::new(self.first()), &self.seen.last, owner_alive, facts)
    }
}

/// Returns the error for bytes that are not a valid object, with the object's key and the record.
pub(crate) fn invalid_object(key: &str, seq: Option<u64>, invalid: InvalidObject) -> S3StoreError {
    let (key, seq) = (key.to_owned(), seq.map(Seq::new));
    match invalid {
        InvalidObject::Gone => S3StoreError::Missing { key, seq },
        InvalidObject::Newer(found) => S3StoreError::Newer { key, found, known: VERSION },
        InvalidObject::NewerRecord(found) => S3StoreError::NewerRecord { key, seq, found, known: FORMAT },
        InvalidObject::Damaged(what) => S3StoreError::Damaged { key, seq, what },
        InvalidObject::Short(_) => S3StoreError::Damaged { key, seq, what: "it ends within its head".into() },
    }
}

impl S3Inner {
    /// Lists the objects of a run, newest first.
    pub(crate) async fn items(
        &self,
        run: &RunKey,
        most: usize,
    ) -> Result<TimedAnswer<BucketPage>, S3StoreError> {
        self.bucket.list(&self.layout.run(run), None, most).await
    }

    /// Reads the head of a run. Needs one listing, and one object unless the head is cached.
    pub(crate) async fn look_up(&self, run: &RunKey) -> Result<RunLookup, S3StoreError> {
        for _ in 0..READS {
            let listed = self.items(run, 1).await?;
            let Some(newest) = listed.value.items.first() else {
                self.cache.remove(run);
                return Ok(RunLookup::Absent { generation: 0, ended: None, at: listed.at });
            };
            if let Some(look) = self.read_newest(run, newest, listed.at).await? {
                return Ok(look);
            }
        }
        Err(S3StoreError::Restless { what: self.layout.run(run) })
    }

    /// Reads the object that was the newest in the listing. Returns `None` if it does not exist any more.
    async fn read_newest(
        &self,
        run: &RunKey,
        newest: &ListedObject,
        at: Option<ServerTime>,
    ) -> Result<Option<RunLookup>, S3StoreError> {
        let key = &newest.key;
        let place = self.layout.place_of(run, key).ok_or_else(|| S3StoreError::Damaged {
            key: key.clone(),
            seq: None,
            what: "it is not an object of this library".into(),
        })?;
        if let Some(seen) = self.cache.get(run)
            && seen.place == place
            && seen.etag == newest.etag
            && !newest.etag.is_empty()
        {
            let seen =
                Arc::new(CachedHead { confirmed: at, modified: newest.modified, ..CachedHead::clone(&seen) });
            self.cache.put(run, Arc::clone(&seen));
            return Ok(Some(RunLookup::There(seen)));
        }
        let Some((head, etag)) = self.head_of(key).await? else {
            if newest.size != GONE.len() as u64 {
                // The object existed when it was listed, but does not exist any more.
                return Ok(None);
            }
            self.cache.remove(run);
            let generation = place.generation.checked_add(1).ok_or_else(|| S3StoreError::Damaged {
                key: key.clone(),
                seq: None,
                what: "the run id has the maximum number of generations; use another id".into(),
            })?;
            return Ok(Some(RunLookup::Absent { generation, ended: Some(newest.modified), at }));
        };
        let Some(last) = head.last().cloned() else {
            let what = "it holds no record, and no newer object follows".into();
            return Err(S3StoreError::Damaged { key: key.clone(), seq: None, what });
        };
        let mut seen = CachedHead::of(place, etag, newest.modified, &head, last);
        seen.confirmed = at;
        if let Some(before) = self.cache.get(run).filter(|before| before.place.generation == place.generation)
        {
            // The facts do not change within a generation.
            seen.facts = seen.facts.or_else(|| before.facts.clone());
        }
        let seen = Arc::new(seen);
        self.cache.put(run, Arc::clone(&seen));
        Ok(Some(RunLookup::There(seen)))
    }

    /// Reads the head of an object, and its tag. Returns `None` if the object is missing or only a mark.
    pub(crate) async fn head_of(&self, key: &str) -> Result<Option<(ObjectHead, String)>, S3StoreError> {
        let mut most = HEAD_BYTES;
        for _ in 0..READS {
            let Some(object) = self.bucket.get(key, Some(most)).await? else { return Ok(None) };
            match ObjectHead::decode(self.layout.below_logs(key), &object.value.bytes) {
                Ok((head, _)) => return Ok(Some((head, object.value.etag))),
                Err(InvalidObject::Gone) => return Ok(None),
                // The first request read only a part of the head, or the object was rewritten meanwhile and is longer.
                Err(InvalidObject::Short(needed)) if needed > most => most = needed,
                Err(other) => return Err(invalid_object(key, None, other)),
            }
        }
        Err(S3StoreError::Restless { what: key.to_owned() })
    }

    /// Reads the first object of a generation. Returns `None` if it does not exist any more.
    pub(crate) async fn first_object(
        &self,
        run: &RunKey,
        generation: u32,
    ) -> Result<Option<FirstObject>, S3StoreError> {
        let key = self.layout.object(run, ObjectPlace { generation, start: 0 });
        let Some((mut head, etag)) = self.head_of(&key).await? else { return Ok(None) };
        let facts = head.facts.take().ok_or_else(|| S3StoreError::Damaged {
            key,
            seq: None,
            what: "it does not name the workflow of the run".into(),
        })?;
        head.facts = Some(facts.clone());
        Ok(Some(FirstObject { head, etag, facts: Arc::new(facts) }))
    }

    /// Opens a run for reading. Returns `None` if the run does not exist.
    pub(crate) async fn open(&self, run: &RunKey) -> Result<Option<OpenedLog>, S3StoreError> {
        for _ in 0..READS {
            let generation = self.cache.get(run).map_or(0, |seen| seen.place.generation);
            let (look, first_object) = tokio::join!(self.look_up(run), self.first_object(run, generation));
            let RunLookup::There(seen) = look? else { return Ok(None) };
            if seen.last.format > FORMAT {
                let key = self.layout.object(run, seen.place);
                let (seq, found) = (Some(seen.last.seq), u64::from(seen.last.format));
                return Err(S3StoreError::NewerRecord { key, seq, found, known: FORMAT });
            }
            let beside = if seen.place.generation == generation { first_object? } else { None };
            let first_object = match beside {
                Some(first_object) => Some(first_object),
                // The object has another generation, or the read ran at the same time as the listing: the run may have begun between the two
                // answers.
                None => self.first_object(run, seen.place.generation).await?,
            };
            if let Some(first_object) = first_object {
                if first_object.head.log != seen.log {
                    // An operator has removed the first object, and another start has taken its key.
                    let key =
                        self.layout.object(run, ObjectPlace { generation: seen.place.generation, start: 0 });
                    let what = "it belongs to another log than the newest object".into();
                    return Err(S3StoreError::Damaged { key, seq: Some(Seq::new(0)), what });
                }
                if seen.facts.is_none() {
                    let facts = Some(Arc::clone(&first_object.facts));
                    self.cache.put(run, Arc::new(CachedHead { facts, ..CachedHead::clone(&seen) }));
                }
                return Ok(Some(OpenedLog { seen, first_object }));
            }
            // A run without its first object is damaged, unless a purge is in progress.
            if let RunLookup::There(again) = self.look_up(run).await?
                && again.place.generation == seen.place.generation
            {
                let key =
                    self.layout.object(run, ObjectPlace { generation: seen.place.generation, start: 0 });
                return Err(S3StoreError::Missing { key, seq: Some(Seq::new(0)) });
            }
        }
        Err(S3StoreError::Restless { what: self.layout.run(run) })
    }

    /// Returns whether a log was pruned or purged since it was opened, which would explain missing records.
    pub(crate) async fn has_changed(&self, run: &RunKey, log: &OpenedLog) -> Result<bool, S3StoreError> {
        let Some(now) = self.open(run).await? else { return Ok(true) };
        Ok(now.generation() != log.generation() || now.first_object.etag != log.first_object.etag)
    }
}
