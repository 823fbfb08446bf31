//! Tests that control the file system: crashes, faults and damage.

pub(crate) mod author;
mod away;
mod crash;
mod damage;
mod faults;
mod faulty;
mod hasty;
mod journal;
mod late;
mod links;
mod listed;

use std::path::Path;
use std::sync::Arc;

use ferrata_store::{At, HeadRef, HeaderRange, PruneCut, RecordId, Removed, RunAppend, RunKey};

use self::hasty::HastyDisk;
use crate::caller::CallerGuard;
use crate::clock::MachineClock;
use crate::config::FsOptions;
use crate::disk::Disk;
use crate::error::FsStoreError;
use crate::inner::FsInner;
use crate::journal::JournalLimits;
use crate::layout::FsLayout;

fn folder(root: &Path, disk: Arc<dyn Disk>) -> FsInner {
    folder_with(root, disk, 16, JournalLimits::default())
}

/// A folder that writes to a journal from its first append on. The journal is full after a few appends.
fn journaled(root: &Path, disk: Arc<dyn Disk>) -> FsInner {
    folder_with(root, disk, 0, JournalLimits { step: 1_024, most: 8 * 512, longest: 4_000 })
}

fn folder_with(root: &Path, disk: Arc<dyn Disk>, journal_after: usize, limits: JournalLimits) -> FsInner {
    let one = std::num::NonZeroUsize::MIN;
    let options = FsOptions::default()
        .with_lock_wait(std::time::Duration::from_secs(20))
        .with_parallel(one)
        .with_journal_after(journal_after);
    FsInner::new(disk, FsLayout::new(root.into()), Arc::new(MachineClock::new()), options, limits)
}

/// Opens the folder like another process.
fn reopened(root: &Path) -> FsInner {
    let folder = folder(root, Arc::new(HastyDisk));
    folder.ready_to_read().expect("it can be read");
    folder
}

/// Appends, for a caller that waits.
fn append(folder: &FsInner, entry: &RunAppend) -> Result<HeadRef, FsStoreError> {
    let waiting = CallerGuard::new();
    folder.append(entry, &waiting.caller())
}

/// Prunes, for a caller that waits.
fn prune(folder: &FsInner, run: &RunKey, cut: &PruneCut) -> Result<Removed, FsStoreError> {
    let waiting = CallerGuard::new();
    folder.prune(run, cut, &waiting.caller())
}

/// Purges whatever the head is, for a caller that waits.
fn purge(folder: &FsInner, run: &RunKey) -> Result<Removed, FsStoreError> {
    let waiting = CallerGuard::new();
    folder.purge(run, None, &waiting.caller())
}

/// Returns the ids of all records, from the history and from a load of each record; `None` if the run does not exist.
fn ids(folder: &FsInner, run: &RunKey) -> Result<Option<Vec<RecordId>>, FsStoreError> {
    let Some(records) = folder.load(run, At::Latest)? else {
        return Ok(None);
    };
    let headers = folder.headers(run, HeaderRange::oldest(1_000))?.items;
    assert!(headers.iter().zip(headers.iter().skip(1)).all(|(a, b)| b.prev == Some(a.id)));
    let loaded: Vec<_> = records.iter().map(|record| &record.header).collect();
    assert!(
        headers.iter().rev().zip(loaded.iter().rev()).all(|(a, b)| a == *b),
        "a load is the end of the history"
    );
    assert_eq!(folder.head(run)?.map(|head| head.id), headers.last().map(|header| header.id));
    Ok(Some(headers.iter().map(|header| header.id).collect()))
}
