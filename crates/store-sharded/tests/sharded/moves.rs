//! The distribution over the shards. Adding a shard does not move existing runs.

use ferrata_core::record::RunStatus;
use ferrata_core::store::{At, CheckpointStore, HeaderRange, Page, PruneCut};
use ferrata_core::{ErrorKind, RunId, RunKey, Seq};

use crate::world::{World, append, every, key, next, start};

#[tokio::test]
async fn runs_are_spread_evenly() {
    let world = World::default();
    let store = world.open(&["abc"]);
    start(&store, "run", 3_000).await;
    for (shard, content) in world.content().await.iter().enumerate() {
        // Four standard deviations around a third.
        assert!((897..=1_103).contains(&content.len()), "shard {shard} has {} of 3000", content.len());
    }
}

/// Guarantees: SHARD-3.
#[tokio::test]
async fn a_tenant_is_part_of_what_spreads() {
    let world = World::default();
    let store = world.open(&["abc"]);
    let mut shards = std::collections::BTreeSet::new();
    for tenant in 0..40 {
        let mut start = next("the-same", None, 0, None);
        start.run =
            RunKey::new(format!("t{tenant}").as_str().try_into().unwrap(), RunId::new("the-same").unwrap());
        let run = start.run.clone();
        append(&store, start).await.unwrap();
        shards.insert(store.shard_of(&run).await.unwrap().unwrap().to_owned());
    }
    assert_eq!(shards.len(), 3, "{shards:?}");
}

/// Guarantees: SHARD-2.
#[tokio::test]
async fn added_shard_moves_no_run() {
    let world = World::default();
    let old = world.open(&["ab"]);
    old.setup().await.unwrap();
    let runs = start(&old, "old", 300).await;
    let before = world.content().await;

    let store = world.open(&["ab", "abc"]);
    store.setup().await.unwrap();
    for run in &runs {
        let head = store.head(&key(run)).await.unwrap().expect("an old run must be found");
        assert_eq!(store.load(&key(run), At::Latest).await.unwrap().unwrap().len(), 1);
        let head = append(&store, next(run, Some(head.head()), 0, None)).await.unwrap();
        // The earlier process can continue it, too.
        assert_eq!(old.head(&key(run)).await.unwrap().unwrap().head(), head);
    }
    let after = world.content().await;
    for shard in 0..2 {
        let names = |content: &[(String, String, u64)]| -> Vec<String> {
            content.iter().map(|(run, ..)| run.clone()).collect()
        };
        assert_eq!(names(&before[shard]), names(&after[shard]), "nothing moved");
    }
    assert_eq!(after[2].len(), 1, "the new shard contains only the map: {:?}", after[2]);

    let fresh = start(&store, "new", 900).await;
    let mut counts = [0, 0, 0];
    for run in &fresh {
        let shard = store.shard_of(&key(run)).await.unwrap().unwrap();
        counts[["a", "b", "c"].iter().position(|name| *name == shard).unwrap()] += 1;
    }
    assert!(counts.iter().all(|count| (243..=357).contains(count)), "{counts:?}");
    assert_eq!(every(&store, &<_>::default(), Page::first(500)).await.unwrap().len(), 1_200);
}

#[tokio::test]
async fn retired_shard_keeps_its_runs() {
    let world = World::default();
    let runs = start(&world.open(&["abc"]), "old", 100).await;
    let store = world.open(&["abc", "bc"]);
    let fresh = start(&store, "new", 100).await;
    for run in runs.iter().chain(&fresh) {
        assert!(store.head(&key(run)).await.unwrap().is_some(), "{run}");
    }
    for run in &fresh {
        assert_ne!(store.shard_of(&key(run)).await.unwrap(), Some("a"));
    }
}

#[tokio::test]
async fn purged_id_is_reusable_by_every_process() {
    let world = World::default();
    let (old, new) = (world.open(&["ab"]), world.open(&["ab", "c"]));
    let runs = start(&new, "run", 20).await;
    let signposts = world.content().await.iter().flatten().filter(|row| row.1 == "ferrata:elsewhere").count();
    assert_eq!(signposts, 20, "each of them can also start in another shard");
    for run in &runs {
        let purged = new.purge(&key(run), None).await.unwrap();
        assert_eq!((purged.records, purged.bytes), (1, 2), "the records of the run itself");
    }
    assert!(world.content().await.iter().all(Vec::is_empty));
    // A cache of the old generation does not hide the new one.
    start(&old, "run", 20).await;
    for run in &runs {
        let head = new.head(&key(run)).await.unwrap().expect("the run of the new generation");
        append(&new, next(run, Some(head.head()), 0, None)).await.unwrap();
    }
}

#[tokio::test]
async fn process_with_stale_location_finds_restarted_run() {
    let world = World::default();
    let (old, new, third) = (world.open(&["a"]), world.open(&["a", "b"]), world.open(&["a", "b"]));
    start(&old, "run", 1).await;
    let first = new.head(&key("run-0")).await.unwrap().unwrap().head();
    third.purge(&key("run-0"), None).await.unwrap();
    start(&third, "run", 1).await;
    let error = append(&new, next("run-0", Some(first), 0, None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "a writer of the old generation must be refused");
    assert_eq!(new.shard_of(&key("run-0")).await.unwrap(), Some("b"));
}

/// Guarantees: SHARD-2.
#[tokio::test]
async fn reader_of_purged_run_finds_moved_restart() {
    for reads in 0..4 {
        let world = World::default();
        let (old, new, third) = (world.open(&["a"]), world.open(&["a", "b"]), world.open(&["a", "b"]));
        start(&old, "run", 1).await;
        let run = key("run-0");
        assert!(new.head(&run).await.unwrap().is_some());
        third.purge(&run, None).await.unwrap();
        start(&third, "run", 1).await;
        match reads {
            0 => assert!(new.head(&run).await.unwrap().is_some()),
            1 => assert_eq!(
                new.load(&run, At::Latest).await.unwrap().unwrap()[0].header.status,
                RunStatus::InProgress
            ),
            2 => assert_eq!(
                new.headers(&run, HeaderRange::newest(5)).await.unwrap().items[0].status,
                RunStatus::InProgress
            ),
            _ => assert_eq!(
                new.prune(&run, PruneCut { at: Seq::new(0), base: None }).await.unwrap().records,
                0
            ),
        }
        third.purge(&run, None).await.unwrap();
        match reads {
            0 => assert!(new.head(&run).await.unwrap().is_none()),
            1 => assert!(new.load(&run, At::Latest).await.unwrap().is_none()),
            2 => assert_eq!(
                new.headers(&run, HeaderRange::newest(5)).await.unwrap_err().kind(),
                ErrorKind::NotFound
            ),
            _ => {
                let cut = PruneCut { at: Seq::new(0), base: None };
                assert_eq!(new.prune(&run, cut).await.unwrap_err().kind(), ErrorKind::NotFound);
            }
        }
        // Nothing remains that prevents the old process from starting it.
        start(&old, "run", 1).await;
        assert!(new.head(&run).await.unwrap().is_some());
    }
}
