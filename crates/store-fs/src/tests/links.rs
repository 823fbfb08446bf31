//! Links in the places where the store creates files. The store follows no link, so a user who may write to the folder cannot make this process
//! write elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{Error, ErrorKind, ExecutorId, PruneCut};
use tempfile::TempDir;

use super::author::Author;
use super::hasty::HastyDisk;
use super::{append, folder, prune};
use crate::disk::{Disk as _, FileAccess, RealDisk};
use crate::error::FsStoreError;
use crate::inner::FsInner;

/// The content that no call of the store may change.
const PRECIOUS: &str = "what another program keeps here";

/// A folder that is set up, with a run, and a file outside of the folder.
struct Scene {
    _directory: TempDir,
    folder: FsInner,
    author: Author,
    precious: PathBuf,
}

fn scene() -> Scene {
    let directory = tempfile::tempdir().unwrap();
    let folder = folder(&directory.path().join("root"), Arc::new(HastyDisk));
    folder.set_up().unwrap();
    let mut author = Author::new("r");
    append(&folder, &author.write(&["0", "1"])).unwrap();
    let precious = directory.path().join("precious");
    fs::write(&precious, PRECIOUS).unwrap();
    Scene { _directory: directory, folder, author, precious }
}

/// The two kinds of links.
const KINDS: [fn(&Path, &Path) -> std::io::Result<()>; 2] =
    [|to, at| symlink(to, at), |to, at| fs::hard_link(to, at)];

fn is_refused<T: std::fmt::Debug>(done: Result<T, FsStoreError>, what: &str) {
    let error = Error::from(done.expect_err(what));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error:?}");
    assert!(error.to_string().contains("the store does not follow links"), "{what}: {error}");
}

/// A start does not write a log through a link that has the name of a log in creation.
#[test]
fn start_follows_no_link() {
    for link in KINDS {
        let Scene { folder, precious, .. } = &scene();
        let mut author = Author::new("new");
        let unborn = folder.layout.unnamed_log(&author.run);
        link(precious, &unborn).unwrap();
        is_refused(append(folder, &author.write(&["0"])), "a start");
        assert_eq!(fs::read_to_string(precious).unwrap(), PRECIOUS);
        assert!(folder.stat(&folder.layout.log(&author.run)).unwrap().is_none(), "the log must not exist");
        fs::remove_file(unborn).unwrap();
        append(folder, &Author::new("new").write(&["0"])).unwrap();
    }
}

/// The copy that replaces a log is not written through a link. A prune removes the link. The same holds for a log that is copied because a sync
/// failed.
#[test]
fn copy_follows_no_link() {
    for link in KINDS {
        let Scene { folder, author, precious, .. } = &mut scene();
        let copy = folder.layout.copy(&author.run);
        link(precious, &copy).unwrap();
        folder.suspect_runs().insert(author.run.clone());
        append(folder, &author.clone().write(&["2"])).unwrap_err();
        assert_eq!(fs::read_to_string(&*precious).unwrap(), PRECIOUS);
        // The failed call removed the link, as it removes an unfinished copy.
        append(folder, &author.write(&["2"])).unwrap();

        link(precious, &copy).unwrap();
        append(folder, &author.write_base("{}")).unwrap();
        prune(folder, &author.run, &PruneCut { at: author.head.unwrap().seq, base: None }).unwrap();
        assert_eq!(fs::read_to_string(&*precious).unwrap(), PRECIOUS);
    }
}

/// A heartbeat is not written through a link, even if the link leads to a file that looks like another executor's heartbeat.
#[test]
fn heartbeat_follows_no_link() {
    for link in KINDS {
        let Scene { folder, author, precious, .. } = &mut scene();
        let mut executor = || ExecutorId::from_uuid(*author.write(&["0"]).records[0].header.id.as_uuid());
        let (other, own) = (executor(), executor());
        folder.heartbeat(&other, Duration::from_secs(60)).unwrap();
        let beat = fs::read(folder.layout.executor(&other)).unwrap();
        fs::write(&*precious, &beat).unwrap();
        link(precious, &folder.layout.executor(&own)).unwrap();
        is_refused(folder.heartbeat(&own, Duration::from_secs(1)), "a heartbeat");
        assert_eq!(fs::read(&*precious).unwrap(), beat);
    }
}

/// The marker is not written through a link, even if the link leads to a file that does not exist yet.
#[test]
fn marker_follows_no_link() {
    let directory = tempfile::tempdir().unwrap();
    let folder = folder(&directory.path().join("root"), Arc::new(HastyDisk));
    fs::create_dir(folder.layout.root()).unwrap();
    let target = directory.path().join("target");
    symlink(&target, folder.layout.marker()).unwrap();
    is_refused(folder.set_up(), "a setup");
    assert!(!target.exists(), "nothing was made through the link");
}

/// The name of a journal is not known in advance. The disk call that creates a journal follows no link.
#[test]
fn made_file_is_no_link() {
    let Scene { folder, precious, .. } = &scene();
    let journal = folder.layout.root().join("journal");
    for link in KINDS {
        link(precious, &journal).unwrap();
        RealDisk.open(&journal, FileAccess::Create).unwrap_err();
        fs::remove_file(&journal).unwrap();
    }
    assert_eq!(fs::read_to_string(precious).unwrap(), PRECIOUS);
}

/// An append does not write to a log that was replaced by a link.
#[test]
fn append_follows_no_link() {
    let Scene { folder, author, precious, .. } = &mut scene();
    let log = folder.layout.log(&author.run);
    let records = fs::read(&log).unwrap();
    fs::remove_file(&log).unwrap();
    fs::write(&*precious, &records).unwrap();
    symlink(&*precious, &log).unwrap();
    is_refused(append(folder, &author.write(&["2"])), "an append");
    assert_eq!(fs::read(&*precious).unwrap(), records);
}
