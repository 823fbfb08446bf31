//! A sharded store over two folders meets the contract, with the second folder added later. The store is opened from its parts, and by the URL of its
//! file.
#![cfg(all(feature = "fs", feature = "sharded"))]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata::testing::ManualClock;
use ferrata::{CheckpointStore, Clock, FsStore, ShardedStore, Timestamp};
use ferrata_store_conformance::{Space, StoreFactory};
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

/// The same by a URL.
struct Files;

struct File(TempDir);

#[async_trait]
impl StoreFactory for Files {
    async fn fresh(&self) -> Box<dyn Space> {
        let directory = tempfile::tempdir().expect("a folder for the test");
        let shards = "shard left file:left\nshard right file:right\ngeneration left\ngeneration left right\n";
        std::fs::write(directory.path().join("fleet"), shards).expect("a file of shards");
        Box::new(File(directory))
    }
}

#[async_trait]
impl Space for File {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        let url = format!("sharded:{}", self.0.path().join("fleet").display());
        ferrata::connect(&url).expect("a valid file")
    }
}

// The suite of a single folder tests damaged files.
mod opened {
    ferrata_store_conformance::suite!(super::Pairs, without: [
        notices = "no other process is told when a file changes",
        damage = "the suite of one folder damages its files",
        gap = "the suite of one folder damages its files",
        torn = "the suite of one folder damages its files",
        newer = "the suite of one folder damages its files",
        swap = "the suite of one folder damages its files",
        tail = "the length of the file is what says where a log ends",
        transactions = "the store has none",
    ]);
}

mod by_url {
    ferrata_store_conformance::suite!(super::Files, without: [
        notices = "no other process is told when a file changes",
        damage = "the suite of one folder damages its files",
        gap = "the suite of one folder damages its files",
        torn = "the suite of one folder damages its files",
        newer = "the suite of one folder damages its files",
        swap = "the suite of one folder damages its files",
        tail = "the length of the file is what says where a log ends",
        transactions = "the store has none",
        clock = "a store that a URL opens lives by the machine's clock",
    ]);
}
