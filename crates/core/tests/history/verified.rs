//! A graph that did not change would have done the same, whatever the run; one that did is found out, at the record.

use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy};
use ferrata_core::runtime::Runtime;
use ferrata_core::store::MemoryStore;
use ferrata_core::testing::verify_golden;

use super::chance::Chance;
use super::lives::{Change, Life, key, last};
use super::prunes::cut_at;
use super::seeds;

async fn plain(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).build().await.unwrap()
}

#[tokio::test]
async fn an_unchanged_graph_never_parts_from_its_runs() {
    let mut checked = 0;
    for seed in seeds(150) {
        let life = Life::of(seed);
        let store = life.live().await;
        let (run, graph, runtime) = (key("r"), life.graph(), plain(&store).await);
        let whole = runtime.verify(&graph, &run).await.unwrap();
        assert!(whole.divergence.is_none(), "seed {seed}: {}", whole.divergence.unwrap());
        checked += whole.checked;
        let golden = runtime.export(&run).await.unwrap();
        assert_eq!(verify_golden(&graph, &golden).await.unwrap(), whole, "seed {seed}");
        let to = last(&store, &run).await;
        let cut = Chance::new(seed).below(usize::try_from(to + 1).unwrap()) as u64;
        cut_at(&store, &run, cut).await;
        let small = runtime.verify(&graph, &run).await.unwrap();
        assert!(small.divergence.is_none(), "seed {seed}, cut at {cut}: {}", small.divergence.unwrap());
        assert_eq!(small.records, to - cut + 1, "seed {seed}");
    }
    assert!(checked > 1_000, "only {checked} activations");
}

#[tokio::test]
async fn a_changed_graph_is_found_out_at_every_frequency() {
    let frequencies = [
        CheckpointFrequency::EveryNode,
        CheckpointFrequency::EveryNth(2.try_into().unwrap()),
        CheckpointFrequency::StatusChangeOnly,
    ];
    let mut found = [0; 4];
    for seed in seeds(40) {
        for frequency in frequencies {
            let mut life = Life::of(seed);
            life.policy = CheckpointPolicy::default().with_frequency(frequency);
            let store = life.live().await;
            let runtime = plain(&store).await;
            let run = key("r");
            for (at, change) in
                [Change::Route, Change::Reducer, Change::Frontier, Change::Gone].into_iter().enumerate()
            {
                let verified = runtime.verify(&life.changed(change), &run).await.unwrap();
                let label = format!("seed {seed}, {frequency:?}, {change:?}");
                let Some(divergence) = verified.divergence else {
                    // Only the last of several activations in one record is decided again, and a node that shares a record
                    // may have appended nothing.
                    let coarse = frequency != CheckpointFrequency::EveryNode;
                    let logs =
                        runtime.checkpoint(&run, ferrata_core::runtime::Position::Latest).await.unwrap();
                    let silent = change == Change::Reducer && logs.state.get("log").is_none();
                    assert!(silent || coarse && change != Change::Gone, "{label}");
                    continue;
                };
                found[at] += 1;
                let words = match change {
                    Change::Route => "turn",
                    Change::Reducer => "the channel `log`",
                    Change::Frontier => "n0",
                    _ => "end",
                };
                assert!(divergence.to_string().contains(words), "{label}: {divergence}");
            }
        }
    }
    assert!(found.iter().all(|found| *found >= 40), "{found:?}");
}
