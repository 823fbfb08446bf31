//! Prunes, purges and copies on files, with crashes at every write.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../core/tests/history/kills.rs"]
mod kills;

use std::sync::Arc;

use ferrata_store::CheckpointStore;
use ferrata_store_fs::FsStore;

#[tokio::test]
async fn next_process_finishes_after_kill_at_any_write() {
    kills::at_every_write(|| {
        // A process crashes here, and no disk loses data. So use a folder in memory if possible, to save the time of syncs.
        let memory = std::path::Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        move || Arc::new(FsStore::open(folder.path()).unwrap()) as Arc<dyn CheckpointStore>
    })
    .await;
}
