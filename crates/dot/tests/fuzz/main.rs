//! Fuzzing without a special compiler: inputs of the corpus, mutated from a seed, until the time is up.
//!
//! `FERRATA_FUZZ_SECONDS` sets how long (20 unless set), `FERRATA_FUZZ_SEED` the seed. What fails prints its input and the seed;
//! the same seed makes the same inputs in the same order. `fuzz/` has the same checks for `cargo fuzz`, which needs a nightly.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::disallowed_methods, reason = "this runs for a time")]

mod checks;
mod directory;
mod mutate;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use self::mutate::Mutator;

/// How long it runs unless told otherwise.
const SECONDS: u64 = 20;

/// How many inputs that showed something new are kept to be mutated further.
const POOL: usize = 2000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, which is no number")))
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // In an order that is the same everywhere: the seed alone is to decide.
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
        // An answer that was not given before shows that the input went somewhere new.
        let new = seen.insert(answer.trace);
        // Mostly pipelines: a mistake is made of one in a step, one of a mistake hardly ever.
        if new && (answer.read && pool.len() < POOL || pool.len() < POOL / 10) {
            pool.push(input);
        }
    }
    println!(
        "{inputs} inputs in {:?}, {read} of them pipelines, {} different answers",
        begun.elapsed(),
        seen.len()
    );
    // A machine that stood still had time for one.
    assert!(inputs < 100 || seen.len() > 1, "every input gets the same answer");
}

/// Commands write in a run directory, and people edit what they find there.
#[test]
fn arbitrary_run_directory_files_are_read_or_refused() {
    let seed = number("FERRATA_FUZZ_SEED").unwrap_or(1);
    println!("seed {seed}: again with FERRATA_FUZZ_SEED={seed} cargo test -p ferrata-dot --test fuzz");
    let folder = tempfile::tempdir().unwrap();
    let pool: Vec<Vec<u8>> = directory::FILES.map(|text| text.as_bytes().to_vec()).into();
    let sound: Vec<usize> = pool.iter().map(|text| directory::exercise(folder.path(), text)).collect();
    // The first names a value that is kept in a file, which is not there.
    assert_eq!(sound, [0, 1, 1]);
    let (mut mutator, mut read) = (Mutator::new(seed), 0);
    for _ in 0..500 {
        read += directory::exercise(folder.path(), &mutator.input(&pool));
    }
    assert!(read > 0, "some are still read");
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
