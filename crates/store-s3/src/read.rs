//! Reads a log: the records up to a position, from the newest base before it on; or a range of headers.

use bytes::Bytes;
use ferrata_store::{
    At, HeadRef, HeaderRange, Headers, Record, RecordHeader, RecordId, RunKey, Seq, check_loaded, check_news,
};

use crate::bounded_join::{self, Task};
use crate::bucket::ListedObject;
use crate::error::S3StoreError;
use crate::inner::{READS, S3Inner};
use crate::layout::ObjectPlace;
use crate::object::{GONE, ObjectHead};
use crate::view::{OpenedLog, invalid_object};

/// The maximum number of objects on a page of a listing.
const PAGE: usize = 1_000;

/// The number of heads to read at once in search of a record, which is usually near the end.
const SEARCHED: usize = 32;

/// An object of a log with its records.
pub(crate) struct LogObject {
    pub(crate) key: String,
    pub(crate) etag: String,
    pub(crate) head: ObjectHead,
    pub(crate) records: Vec<Record>,
}

impl S3Inner {
    /// Loads the newest base at or before `at`, and the records after it up to `at`.
    pub(crate) async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>, S3StoreError> {
        for _ in 0..READS {
            let Some(log) = self.open(run).await? else { return Ok(None) };
            match self.load_from(run, &log, at).await {
                Err(fault) if fault.is_damage() && self.has_changed(run, &log).await? => {}
                done => return done.map(Some),
            }
        }
        Err(S3StoreError::Restless { what: self.layout.run(run) })
    }

    /// Loads the records after `known`. Loads from the newest base on if the run does not have `known` any more, or if `known` is not the last
    /// record of an object.
    pub(crate) async fn load_since(
        &self,
        run: &RunKey,
        known: HeadRef,
    ) -> Result<Option<Vec<Record>>, S3StoreError> {
        let Some(log) = self.open(run).await? else { return Ok(None) };
        if log.seen.last.head() == known {
            return Ok(Some(Vec::new()));
        }
        match self.news(run, &log, known).await {
            Ok(Some(records)) => Ok(Some(records)),
            // The load reports damage and concurrent prunes.
            Ok(None) => self.load(run, At::Latest).await,
            Err(fault) if fault.is_damage() => self.load(run, At::Latest).await,
            Err(fault) => Err(fault),
        }
    }

    /// Reads the records after `known`. Returns `None` if `known` is not the last record of an object of this log.
    async fn news(
        &self,
        run: &RunKey,
        log: &OpenedLog,
        known: HeadRef,
    ) -> Result<Option<Vec<Record>>, S3StoreError> {
        let Some(from) =
            known.seq.get().checked_add(1).filter(|from| (log.first()..=log.last()).contains(from))
        else {
            return Ok(None);
        };
        let newest = self.chunk_with(run, log, log.last()).await?;
        let items = self.older(run, log, newest.head.start, from).await?;
        let mut records = Vec::new();
        for chunk in self.chunks(&items).await?.into_iter().rev() {
            records.extend(chunk.records);
        }
        records.extend(newest.records);
        records.retain(|record| record.header.seq > known.seq);
        let is_next = records.first().is_some_and(|first| first.header.prev == Some(known.id));
        if !is_next || check_news(run, known, &records).is_err() {
            return Ok(None);
        }
        for record in &records {
            record.verify(run).map_err(S3StoreError::Checked)?;
        }
        Ok(Some(records))
    }

    async fn load_from(&self, run: &RunKey, log: &OpenedLog, at: At) -> Result<Vec<Record>, S3StoreError> {
        let (first, last) = (log.first(), log.last());
        let target = match at {
            At::Latest => Some(last),
            At::Seq(seq) => Some(seq.get()),
            At::Record(id) if id == log.seen.last.id => Some(last),
            At::Record(id) => self.find(run, log, id).await?,
        };
        let target = target
            .filter(|target| (first..=last).contains(target))
            .ok_or_else(|| S3StoreError::NoRecord { at, first: Seq::new(first), last: Seq::new(last) })?;
        let newest = self.chunk_with(run, log, target).await?;
        let end = usize::try_from(target - newest.head.first()).unwrap_or(usize::MAX);
        let upto = newest.records.get(..=end).ok_or_else(|| missing(&newest.key, target))?;
        let mut records = Vec::new();
        if !upto.iter().any(|record| record.header.base) {
            let from = newest.head.base.max(log.cut().object);
            let items = self.older(run, log, newest.head.start, from).await?;
            for chunk in self.chunks(&items).await?.into_iter().rev() {
                records.extend(chunk.records);
            }
        }
        records.extend_from_slice(upto);
        let base = records.iter().rposition(|record| record.header.base && record.header.seq.get() >= first);
        let base = base.ok_or_else(|| S3StoreError::Damaged {
            key: newest.key.clone(),
            seq: None,
            what: "no base remains at or before it".into(),
        })?;
        let needed = records.split_off(base);
        check_loaded(run, &needed, Seq::new(target)).map_err(S3StoreError::Checked)?;
        for record in &needed {
            record.verify(run).map_err(S3StoreError::Checked)?;
        }
        Ok(needed)
    }

    /// Reads the object that contains a record.
    pub(crate) async fn chunk_with(
        &self,
        run: &RunKey,
        log: &OpenedLog,
        seq: u64,
    ) -> Result<LogObject, S3StoreError> {
        let items = self.items_from(run, log, seq, 1).await?;
        let key = self.layout.object(run, ObjectPlace { generation: log.generation(), start: seq });
        let item = items.into_iter().next().ok_or_else(|| missing(&key, seq))?;
        let chunk = self.chunk(item).await?;
        // A prune emptied the object, or the next object is missing.
        if (chunk.head.first()..chunk.head.end()).contains(&seq) {
            Ok(chunk)
        } else {
            Err(missing(&key, seq))
        }
    }

    /// Lists up to `most` objects that begin at or before a record, newest first.
    async fn items_from(
        &self,
        run: &RunKey,
        log: &OpenedLog,
        seq: u64,
        most: usize,
    ) -> Result<Vec<ListedObject>, S3StoreError> {
        let generation = log.generation();
        let start = seq.checked_add(1);
        let key = |start| self.layout.object(run, ObjectPlace { generation, start });
        // Start the listing before the key of the next record.
        let listed = match start.map(key) {
            Some(after) => self.bucket.list(&self.layout.run(run), Some(&after), most).await?,
            None => self.bucket.list(&self.layout.run(run), None, most).await?,
        };
        let is_of_generation = |item: &ListedObject| {
            self.layout.place_of(run, &item.key).is_some_and(|p| p.generation == generation)
        };
        Ok(listed.value.items.into_iter().take_while(is_of_generation).collect())
    }

    /// Lists the objects that begin before `start` and at or after `from`, newest first.
    pub(crate) async fn older(
        &self,
        run: &RunKey,
        log: &OpenedLog,
        start: u64,
        from: u64,
    ) -> Result<Vec<ListedObject>, S3StoreError> {
        let mut all = Vec::new();
        let Some(mut next) = start.checked_sub(1) else { return Ok(all) };
        loop {
            let items = self.items_from(run, log, next, PAGE).await?;
            let is_last = items.len() < PAGE;
            for item in items {
                let place = self.layout.place_of(run, &item.key);
                let Some(place) = place.filter(|place| place.start >= from) else { return Ok(all) };
                next = place.start;
                all.push(item);
            }
            match next.checked_sub(1) {
                Some(before) if !is_last => next = before,
                _ => return Ok(all),
            }
        }
    }

    /// Reads objects, several at the same time. Returns them in the given order.
    async fn chunks(&self, items: &[ListedObject]) -> Result<Vec<LogObject>, S3StoreError> {
        let tasks = items.iter().map(|item| Box::pin(self.chunk(item.clone())) as Task<'_, _>);
        bounded_join::all(tasks.collect(), self.options.parallel.get()).await
    }

    async fn chunk(&self, item: ListedObject) -> Result<LogObject, S3StoreError> {
        let ListedObject { key, size, .. } = item;
        // An object with the size of a mark counts as missing, without a read.
        if size == GONE.len() as u64 {
            return Err(S3StoreError::Missing { key, seq: None });
        }
        let Some(object) = self.bucket.get(&key, None).await? else {
            return Err(S3StoreError::Missing { key, seq: None });
        };
        let bytes: Bytes = object.value.bytes;
        let (head, records) = ObjectHead::decode_whole(self.layout.below_logs(&key), &bytes)
            .map_err(|fault| invalid_object(&key, None, fault))?;
        Ok(LogObject { key, etag: object.value.etag, head, records })
    }

    /// Reads the heads of objects, several at the same time. Returns them in the given order.
    async fn heads(&self, items: &[ListedObject]) -> Result<Vec<ObjectHead>, S3StoreError> {
        let head = async |key: String| match self.head_of(&key).await? {
            Some((head, _)) => Ok(head),
            None => Err(S3StoreError::Missing { key, seq: None }),
        };
        let tasks = items.iter().map(|item| Box::pin(head(item.key.clone())) as Task<'_, _>);
        bounded_join::all(tasks.collect(), self.options.parallel.get()).await
    }

    /// Finds the number of the record with this id, from the newest record backward.
    async fn find(&self, run: &RunKey, log: &OpenedLog, id: RecordId) -> Result<Option<u64>, S3StoreError> {
        let mut next = log.last();
        loop {
            let mut items = self.items_from(run, log, next, SEARCHED).await?;
            let is_kept = |item: &ListedObject| {
                self.layout.place_of(run, &item.key).is_some_and(|place| place.start >= log.cut().object)
            };
            // Objects before the cut are remains of a prune and do not belong to the log.
            items.truncate(items.iter().take_while(|item| is_kept(item)).count());
            let heads = self.heads(&items).await?;
            for head in &heads {
                if let Some(found) = head.headers().iter().rev().find(|header| header.id == id) {
                    return Ok(Some(found.seq.get()));
                }
            }
            let oldest = heads.last().map_or(0, |head| head.start);
            match oldest.checked_sub(1) {
                Some(before) if oldest > log.cut().object => next = before,
                _ => return Ok(None),
            }
        }
    }

    /// Lists the headers of a range.
    pub(crate) async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers, S3StoreError> {
        for _ in 0..READS {
            let log = self.open(run).await?.ok_or(S3StoreError::NoRun)?;
            let kept = (Seq::new(log.first()), Seq::new(log.last()));
            let items = match range.within(kept.0, kept.1) {
                Some((begin, end)) => self.headers_between(run, &log, begin.get(), end.get()).await,
                None => Ok(Vec::new()),
            };
            match items {
                Err(fault) if fault.is_damage() && self.has_changed(run, &log).await? => {}
                done => return Ok(Headers { first: kept.0, last: kept.1, items: done? }),
            }
        }
        Err(S3StoreError::Restless { what: self.layout.run(run) })
    }

    /// Reads the headers from one record to another, including both. Needs one listing, and reads the head of each object.
    async fn headers_between(
        &self,
        run: &RunKey,
        log: &OpenedLog,
        begin: u64,
        end: u64,
    ) -> Result<Vec<RecordHeader>, S3StoreError> {
        // Each object has at least one record, so this number of objects is enough.
        let most = usize::try_from(end - begin + 1).unwrap_or(PAGE).min(PAGE);
        let mut items = self.items_from(run, log, end, most).await?;
        let start = |item: &ListedObject| self.layout.place_of(run, &item.key).map_or(0, |place| place.start);
        let before = items.iter().position(|item| start(item) <= begin);
        items.truncate(before.map_or(items.len(), |before| before + 1));
        let mut headers = Vec::with_capacity(most);
        for head in self.heads(&items).await?.into_iter().rev() {
            let meant = head.headers().iter().filter(|header| (begin..=end).contains(&header.seq.get()));
            headers.extend(meant.cloned());
        }
        let dense = headers.iter().zip(begin..).find(|(header, seq)| header.seq.get() != *seq);
        let missed = match dense {
            Some((_, seq)) => Some(seq),
            None => (headers.len() as u64 != end - begin + 1).then(|| begin + headers.len() as u64),
        };
        match missed {
            Some(seq) => Err(missing(
                &self.layout.object(run, ObjectPlace { generation: log.generation(), start: seq }),
                seq,
            )),
            None => Ok(headers),
        }
    }

    /// Returns the total size of a log's bodies, without reading the records.
    pub(crate) fn kept_bytes(log: &OpenedLog) -> u64 {
        let kept = i128::from(log.seen.bytes) - i128::from(log.cut().dropped);
        u64::try_from(kept.max(0)).unwrap_or(u64::MAX)
    }
}

fn missing(key: &str, seq: u64) -> S3StoreError {
    S3StoreError::Missing { key: key.to_owned(), seq: Some(Seq::new(seq)) }
}
