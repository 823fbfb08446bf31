//! Properties of the history of every run: random runs, crashes, races, and the data that a prune must keep.
//!
//! The seeds are fixed, and a failure prints its seed. `HISTORY_SEEDS=from..to` runs others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod altered;
mod between;
mod chance;
mod copies;
mod diffs;
mod forks;
mod kept;
mod kills;
mod migrations;
mod pages;
mod prunes;
mod races;
mod random_runs;
mod sentences;
#[path = "../support/mod.rs"]
mod support;
mod verified;

use std::ops::Range;
use std::sync::Arc;

use ferrata_core::store::{CheckpointStore, MemoryStore};

/// The seeds of the property tests: enough to combine every node kind with every policy, and few enough for every build.
pub(crate) fn seeds(upto: u64) -> Range<u64> {
    let Ok(text) = std::env::var("HISTORY_SEEDS") else { return 0..upto };
    let (from, to) = text.split_once("..").expect("HISTORY_SEEDS=from..to");
    from.parse().unwrap()..to.parse().unwrap()
}

/// Guarantees: RETAIN-5.
#[tokio::test]
async fn next_process_finishes_after_kill_at_any_write() {
    kills::at_every_write(|| {
        let store = MemoryStore::new();
        move || Arc::new(store.clone()) as Arc<dyn CheckpointStore>
    })
    .await;
}
