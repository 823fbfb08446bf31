//! All runs in one file: the smallest store that keeps the whole contract, for one process.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata::record::{Record, RecordHeader, RunFacts};
use ferrata::store::{
    At, Capabilities, CheckpointStore, Cursor, HeaderRange, Headers, Order, Page, Paged, PruneCut, Removed,
    RunAppend, RunHead, RunQuery, check_append, check_prune, is_repeat,
};
use ferrata::{Clock, Error, ErrorKind, ExecutorId, HeadRef, Result, RunKey, SystemClock, Timestamp};
use serde::{Deserialize, Serialize};

/// A store in one file.
#[derive(Debug)]
pub(crate) struct OneFile {
    path: PathBuf,
    content: Mutex<Content>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Content {
    logs: Vec<Log>,
    /// Who is alive, and until when.
    alive: Vec<(ExecutorId, Timestamp)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Log {
    run: RunKey,
    facts: RunFacts,
    records: Vec<(RecordHeader, Vec<u8>)>,
}

impl Log {
    fn head(&self) -> &RecordHeader {
        // A log is made with its first records, and pruning keeps one.
        &self.records[self.records.len() - 1].0
    }

    fn record(&self, at: usize) -> Result<Record> {
        let (header, body) = &self.records[at];
        let record = Record { header: header.clone(), body: body.clone().into() };
        record.verify(&self.run).map(|()| record)
    }
}

impl OneFile {
    /// Opens the file, or begins with nothing if there is none.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let content = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| {
                Error::new(ErrorKind::Corrupt, "the file is not one of this store").with_source(source)
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Content::default(),
            Err(error) => return Err(unavailable(error)),
        };
        Ok(Self { path: path.to_owned(), content: Mutex::new(content) })
    }

    fn read<T>(&self, read: impl FnOnce(&Content) -> T) -> T {
        read(&self.content.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the content, and writes it if that went well; a write that fails changes nothing.
    fn change<T>(&self, change: impl FnOnce(&mut Content) -> Result<T>) -> Result<T> {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = content.clone();
        let result = change(&mut next)?;
        self.write(&next)?;
        *content = next;
        Ok(result)
    }

    /// Puts the whole content in the place of the file: on the disk first, then under its name.
    fn write(&self, content: &Content) -> Result<()> {
        let text = serde_json::to_vec(content)
            .map_err(|source| Error::new(ErrorKind::Invalid, "cannot be stored").with_source(source))?;
        let beside = self.path.with_extension("new");
        let write = || {
            let mut file = File::create(&beside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&beside, &self.path)?;
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(unavailable)
    }
}

fn unavailable(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the file of the runs cannot be used").with_source(error)
}

fn missing(run: &RunKey) -> Error {
    Error::new(ErrorKind::NotFound, "there is no such run; it was purged, or never started").with_run(run)
}

impl Content {
    fn find(&self, run: &RunKey) -> Option<&Log> {
        self.logs.iter().find(|log| log.run == *run)
    }

    fn find_mut(&mut self, run: &RunKey) -> Option<&mut Log> {
        self.logs.iter_mut().find(|log| log.run == *run)
    }

    fn run_head(&self, log: &Log) -> RunHead {
        let now = SystemClock::new().now();
        let alive = |owner| self.alive.iter().any(|(executor, until)| *executor == owner && now < *until);
        let (first, last) = (log.records[0].0.seq, log.head());
        let owner_alive = last.owner.is_some_and(alive);
        RunHead::after(log.run.clone(), first, last, owner_alive, log.facts.clone())
    }

    /// The one sentence that everything rests on: an append succeeds only if the head is the expected one.
    fn append(&mut self, append: RunAppend) -> Result<HeadRef> {
        check_append(&append)?;
        let head = self.find(&append.run).map(|log| log.head().head());
        if head != append.expected {
            if let Some(log) = self.find(&append.run)
                && is_repeat(log.records.iter().rev().map(|(header, _)| header), &append)
            {
                return Ok(log.head().head());
            }
            let message = "the run has another head than expected; load it and decide again";
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_run(&append.run)
                .with_actual_head(head));
        }
        let records = append.records.into_iter().map(|record| (record.header, record.body.to_vec()));
        match (self.find_mut(&append.run), append.facts) {
            (Some(log), _) => {
                log.records.extend(records);
                Ok(log.head().head())
            }
            (None, Some(facts)) => {
                let log = Log { run: append.run, facts, records: records.collect() };
                let head = log.head().head();
                self.logs.push(log);
                Ok(head)
            }
            (None, None) => Err(missing(&append.run)),
        }
    }
}

/// Cuts one page out of entries that are in the order of the page; the cursor is the key of the last entry before.
fn cut<T>(entries: Vec<T>, page: &Page, kind: &str, key: impl Fn(&T) -> String) -> Result<Paged<T>> {
    let mut entries = entries;
    if let Some(cursor) = &page.cursor {
        let key_of = cursor.as_str().strip_prefix(kind).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "the cursor is not of this listing; start at its first page")
        })?;
        // What the cursor stood at may be gone by now; what follows it is what is ordered behind it.
        let behind = |entry: &T| match page.order {
            Order::OldestFirst | Order::Any => key(entry).as_str() > key_of,
            Order::NewestFirst => key(entry).as_str() < key_of,
        };
        entries.retain(behind);
    }
    let more = entries.len() > page.len();
    entries.truncate(page.len());
    let next = entries.last().filter(|_| more).map(|last| Cursor::new(format!("{kind}{}", key(last))));
    Ok(Paged { items: entries, next })
}

#[async_trait]
impl CheckpointStore for OneFile {
    fn capabilities(&self) -> Capabilities {
        // Two processes would overwrite each other's file.
        Capabilities::new("one-file").with_durable(true)
    }

    async fn setup(&self) -> Result<()> {
        self.change(|_| Ok(()))
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let mut seen = HashSet::new();
        let one = |append: RunAppend| {
            if !seen.insert(append.run.clone()) {
                let message = "the run stands in the batch already; join its records into one entry";
                return Err(Error::new(ErrorKind::Invalid, message).with_run(&append.run));
            }
            self.change(|content| content.append(append))
        };
        batch.into_iter().map(one).collect()
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.read(|content| {
            let Some(log) = content.find(run) else { return Ok(None) };
            let place = match at {
                At::Latest => Some(log.records.len() - 1),
                At::Seq(seq) => log.records.iter().position(|(header, _)| header.seq == seq),
                At::Record(id) => log.records.iter().position(|(header, _)| header.id == id),
            };
            let end = place.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("the run has no such record: {at}")).with_run(run)
            })?;
            let base = (0..=end).rev().find(|&at| log.records[at].0.base).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, "the run has no base before the record").with_run(run)
            })?;
            (base..=end).map(|at| log.record(at)).collect::<Result<_>>().map(Some)
        })
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.read(|content| {
            let log = content.find(run).ok_or_else(|| missing(run))?;
            let (first, last) = (log.records[0].0.seq, log.head().seq);
            let headers = log.records.iter().map(|(header, _)| header);
            let items = match range.within(first, last) {
                Some((begin, end)) => headers.filter(|h| begin <= h.seq && h.seq <= end).cloned().collect(),
                None => Vec::new(),
            };
            Headers::checked(run, range, (first, last), items)
        })
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        Ok(self.read(|content| content.find(run).map(|log| content.run_head(log))))
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let key = |head: &RunHead| {
            // Shifted, so that times before 1970 are ordered like others.
            let created = i128::from(head.facts.created.unix_ms()) - i128::from(i64::MIN);
            format!("{created:020} {} {}", head.run.tenant, head.run.run)
        };
        let now = SystemClock::new().now();
        let mut heads: Vec<_> =
            self.read(|content| content.logs.iter().map(|log| content.run_head(log)).collect());
        heads.retain(|head| query.matches(head, now));
        heads.sort_by_cached_key(key);
        if page.order == Order::NewestFirst {
            heads.reverse();
        }
        cut(heads, &page, "run ", key)
    }

    async fn prune(&self, run: &RunKey, prune: PruneCut) -> Result<Removed> {
        self.change(|content| {
            let log = content.find_mut(run).ok_or_else(|| missing(run))?;
            if prune.at < log.records[0].0.seq {
                // It was pruned further already.
                return Ok(Removed::default());
            }
            let at = log.records.iter().position(|(header, _)| header.seq == prune.at).ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "the run has no record at the cut")
                    .with_run(run)
                    .with_seq(prune.at)
            })?;
            if let Some(base) = check_prune(run, &log.records[at].0, &prune)? {
                log.records[at] = (base.header.clone(), base.body.to_vec());
            }
            let gone = log.records.drain(..at);
            Ok(gone.fold(Removed::default(), |count, (_, body)| Removed {
                records: count.records + 1,
                bytes: count.bytes + body.len() as u64,
            }))
        })
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.change(|content| {
            let Some(at) = content.logs.iter().position(|log| log.run == *run) else {
                return Ok(Removed::default());
            };
            let head = content.logs[at].head().head();
            if expected.is_some_and(|expected| expected != head) {
                let message = format!("the head is {head}");
                return Err(Error::new(ErrorKind::Conflict, message)
                    .with_run(run)
                    .with_actual_head(Some(head)));
            }
            let log = content.logs.remove(at);
            let bytes = log.records.iter().map(|(_, body)| body.len() as u64).sum();
            Ok(Removed { records: log.records.len() as u64, bytes })
        })
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.change(|content| {
            let now = SystemClock::new().now();
            content.alive.retain(|(known, until)| known != executor && now < *until);
            content.alive.push((*executor, now.plus(ttl)));
            Ok(())
        })
    }
}
