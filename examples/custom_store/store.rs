//! A store with all runs in one file. The example is the smallest store that fulfills the whole contract, for one process.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock, Error, ErrorKind, ExecutorId, HeadRef, HeaderRange, Headers,
    Notices, Page, Paged, PruneCut, Record, RecordHeader, Removed, Result, RunAppend, RunFacts, RunHead,
    RunKey, RunQuery, SystemClock, Timestamp, check_append, check_prune, is_repeat, refusal,
};
use serde::{Deserialize, Serialize};

/// A store that keeps all runs in one file.
#[derive(Debug)]
pub(crate) struct OneFile {
    path: PathBuf,
    content: Mutex<Content>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Content {
    logs: Vec<Log>,
    /// The heartbeats: each process with the time until which it counts as alive.
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
        // A log is created with its first records, and a prune keeps at least one, so the last record exists.
        &self.records[self.records.len() - 1].0
    }

    fn record(&self, at: usize) -> Result<Record> {
        let (header, body) = &self.records[at];
        let record = Record { header: header.clone(), body: body.clone().into() };
        record.verify(&self.run).map(|()| record)
    }
}

impl OneFile {
    /// Opens the file. If it does not exist, the store begins empty.
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

    /// Changes the content, and writes it if the change succeeded. If the write fails, the content stays as it was.
    fn change<T>(&self, change: impl FnOnce(&mut Content) -> Result<T>) -> Result<T> {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = content.clone();
        let result = change(&mut next)?;
        self.write(&next)?;
        *content = next;
        Ok(result)
    }

    /// Replaces the file by the whole content. The function first writes a temporary file to disk, and then renames it.
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

    /// Appends records if the run's head is the expected one. The whole contract is based on this rule.
    fn append(&mut self, append: RunAppend) -> Result<HeadRef> {
        check_append(&append)?;
        let head = self.find(&append.run).map(|log| log.head().head());
        if head != append.expected {
            if let Some(log) = self.find(&append.run)
                && is_repeat(log.records.iter().rev().map(|(header, _)| header), &append)
            {
                return Ok(log.head().head());
            }
            return Err(refusal::conflict(&append.run, append.expected, head));
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
            (None, None) => Err(refusal::no_run("store.append", &append.run)),
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
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
                return Err(refusal::doubled(&append.run));
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

    /// Returns the whole log each time, which the contract allows. A store with long logs should read only the new records.
    async fn load_since(&self, run: &RunKey, _known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.load(run, At::Latest).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.read(|content| {
            let log = content.find(run).ok_or_else(|| refusal::no_run("store.headers", run))?;
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
        let now = SystemClock::new().now();
        self.read(|content| {
            let heads = content.logs.iter().map(|log| content.run_head(log));
            ferrata_store::page(query, &page, now, heads)
        })
    }

    async fn prune(&self, run: &RunKey, prune: PruneCut) -> Result<Removed> {
        self.change(|content| {
            let log = content.find_mut(run).ok_or_else(|| refusal::no_run("store.prune", run))?;
            if prune.at < log.records[0].0.seq {
                // The log was already pruned further.
                return Ok(Removed::default());
            }
            let at = log
                .records
                .iter()
                .position(|(header, _)| header.seq == prune.at)
                .ok_or_else(|| refusal::no_record("store.prune", run, At::Seq(prune.at)))?;
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
                return Err(refusal::conflict(run, expected, Some(head)).with_operation("store.purge"));
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

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let now = SystemClock::new().now();
        self.read(|content| Ok(content.alive.iter().any(|(known, until)| known == executor && now < *until)))
    }

    fn transactions(&self) -> Option<&dyn ferrata_store::Transactions> {
        None
    }

    fn part(&self, _run: &RunKey) -> u64 {
        0
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn ferrata_store::Relay> {
        None
    }

    fn subscribe(&self) -> Option<Notices> {
        None
    }
}
