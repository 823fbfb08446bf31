//! Fuzzing without a special compiler: mutated inputs from a corpus and a seed, for a limited time.
//!
//! `FERRATA_FUZZ_SECONDS` sets the time (20 s by default), and `FERRATA_FUZZ_SEED` the seed. A failure prints its input and the seed. A seed always
//! yields the same inputs in the same order. `fuzz/` contains the same checks for `cargo fuzz`, which needs a nightly compiler.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::disallowed_methods, reason = "this runs for a time")]

mod checks;
mod directory;
mod mutate;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::mutate::Mutator;

/// Default duration in seconds.
const SECONDS: u64 = 20;

/// Maximum number of interesting inputs that are kept for mutation.
const POOL: usize = 2000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")))
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // Sort the files, so that only the seed determines the inputs.
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn parser_never_panics_and_output_parses_same() {
    let seed = number("FERRATA_FUZZ_SEED").unwrap_or_else(|| {
        u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() & u128::from(u64::MAX))
            .unwrap()
    });
    let time = Duration::from_secs(number("FERRATA_FUZZ_SECONDS").unwrap_or(SECONDS));
    println!("seed {seed}: again with FERRATA_FUZZ_SEED={seed} cargo test -p ferrata-dot --test fuzz");
    let (mut pool, mut mutator) = (corpus(), Mutator::new(seed));
    let (mut seen, mut inputs, mut read) = (BTreeSet::new(), 0_u64, 0_u64);
    let begun = Instant::now();
    while begun.elapsed() < time {
        let input = mutator.input(&pool);
        let answer = catch_unwind(AssertUnwindSafe(|| checks::exercise(&input)));
        let answer = answer.unwrap_or_else(|_| {
            panic!("seed {seed}, input {inputs}, of {} bytes:\n{}", input.len(), input.escape_ascii())
        });
        inputs += 1;
        read += u64::from(answer.read);
        // A new answer shows that the input reached new code.
        let new = seen.insert(answer.trace);
        // Keep mostly valid pipelines. One mutation turns them into invalid ones, and hardly ever the reverse.
        if new && (answer.read && pool.len() < POOL || pool.len() < POOL / 10) {
            pool.push(input);
        }
    }
    println!(
        "{inputs} inputs in {:?}, {read} of them pipelines, {} different answers",
        begun.elapsed(),
        seen.len()
    );
    // A stalled machine may have time for a single input only.
    assert!(inputs < 100 || seen.len() > 1, "every input yields the same answer");
}

/// Commands write into a run directory, and people edit its files.
#[test]
fn arbitrary_run_directory_files_are_read_or_refused() {
    let seed = number("FERRATA_FUZZ_SEED").unwrap_or(1);
    println!("seed {seed}: again with FERRATA_FUZZ_SEED={seed} cargo test -p ferrata-dot --test fuzz");
    let folder = tempfile::tempdir().unwrap();
    let pool: Vec<Vec<u8>> = directory::FILES.map(|text| text.as_bytes().to_vec()).into();
    let sound: Vec<usize> = pool.iter().map(|text| directory::exercise(folder.path(), text)).collect();
    // The first one refers to a missing file.
    assert_eq!(sound, [0, 1, 1]);
    let (mut mutator, mut read) = (Mutator::new(seed), 0);
    for _ in 0..500 {
        read += directory::exercise(folder.path(), &mutator.input(&pool));
    }
    assert!(read > 0, "some files must still be readable");
}

#[test]
fn the_same_seed_makes_the_same_inputs() {
    let inputs = |seed| {
        let (pool, mut mutator) = (corpus(), Mutator::new(seed));
        (0..200).map(|_| mutator.input(&pool)).collect::<Vec<_>>()
    };
    assert_eq!(inputs(7), inputs(7));
    assert_ne!(inputs(7), inputs(8));
}
