//! Helpers for the tests of the programs.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

use ferrata::record::RecordKind;
use ferrata::store::At;
use ferrata::{CheckpointStore, RunKey, Seq};

/// Returns the path of an example program, which `cargo test` builds together with its tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "build it first: cargo build -p ferrata-examples --all-features --examples");
    program
}

/// A random number generator (xorshift64*), which is good enough to choose moments.
pub(crate) struct Chance(u64);

impl Chance {
    /// Creates a generator from `KILL_SEED`, or from a seed that it prints.
    #[expect(clippy::print_stdout, reason = "a failed test is repeated with its seed")]
    pub(crate) fn seeded() -> Self {
        let seed: u64 = std::env::var("KILL_SEED")
            .map_or_else(|_| RandomState::new().hash_one(0), |seed| seed.parse().unwrap());
        println!("KILL_SEED={seed}");
        Self(seed.max(1))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit.max(1)
    }
}

/// Returns how often each activation of a run ended, according to its log.
pub(crate) async fn ended(store: &dyn CheckpointStore, id: &str) -> HashMap<(String, u64), u32> {
    let run = RunKey::try_from(id).unwrap();
    let mut ended = HashMap::new();
    let mut at = At::Latest;
    // Read the log backward: each load reaches back to a base, and the next load continues with the record before this base.
    while let Some(records) = store.load(&run, at).await.unwrap() {
        for record in records.iter().filter(|record| record.header.kind == RecordKind::Node) {
            let body: serde_json::Value = serde_json::from_slice(&record.body).unwrap();
            for done in body["done"].as_array().unwrap() {
                let activation = (done["node"].as_str().unwrap().to_owned(), done["visit"].as_u64().unwrap());
                *ended.entry(activation).or_default() += 1;
            }
        }
        let Some(before) = records[0].header.seq.get().checked_sub(1) else { break };
        at = At::Seq(Seq::new(before));
    }
    ended
}
