//! The power fails: bytes that were not synced are lost. And a sync fails: the outcome of the write is unknown.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::io::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferrata_example_redb_store::RedbStore;
use ferrata_store::{At, CheckpointStore, ErrorKind, RunId, SystemClock};
use ferrata_testing::Log;
use redb::{Database, StorageBackend};

/// A disk in memory that loses all bytes after its last sync.
#[derive(Clone, Debug, Default)]
struct Disk {
    written: Arc<Mutex<Vec<u8>>>,
    synced: Arc<Mutex<Vec<u8>>>,
    is_broken: Arc<AtomicBool>,
}

impl Disk {
    /// Creates a disk with the content of another.
    fn of(content: &Mutex<Vec<u8>>) -> Self {
        let content = content.lock().unwrap().clone();
        Self {
            written: Arc::new(Mutex::new(content.clone())),
            synced: Arc::new(Mutex::new(content)),
            ..Self::default()
        }
    }

    async fn store(&self) -> RedbStore {
        let db = Database::builder().create_with_backend(self.clone()).unwrap();
        let store = RedbStore::new(Arc::new(db), Arc::new(SystemClock::new()));
        store.setup().await.unwrap();
        store
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64> {
        Ok(self.written.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let offset = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.written.lock().unwrap()[offset..offset + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.written.lock().unwrap().resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(Error::other("the disk is broken"));
        }
        self.synced.lock().unwrap().clone_from(&self.written.lock().unwrap());
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let offset = usize::try_from(offset).unwrap();
        self.written.lock().unwrap()[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }
}

#[tokio::test]
async fn acknowledged_records_survive_power_failure() {
    let disk = Disk::default();
    let store = disk.store().await;
    let mut log = Log::new(RunId::new("r").unwrap());
    for round in 1..=10 {
        log.write(&store, 3).await;
        let after = Disk::of(&disk.synced).store().await;
        let loaded = after.load(&log.key, At::Latest).await.unwrap();
        assert_eq!(loaded, Some(log.loaded(3 * round - 1)), "the disk has each acknowledged record");
    }
}

#[tokio::test]
async fn failed_sync_is_indeterminate() {
    let disk = Disk::default();
    let store = disk.store().await;
    let mut log = Log::new(RunId::new("r").unwrap());
    log.write(&store, 3).await;
    let append = log.next(2);
    disk.is_broken.store(true, Ordering::Relaxed);
    let results = store.append(vec![append.clone()]).await;
    assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::Indeterminate);
    log.note_append(&append);
    // The disk may have lost the write, or not. The same append gives the outcome.
    for content in [&disk.synced, &disk.written] {
        let after = Disk::of(content).store().await;
        let results = after.append(vec![append.clone()]).await;
        assert_eq!(results[0].as_ref().ok(), append.records.last().map(|last| last.header.head()).as_ref());
        assert_eq!(after.load(&log.key, At::Latest).await.unwrap(), Some(log.loaded(4)));
    }
}
