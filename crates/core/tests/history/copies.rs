//! A run that was written down and read again is the run, also after a prune; only its records are numbered anew then.

use ferrata_core::record::{Record, RecordHeader};
use ferrata_core::runtime::{Position, RetentionPolicy, Runtime};
use ferrata_core::store::MemoryStore;
use ferrata_core::{ErrorKind, Seq};

use super::chance::Chance;
use super::lives::{Life, Log, end, key, last, records};
use super::prunes::cut_at;
use super::seeds;

async fn plain(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).build().await.unwrap()
}

/// A record without its place in the log, and without where that is named.
fn unnumbered(record: &Record) -> (RecordHeader, Vec<u8>) {
    let header = RecordHeader { seq: Seq::new(0), prev: None, ..record.header.clone() };
    (header, record.body.to_vec())
}

#[tokio::test]
async fn a_copy_is_the_run() {
    for seed in seeds(60) {
        let store = Life::of(seed).live().await;
        let run = key("r");
        let runtime = plain(&store).await;
        let text = runtime.export(&run).await.unwrap();
        let elsewhere = MemoryStore::new();
        let other = plain(&elsewhere).await;
        assert_eq!(other.import(&text, None).await.unwrap(), run);
        assert_eq!(records(&elsewhere, &run).await, records(&store, &run).await, "seed {seed}");
        assert_eq!(other.export(&run).await.unwrap(), text, "seed {seed}");
        let (mut before, mut after) =
            (runtime.head(&run).await.unwrap().unwrap(), other.head(&run).await.unwrap().unwrap());
        // Whether its owner lives is the store's word.
        (before.owner_alive, after.owner_alive) = (false, false);
        assert_eq!(after, before, "seed {seed}");
    }
}

#[tokio::test]
async fn a_copy_of_a_pruned_run_is_what_was_kept_numbered_anew() {
    for seed in seeds(40) {
        let life = Life::of(seed);
        let mut chance = Chance::new(seed ^ 5);
        let store = life.live().await;
        let run = key("r");
        let to = last(&store, &run).await;
        let at = chance.below(usize::try_from(to).unwrap()) as u64;
        let cut = chance.below(usize::try_from(at + 1).unwrap()) as u64;
        let label = format!("seed {seed}, as of {at}, cut at {cut}");
        let store = Log::of(&store, &run).await.as_of(at).await;
        cut_at(&store, &run, cut).await;
        let runtime = life.process(&store, 2).await;
        let text = runtime.export(&run).await.unwrap();
        let elsewhere = MemoryStore::new();
        let other = life.process(&elsewhere, 3).await;
        other.import(&text, Some(key("copy"))).await.unwrap();
        let (kept, copied) = (records(&store, &run).await, records(&elsewhere, &key("copy")).await);
        assert_eq!(copied.len() as u64, at - cut + 1, "{label}");
        let plain = |records: &[Record]| records.iter().map(unnumbered).collect::<Vec<_>>();
        assert_eq!(plain(&copied), plain(&kept), "{label}");
        // The copy of the copy is the copy.
        let again = MemoryStore::new();
        let third = life.process(&again, 4).await;
        let copy = other.export(&key("copy")).await.unwrap();
        third.import(&copy, None).await.unwrap();
        assert_eq!(third.export(&key("copy")).await.unwrap(), copy, "{label}");
        // And goes on as the run does.
        let graph = life.graph();
        let mut ends = Vec::new();
        for (runtime, id) in [(&runtime, "r"), (&other, "copy")] {
            let handle = runtime.resume(&graph, id).take_over().checkpoints(life.policy).await.unwrap();
            ends.push(end(life.go_on(&[runtime], &graph, handle, false).await));
        }
        assert_eq!(ends[0], ends[1], "{label}");
    }
}

/// A pinned record has another number in the copy of a pruned run. The pin used to name the old one, so that the next prune took
/// the record that it was to keep.
#[tokio::test]
async fn a_pin_holds_in_a_copy_of_a_pruned_run() {
    let life = Life::of(0).finely();
    let store = life.live().await;
    let run = key("r");
    let to = last(&store, &run).await;
    assert!(to > 8);
    let runtime = plain(&store).await;
    runtime.pin(&run, Seq::new(5)).await.unwrap();
    runtime.pin(&run, Seq::new(6)).await.unwrap();
    let keep_one = RetentionPolicy::keep_all().keep_last(1);
    runtime.apply_retention(&run, &keep_one).await.unwrap();
    let pinned = runtime.checkpoint(&run, Seq::new(6)).await.unwrap();
    runtime.import(&runtime.export(&run).await.unwrap(), Some(key("copy"))).await.unwrap();
    let copy = key("copy");
    runtime.unpin(&copy, Seq::new(0)).await.unwrap();
    runtime.apply_retention(&copy, &keep_one).await.unwrap();
    assert_eq!(runtime.head(&copy).await.unwrap().unwrap().first, Seq::new(1));
    let copied = runtime.checkpoint(&copy, Position::Record(pinned.record)).await.unwrap();
    assert_eq!((copied.state, copied.history.len()), (pinned.state, pinned.history.len()));
    let error = runtime.unpin(&copy, Seq::new(6)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    runtime.unpin(&copy, Seq::new(1)).await.unwrap();
    assert!(runtime.apply_retention(&copy, &keep_one).await.unwrap().0 > 0);
}
