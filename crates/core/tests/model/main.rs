//! Random sequences of all public operations against a plain model of what the documentation says: after each, status, state,
//! open questions, inbox, outcome and error are the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod coverage;
mod graphs;
mod operations;
mod oracle;
mod world;

use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestCaseError, TestRunner};

use self::graphs::Family;
use self::operations::Op;
use self::world::World;

/// The same sequences each time; change the seed or the number here to look further.
const SEED: u64 = 3;
const CASES: u32 = 1_000;

/// How many operations are tried on a run that has ended: all of them are refused.
const AFTER: usize = 5;

/// Does one sequence, and tells at which operation the two differed.
fn run(family: Family, ops: &[Op]) -> Result<(), String> {
    let mut world = World::new(family);
    let mut after = 0;
    for (at, op) in ops.iter().enumerate() {
        after += usize::from(world.is_over());
        if after > AFTER {
            break;
        }
        world.apply(op).map_err(|message| format!("{family:?}, operation {at}, {op:?}: {message}"))?;
    }
    Ok(())
}

#[test]
fn every_operation_does_what_the_documentation_says() {
    let failures = concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/model.txt");
    let config = Config {
        rng_seed: RngSeed::Fixed(SEED),
        cases: CASES,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(failures))),
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let result =
        runner.run(&operations::cases(), |(family, ops)| run(family, &ops).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("seed {SEED}: {error}");
    }
    let (missing, seen) = coverage::missing();
    println!("{seen:#?}");
    assert!(missing.is_empty(), "seed {SEED}: never happened: {missing:?}; of the rest: {seen:#?}");
}
