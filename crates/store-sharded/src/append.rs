//! Appends to runs in several shards. A batch goes to all of its shards at the same time. A start may need several rounds.
//!
//! An append to an existing run goes to the shard of the run. A new run starts at its *home*: the shard that the newest generation gives it.
//! Another process may not know that generation, and start the same run at an earlier home. So the start first writes a *signpost* to each earlier
//! home, with the same conditional append that starts a run. If the signpost wins, no process can start the run there. If a run wins, the start
//! finds that run. So only one process starts the run, whatever generations the processes know.

use std::collections::{BTreeMap, HashSet};

use crate::join_all::join_all;
use crate::map::RunPlaces;
use crate::shard_mark::{is_mark, map_key, signpost};
use crate::store::{ShardedStore, unknown_generation_error};
use ferrata_store::{Error, ErrorKind, HeadRef, Result, RunAppend, RunKey, check_append};

/// The maximum number of reads of a run that seems to exist and then does not, as during a purge.
const LOOKS: u8 = 4;

/// An entry of a batch in progress.
struct PendingEntry {
    run: RunKey,
    /// The append. The last send takes it out.
    append: Option<RunAppend>,
    is_start: bool,
    places: RunPlaces,
    /// The index of the next shard in `places`.
    at: usize,
    looks: u8,
    next: EntryStep,
}

/// The next step of an entry.
enum EntryStep {
    /// Search for the run, which exists, in every possible shard.
    Find,
    /// Write a signpost to the shard.
    Signpost,
    /// Append in the shard. If true, the result is final.
    Append(bool),
    /// Read the run that the shard has. If an append was refused, holds its error.
    Look(Option<Error>),
    Done(Result<HeadRef>),
}

impl ShardedStore {
    pub(crate) async fn append_all(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let mut named = HashSet::with_capacity(batch.len());
        let mut entries: Vec<PendingEntry> =
            batch.into_iter().map(|append| self.entry(append, &mut named)).collect();
        while entries.iter().any(|entry| !matches!(entry.next, EntryStep::Done(_))) {
            self.read_places(&mut entries).await;
            self.send(&mut entries).await;
        }
        let lost =
            || Error::new(ErrorKind::Indeterminate, "an entry got no result; retry with the same records");
        let result = |entry: PendingEntry| match entry.next {
            EntryStep::Done(result) => result,
            _ => Err(lost()),
        };
        entries.into_iter().map(result).collect()
    }

    fn entry(&self, append: RunAppend, named: &mut HashSet<RunKey>) -> PendingEntry {
        let run = append.run.clone();
        let (places, is_start) = (self.map.places(&run), append.expected.is_none());
        let refusal = |message: &str| {
            EntryStep::Done(Err(Error::new(ErrorKind::Invalid, message)
                .with_operation("store.append")
                .with_run(&run)))
        };
        let (mut at, mut next) = (0, EntryStep::Append(false));
        if !named.insert(run.clone()) {
            next = EntryStep::Done(Err(ferrata_store::refusal::doubled(&run)));
        } else if map_key().is_ok_and(|key| key == run) {
            next = refusal("the id is reserved for the map of the shards; use another id");
        } else if append.is_mark() {
            next = refusal("names that start with `ferrata:` are reserved; rename the workflow");
        } else if is_start {
            // Check first: an append that its home would refuse must not leave signposts.
            next = match check_append(&append) {
                Err(error) if places.home > 0 => EntryStep::Done(Err(error)),
                _ => step(&places, 0),
            };
        } else if places.only().is_none() {
            let known = self.known.get(&run).and_then(|shard| places.position(shard));
            (at, next) = known.map_or((0, EntryStep::Find), |at| (at, EntryStep::Append(false)));
        }
        PendingEntry { run, append: Some(append), is_start, places, at, looks: 0, next }
    }

    /// Executes the pending reads.
    async fn read_places(&self, entries: &mut [PendingEntry]) {
        let looks =
            entries.iter_mut().filter(|entry| matches!(entry.next, EntryStep::Find | EntryStep::Look(_)));
        join_all(looks.map(|entry| async move {
            entry.next = match std::mem::replace(&mut entry.next, EntryStep::Find) {
                EntryStep::Look(refusal) => self.resolve_start(entry, refusal).await,
                _ => match self.locate(&entry.run, &entry.places).await {
                    Err(error) => EntryStep::Done(Err(error)),
                    Ok(found) => {
                        // If the run does not exist, its home gives the best error.
                        entry.at =
                            found.and_then(|shard| entry.places.position(shard)).unwrap_or(entry.places.home);
                        EntryStep::Append(true)
                    }
                },
            };
        }))
        .await;
    }

    /// Decides about a start whose append was refused: the shard has the run, or a signpost, after which the start continues with the next shard.
    async fn resolve_start(&self, entry: &mut PendingEntry, refusal: Option<Error>) -> EntryStep {
        let shard = entry.places.shards[entry.at];
        match (self.shards[shard].head(&entry.run).await, refusal) {
            (Ok(Some(head)), _) if is_mark(&head) => {
                entry.at += 1;
                if entry.at == entry.places.shards.len() {
                    return EntryStep::Done(Err(unknown_generation_error("store.append", &entry.run)));
                }
                step(&entry.places, entry.at)
            }
            (Ok(None), refusal) => {
                entry.looks += 1;
                if entry.looks < LOOKS {
                    return step(&entry.places, entry.at);
                }
                let message = "the run appears and disappears, probably because of a purge; retry";
                let busy = || Error::new(ErrorKind::Unavailable, message).with_operation("store.append");
                EntryStep::Done(Err(refusal.unwrap_or_else(|| busy().with_run(&entry.run))))
            }
            // An unreadable run exists, too.
            (Ok(Some(_)), Some(refusal)) => EntryStep::Done(Err(refusal)),
            (Ok(Some(_)), None) => EntryStep::Append(true),
            (Err(error), refusal) if exists(&error) => match refusal {
                Some(refusal) => EntryStep::Done(Err(refusal)),
                None => EntryStep::Append(true),
            },
            (Err(error), _) => EntryStep::Done(Err(error)),
        }
    }

    /// Executes the pending writes: one batch to each shard, concurrently.
    async fn send(&self, entries: &mut [PendingEntry]) {
        let mut batches: BTreeMap<usize, (Vec<usize>, Vec<RunAppend>)> = BTreeMap::new();
        for (index, entry) in entries.iter_mut().enumerate() {
            match entry.outgoing() {
                None => {}
                Some(Err(error)) => entry.next = EntryStep::Done(Err(error)),
                Some(Ok(append)) => {
                    let (indices, batch) = batches.entry(entry.places.shards[entry.at]).or_default();
                    indices.push(index);
                    batch.push(append);
                }
            }
        }
        let sent = join_all(batches.into_iter().map(|(shard, (indices, batch))| async move {
            (shard, indices, self.shards[shard].append(batch).await)
        }))
        .await;
        for (shard, indices, results) in sent {
            for (index, result) in indices.into_iter().zip(results) {
                entries[index].next = self.handle_result(&mut entries[index], shard, result);
            }
        }
    }

    fn handle_result(&self, entry: &mut PendingEntry, shard: usize, result: Result<HeadRef>) -> EntryStep {
        let is_many = entry.places.only().is_none();
        match (&entry.next, result) {
            (EntryStep::Signpost, Ok(_)) => {
                entry.at += 1;
                step(&entry.places, entry.at)
            }
            (EntryStep::Signpost, Err(error)) if error.kind() == ErrorKind::Conflict => EntryStep::Look(None),
            (_, Ok(head)) => {
                if is_many {
                    self.known.put(&entry.run, shard);
                }
                EntryStep::Done(Ok(head))
            }
            (EntryStep::Append(false), Err(error))
                if error.kind() == ErrorKind::Conflict && entry.is_start =>
            {
                EntryStep::Look(Some(error))
            }
            // The cached shard is out of date: the run was purged there.
            (EntryStep::Append(false), Err(error)) if error.actual_head() == Some(None) && is_many => {
                self.known.remove(&entry.run);
                EntryStep::Find
            }
            (_, Err(error)) => EntryStep::Done(Err(error)),
        }
    }
}

impl PendingEntry {
    /// Returns the append for the next shard, if there is one.
    fn outgoing(&mut self) -> Option<Result<RunAppend>> {
        let append = match self.next {
            EntryStep::Signpost => self.append.as_ref().map(signpost),
            // This is the last send, so no copy is needed.
            EntryStep::Append(true) => self.append.take().map(Ok),
            EntryStep::Append(false) if !self.is_start && self.places.only().is_some() => {
                self.append.take().map(Ok)
            }
            EntryStep::Append(false) => self.append.clone().map(Ok),
            EntryStep::Find | EntryStep::Look(_) | EntryStep::Done(_) => return None,
        };
        let lost =
            || Error::new(ErrorKind::Indeterminate, "an entry was sent twice; retry with the same records");
        Some(append.unwrap_or_else(|| Err(lost())))
    }
}

/// Returns the step of a start at index `at`: a signpost at an earlier home, or the run at its home.
fn step(places: &RunPlaces, at: usize) -> EntryStep {
    if at < places.home { EntryStep::Signpost } else { EntryStep::Append(false) }
}

/// Returns whether the error reports an existing run.
pub(crate) fn exists(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}
