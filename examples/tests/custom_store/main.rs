//! Tests that the store of the example `custom_store` fulfills the whole contract.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

#[path = "../../custom_store/store.rs"]
mod store;

use std::sync::Arc;

use async_trait::async_trait;
use ferrata::store::CheckpointStore;
use ferrata_store_conformance::{Space, StoreFactory, suite};
use tempfile::TempDir;

use self::store::OneFile;

struct Folders;

/// A temporary folder for one test.
struct Folder(TempDir);

#[async_trait]
impl StoreFactory for Folders {
    async fn fresh(&self) -> Box<dyn Space> {
        // The suite tests what is stored and not the speed of a disk. So use a file system in memory, if the machine has one.
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        Box::new(Folder(folder.unwrap()))
    }
}

#[async_trait]
impl Space for Folder {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(OneFile::open(&self.0.path().join("runs.json")).unwrap())
    }
}

suite!(Folders, without: [
    instances = "one process at a time: a second would overwrite the file of the first",
    notices = "the store tells of no changes; the runtime polls",
    clock = "time is the machine's",
    damage = "damage to the one file is damage to all runs: it is refused when the file is opened",
    gap = "as above",
    torn = "the file is replaced whole or not at all",
    newer = "no other version ever writes to it",
    swap = "the logs are all there is: no index leads to them",
    tail = "the logs are all there is: nothing beside them says where they end",
    transactions = "the store has none",
]);
