//! Two folders behind one sharded store keep the contract, with the second added when there were runs in the first.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::store::ShardedStore;
use ferrata_store::CheckpointStore;
use ferrata_store::testing::ManualClock;
use ferrata_store::{Clock, Timestamp};
use ferrata_store_conformance::{Space, StoreFactory, suite};
use ferrata_store_fs::FsStore;
use tempfile::TempDir;

struct Pairs;

struct Pair {
    directory: TempDir,
    clock: ManualClock,
}

#[async_trait]
impl StoreFactory for Pairs {
    async fn fresh(&self) -> Box<dyn Space> {
        let directory = tempfile::tempdir().expect("a folder for the test");
        Box::new(Pair { directory, clock: ManualClock::default() })
    }
}

#[async_trait]
impl Space for Pair {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        let open = |path: &Path| {
            let store = FsStore::open(path).expect("a store");
            store.with_clock(Arc::new(self.clock.clone()))
        };
        let (left, right) = (self.directory.path().join("left"), self.directory.path().join("right"));
        let builder = ShardedStore::builder().shard("left", open(&left)).shard("right", open(&right));
        Arc::new(builder.generation(["left"]).generation(["left", "right"]).build().expect("a map"))
    }

    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        self.clock.advance(by);
        Some(self.clock.now())
    }
}

// That files can be damaged is told by the suite of one folder.
suite!(Pairs, without: [
    notices = "no other process is told when a file changes",
    damage = "the suite of one folder damages its files",
    gap = "the suite of one folder damages its files",
    torn = "the suite of one folder damages its files",
    newer = "the suite of one folder damages its files",
]);
