//! Folders that are missing, forever or for a moment. The store must not report their runs as purged.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrata_store::{CheckpointStore, ErrorKind, HeaderRange, Page, PruneCut, RunQuery, Seq};
use tempfile::TempDir;

use super::author::Author;
use super::hasty::HastyDisk;
use super::{append, folder, ids};
use crate::disk::{Disk, FileAccess};
use crate::inner::FsInner;
use crate::{FsOptions, FsStore};

/// A disk on which the folder of runs is missing for one call, and exists again at the next call.
#[derive(Debug)]
struct FlickeringDisk {
    runs: PathBuf,
    /// How many calls about the folder's content succeed before the call that finds it missing.
    calls: AtomicUsize,
}

impl FlickeringDisk {
    fn call<T>(&self, path: &Path, call: impl FnOnce() -> T) -> T {
        let is_away = path.starts_with(&self.runs)
            && self.calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                == Ok(1);
        if !is_away {
            return call();
        }
        let aside = self.runs.with_extension("aside");
        fs::rename(&self.runs, &aside).unwrap();
        let done = call();
        fs::rename(&aside, &self.runs).unwrap();
        done
    }
}

impl Disk for FlickeringDisk {
    fn open(&self, path: &Path, access: FileAccess) -> io::Result<File> {
        self.call(path, || HastyDisk.open(path, access))
    }

    fn stat(&self, path: &Path) -> io::Result<Metadata> {
        self.call(path, || HastyDisk.stat(path))
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        HastyDisk.read_at(file, buffer, at)
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        HastyDisk.write_at(file, bytes, at)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        HastyDisk.set_len(file, len)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        HastyDisk.sync(file)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        HastyDisk.sync_dir(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        HastyDisk.make_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        HastyDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(path, || HastyDisk.remove(path))
    }
}

/// A folder whose root changed before the last tick of the file system's clock, so that a new change gets another time.
fn settled() -> (TempDir, Author) {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let folder = folder(&root, Arc::new(HastyDisk));
    folder.set_up().unwrap();
    let mut author = Author::new("r");
    append(&folder, &author.write(&["0", "1"])).unwrap();
    let time = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let probe = directory.path().join("probe");
    while {
        fs::write(&probe, "").unwrap();
        time(&probe) <= time(&root)
    } {}
    (directory, author)
}

/// The folder is missing during one call. The call returns the run, or reports that the folder is missing. Nothing is changed.
#[test]
fn moment_of_absence_purges_no_run() {
    for calls in 1..12 {
        let (directory, mut author) = settled();
        let root = directory.path().join("root");
        let disk = |calls| FlickeringDisk { runs: root.join("runs"), calls: AtomicUsize::new(calls) };
        let open = |calls: usize| -> FsInner {
            let folder = folder(&root, Arc::new(disk(calls)));
            folder.ready_to_read().unwrap();
            folder
        };
        let what = format!("away at call {calls}");
        let is_away = |fault: crate::error::FsStoreError| {
            let error = ferrata_store::Error::from(fault);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error:?}");
        };
        match open(calls).head(&author.run) {
            Ok(head) => assert_eq!(head.map(|head| head.head()), author.head, "{what}: head"),
            Err(fault) => is_away(fault),
        }
        match open(calls).runs(&RunQuery::default(), &Page::default()) {
            Ok(listed) => assert_eq!(listed.items.len(), 1, "{what}: listing"),
            Err(fault) => is_away(fault),
        }
        let entry = author.clone().write(&["2"]);
        if let Err(fault) = append(&open(calls), &entry) {
            let error = ferrata_store::Error::from(fault);
            assert!(error.is_retryable(), "{what}: {error:?}");
        }
        // Whether or not the records were written, appending them again decides it.
        author.head = Some(append(&open(0), &entry).unwrap());
        let seen = ids(&open(0), &author.run).unwrap().expect("the run must exist");
        assert_eq!(seen.last().copied(), author.head.map(|head| head.id), "{what}: append");
        // The run to purge exists, so the purge must not report that it was gone already.
        let waiting = crate::caller::CallerGuard::new();
        match open(calls).purge(&author.run, None, &waiting.caller()) {
            Ok(removed) => assert!(removed.records >= 2, "{what}: purge {removed:?}"),
            Err(fault) => is_away(fault),
        }
    }
}

/// Every call on a run whose folder is gone fails, both in the process that used the folder and in a new process. Once the folder is back, all
/// calls succeed.
#[tokio::test]
async fn missing_folder_is_unavailable() {
    for missing in ["runs", "runs/default"] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        let open = || FsStore::open_with(&root, FsOptions::default()).unwrap();
        let store = open();
        let mut author = Author::new("r");
        let append_to = async |store: &FsStore, entry| store.append(vec![entry]).await.remove(0);
        append_to(&store, author.write(&["0", "1"])).await.unwrap();
        let (folder, aside) = (root.join(missing), directory.path().join("aside"));
        fs::rename(&folder, &aside).unwrap();

        let (run, head) = (author.run.clone(), author.head);
        let fresh = open();
        let is_new = missing == "runs";
        for store in [&store, &fresh].into_iter().take(if is_new { 2 } else { 1 }) {
            let start = Author::new("r").write(&["0"]);
            let cut = PruneCut { at: Seq::new(1), base: None };
            for refused in [
                store.head(&run).await.map(drop),
                store.load(&run, ferrata_store::At::Latest).await.map(drop),
                store.load_since(&run, head.unwrap()).await.map(drop),
                store.headers(&run, HeaderRange::oldest(9)).await.map(drop),
                store
                    .runs(&RunQuery::default(), Page::default())
                    .await
                    .map(drop)
                    .and(store.head(&run).await.map(drop)),
                append_to(store, author.clone().write(&["2"])).await.map(drop),
                append_to(store, start).await.map(drop),
                store.prune(&run, cut).await.map(drop),
                store.purge(&run, None).await.map(drop),
            ] {
                let refused = refused.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Unavailable, "{missing}: {refused:?}");
                assert!(
                    refused.to_string().contains(&format!("the folder {} is missing", folder.display())),
                    "{refused}"
                );
            }
        }
        if is_new {
            let refused = fresh.setup().await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
        }
        assert!(!folder.exists(), "nothing may replace {missing}");
        fs::rename(&aside, &folder).unwrap();
        append_to(&store, author.write(&["2"])).await.unwrap();
        assert_eq!(fresh.head(&run).await.unwrap().map(|head| head.head()), author.head);

        // An empty folder says that its runs are purged.
        fs::rename(&folder, &aside).unwrap();
        fs::create_dir(&folder).unwrap();
        assert!(store.head(&run).await.unwrap().is_none(), "{missing}");
        append_to(&store, Author::new("r").write(&["0"])).await.unwrap();
    }
}

/// If the folder of heartbeats is gone, no executor counts as dead: otherwise another process would claim its runs.
#[tokio::test]
async fn missing_heartbeats_kill_no_executor() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let (store, mut author) = (FsStore::open_with(&root, FsOptions::default()).unwrap(), Author::new("r"));
    let mut entry = author.write(&["0"]);
    let owner = ferrata_store::ExecutorId::from_uuid(*entry.records[0].header.id.as_uuid());
    entry.records[0].header.owner = Some(owner);
    store.heartbeat(&owner, std::time::Duration::from_secs(60)).await.unwrap();
    store.append(vec![entry]).await.remove(0).unwrap();
    let is_alive = async || store.head(&author.run).await.unwrap().unwrap().owner_alive;
    assert!(is_alive().await);
    fs::rename(root.join("executors"), directory.path().join("aside")).unwrap();
    assert!(is_alive().await, "no process may treat it as dead");
}

/// A journal may hold records that logs lost in a crash of the machine. Without the folder of journals, no call about a run succeeds.
#[test]
fn missing_journals_are_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let mut author = Author::new("r");
    let first = super::journaled(&root, Arc::new(HastyDisk));
    first.set_up().unwrap();
    append(&first, &author.write(&["0"])).unwrap();
    drop(first);
    let (journals, aside) = (root.join("journals"), directory.path().join("aside"));
    fs::rename(&journals, &aside).unwrap();
    let refused = folder(&root, Arc::new(HastyDisk)).ready_to_read().unwrap_err();
    assert!(
        refused.to_string().contains(&format!("the folder {} is missing", journals.display())),
        "{refused}"
    );
    fs::rename(&aside, &journals).unwrap();
    let found = ids(&super::reopened(&root), &author.run).unwrap();
    assert_eq!(found.map(|ids| ids.len()), Some(1));
}
