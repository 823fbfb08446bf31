//! Large values in states: the records that name them, and collection that keeps every named value.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrata::blobs::{Blob, Blobs, CollectOptions};
use ferrata::prelude::*;
use ferrata::store::At;
use ferrata::{CheckpointStore as _, MemoryStore, Seq, State};
use serde::{Deserialize, Serialize};

/// A state with a blob in every kind of channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Case {
    cover: Option<Blob>,
    #[state(append)]
    pages: Vec<Blob>,
    #[state(merge)]
    by_name: BTreeMap<String, Blob>,
    prose: String,
    steps: u32,
}

impl Case {
    fn named(&self) -> Vec<Blob> {
        let in_prose = self.prose.split_whitespace().map(|name| name.parse().unwrap());
        self.cover.iter().chain(&self.pages).chain(self.by_name.values()).copied().chain(in_prose).collect()
    }
}

fn graph(steps: u32) -> Graph<Case> {
    Graph::<Case>::builder("case")
        .node("work", async move |cx, s: Draft<Case>| {
            let blobs = cx.resource::<Blobs>();
            let put = async |what: &str| blobs.put(format!("{what} {}", s.steps)).await;
            let (cover, page, named, told) =
                (put("cover").await?, put("page").await?, put("named").await?, put("told").await?);
            let name = format!("k{}", s.steps % 3);
            let update = Case::update().cover(cover).pages([page]).by_name([(name, named)]);
            Ok(update.prose(format!("{}{told} ", s.prose)).steps(s.steps + 1))
        })
        .entry("work")
        .route("work", ["work"], move |s: &Case, _| (s.steps < steps).then_some("work"))
        .build()
        .unwrap()
}

/// Guarantees: BLOB-4.
#[tokio::test]
async fn collection_preserves_values_of_run_and_fork() {
    let (store, blobs) = (MemoryStore::new(), Blobs::in_memory());
    let runtime = Runtime::builder(store.clone()).resource(blobs.clone()).build().await.unwrap();
    let run = runtime.start(&graph(6), Case::default()).await.unwrap();
    run.wait().await.unwrap();
    let source = run.run().clone();
    let fork = runtime.fork(&source, Seq::new(3)).drive(&graph(6)).await.unwrap();
    fork.wait().await.unwrap();
    let collect = async |named: u64| {
        for _ in 0..2 {
            let options = CollectOptions::default().with_grace(Duration::ZERO);
            let collected = blobs.collect(&[&store], options).await.unwrap();
            assert_eq!(collected.named, named);
        }
    };
    collect(4 * 6).await;
    let all_states = async |run: &ferrata::RunKey| {
        let head = store.head(run).await.unwrap().unwrap();
        for seq in head.first.get()..=head.seq.get() {
            let state = runtime.state_at(&graph(6), run, Seq::new(seq)).await.unwrap();
            for blob in state.named() {
                assert!(!blobs.get(&blob).await.unwrap().is_empty());
            }
        }
    };
    all_states(&source).await;
    all_states(fork.run()).await;
    // The values that a pruned run still names stay.
    runtime.purge(&source).await.unwrap();
    runtime.apply_retention(fork.run(), &ferrata::RetentionPolicy::keep_all().keep_last(1)).await.unwrap();
    collect(1 + 6 + 3 + 6).await;
    all_states(fork.run()).await;
}

/// Guarantees: BLOB-8.
#[tokio::test]
async fn constant_mebibyte_next_to_counter_is_written_once() {
    const STEPS: u32 = 1_600;
    let (store, folder) = (MemoryStore::new(), tempfile::tempdir().unwrap());
    let blobs = Blobs::in_folder(folder.path()).unwrap();
    let graph = Graph::<Case>::builder("count")
        .node("count", async |_cx, s: Draft<Case>| Ok(Case::update().steps(s.steps + 1)))
        .entry("count")
        .route("count", ["count"], |s: &Case, _| (s.steps < STEPS).then_some("count"))
        .build()
        .unwrap();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let cover = blobs.put("x".repeat(1 << 20)).await.unwrap();
    let run = runtime.start(&graph, Case { cover: Some(cover), ..Case::default() }).await.unwrap();
    run.wait().await.unwrap();
    let mut stored = 0;
    let mut at = At::Latest;
    loop {
        let records = store.load(run.run(), at).await.unwrap().unwrap();
        stored += records.iter().map(|record| record.body.len()).sum::<usize>();
        let first = records[0].header.seq.get();
        if first == 0 {
            break;
        }
        at = At::Seq(Seq::new(first - 1));
    }
    let of_value: u64 = walk(folder.path());
    assert!(stored as u64 + of_value < 1_300_000, "{stored} and {of_value} bytes");
}

fn walk(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let size = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => walk(&entry.path()),
        false => entry.metadata().unwrap().len(),
    };
    entries.map(size).sum()
}
