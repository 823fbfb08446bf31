//! Tests that need the door to the file system in their hands: crashes, faults and damage.

pub(crate) mod author;
mod crash;
mod damage;
mod faults;
mod faulty;
mod late;

use std::path::Path;
use std::sync::Arc;

use ferrata_store::{At, HeadRef, HeaderRange, PruneCut, RecordId, Removed, RunAppend, RunKey, SystemClock};

use crate::caller::Waiting;
use crate::config::FsOptions;
use crate::disk::{Disk, RealDisk};
use crate::error::StoreError;
use crate::inner::Inner;
use crate::layout::Layout;

fn folder(root: &Path, disk: Arc<dyn Disk>) -> Inner {
    let options = FsOptions::default().with_lock_wait(std::time::Duration::from_secs(20));
    Inner::new(disk, Layout::new(root.into()), Arc::new(SystemClock::new()), options)
}

/// The folder as another process sees it.
fn reopened(root: &Path) -> Inner {
    folder(root, Arc::new(RealDisk))
}

/// Appends for a caller that waits.
fn append(folder: &Inner, entry: &RunAppend) -> Result<HeadRef, StoreError> {
    let waiting = Waiting::new();
    folder.append(entry, &waiting.caller())
}

/// Prunes for a caller that waits.
fn prune(folder: &Inner, run: &RunKey, cut: &PruneCut) -> Result<Removed, StoreError> {
    let waiting = Waiting::new();
    folder.prune(run, cut, &waiting.caller())
}

/// Purges, whatever the head is, for a caller that waits.
fn purge(folder: &Inner, run: &RunKey) -> Result<Removed, StoreError> {
    let waiting = Waiting::new();
    folder.purge(run, None, &waiting.caller())
}

/// The ids of all records, by way of the history and of loading each; `None` if there is no such run.
fn ids(folder: &Inner, run: &RunKey) -> Result<Option<Vec<RecordId>>, StoreError> {
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
