//! What keeps logs small or copies them, killed at every write, on files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../core/tests/history/kills.rs"]
mod kills;

use std::sync::Arc;

use ferrata_core::store::CheckpointStore;
use ferrata_store_fs::FsStore;

#[tokio::test]
async fn killed_at_any_write_it_is_finished_by_the_next_process() {
    kills::at_every_write(|| {
        let folder = tempfile::tempdir().unwrap();
        move || Arc::new(FsStore::open(folder.path()).unwrap()) as Arc<dyn CheckpointStore>
    })
    .await;
}
