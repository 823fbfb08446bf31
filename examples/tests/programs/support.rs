//! Helpers of the program tests.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

use ferrata::record::RecordKind;
use ferrata::store::At;
use ferrata::{CheckpointStore, RunKey, Seq};

/// An example program, which `cargo test` builds beside its tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "build it first: cargo build -p ferrata-examples --all-features --examples");
    program
}

/// xorshift64*: moments need no better chance.
pub(crate) struct Chance(u64);

impl Chance {
    /// Makes one of `KILL_SEED`, or of a seed that it prints.
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

/// Returns how often each activation of a run ended, by its log.
pub(crate) async fn ended(store: &dyn CheckpointStore, id: &str) -> HashMap<(String, u64), u32> {
    let run = RunKey::try_from(id).unwrap();
    let mut ended = HashMap::new();
    let mut at = At::Latest;
    // The log from its end: each time back to a base, and on from the record before that.
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
