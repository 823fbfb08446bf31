//! `kill -9` at random moments, judged by a ledger outside of the store; and two processes on one run.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ferrata_core::record::RecordKind;
use ferrata_core::store::{CheckpointStore, Order, Page};
use ferrata_core::{Clock, RunKey, SystemClock};
use ferrata_store_fs::FsStore;

/// How often the process is killed in one run of the test.
const KILLS: u32 = 50;

/// The variable that holds the seed to repeat.
const SEED: &str = "FERRATA_KILL_SEED";

fn seed() -> u64 {
    let seed = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn spawn(folder: &Path, run: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
    command.arg(folder.join("store")).arg(folder.join("ledger")).arg(run);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

fn finish(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn ledger(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("ledger")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// What the log says has ended, as `node visit`.
async fn recorded(folder: &Path, run: &str) -> HashSet<String> {
    let store = FsStore::open(folder.join("store")).unwrap();
    let key = RunKey::try_from(run).unwrap();
    let mut ended = HashSet::new();
    let mut page = Page::first(Page::MAX).with_order(Order::OldestFirst);
    if store.head(&key).await.unwrap().is_none() {
        return ended;
    }
    loop {
        let headers = store.history(&key, page.clone()).await.unwrap();
        for header in headers.items.into_iter().filter(|header| header.kind == RecordKind::Node) {
            ended.insert(format!("{} {}", header.node.unwrap(), header.visit.unwrap()));
        }
        match headers.next {
            Some(cursor) => page = page.with_cursor(cursor),
            None => return ended,
        }
    }
}

#[tokio::test]
async fn whatever_the_moment_of_a_kill_the_ledger_shows_what_the_effects_promise() {
    let seed = seed();
    println!("seed {seed}; repeat with {SEED}={seed} cargo test -p ferrata-tests --test kill");
    let mut random = seed;
    let calm = tempfile::tempdir().unwrap();
    // How long a calm run takes here and now: kills fall into that time, however slow the machine is.
    let clock = SystemClock::new();
    let wanted = finish(spawn(calm.path(), "r"));
    let calm_micros = u64::try_from(clock.monotonic().as_micros()).unwrap();
    assert!(wanted.starts_with("completed again@1"), "{wanted}");

    let folder = tempfile::tempdir().unwrap();
    let (mut kills, mut runs, mut killed_at_work) = (0, 0, 0);
    while kills < KILLS {
        let run = format!("r{runs}");
        runs += 1;
        let _ = std::fs::remove_file(folder.path().join("ledger"));
        // What was recorded at each kill, and how long the ledger was.
        let mut before: Vec<(HashSet<String>, usize)> = Vec::new();
        let result = loop {
            let mut child = spawn(folder.path(), &run);
            if kills >= KILLS {
                break finish(child);
            }
            std::thread::park_timeout(Duration::from_micros(next(&mut random) % calm_micros));
            if child.try_wait().unwrap().is_some() {
                break finish(child);
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            let lines = ledger(folder.path());
            killed_at_work += u32::from(!lines.is_empty());
            before.push((recorded(folder.path(), &run).await, lines.len()));
        };
        assert_eq!(result, wanted, "seed {seed}, {run}: the end differs from that of a calm run");
        let lines = ledger(folder.path());
        let mut keys: HashMap<&str, &str> = HashMap::new();
        let mut seen: HashSet<&str> = HashSet::new();
        for (at, line) in lines.iter().enumerate() {
            let (activation, key) = line.rsplit_once(' ').unwrap();
            for (recorded, length) in &before {
                let again = at >= *length && recorded.contains(activation);
                assert!(!again, "seed {seed}, {run}: `{activation}` was recorded and ran again");
            }
            assert_eq!(
                *keys.entry(activation).or_insert(key),
                key,
                "seed {seed}, {run}: another key for `{activation}`"
            );
            let first = seen.insert(activation);
            let external = activation.starts_with("pay ") || activation.starts_with("last ");
            assert!(first || !external, "seed {seed}, {run}: `{activation}` must not be repeated and was");
        }
    }
    assert!(killed_at_work > KILLS / 10, "seed {seed}: nearly every kill came before there was any work");
}

#[tokio::test]
async fn of_two_processes_on_one_run_one_goes_on_and_the_other_says_so() {
    for round in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let mut random = round;
        let mut first = spawn(folder.path(), "r");
        std::thread::park_timeout(Duration::from_micros(next(&mut random) % 20_000));
        first.kill().unwrap();
        first.wait().unwrap();
        let (a, b) = (spawn(folder.path(), "r"), spawn(folder.path(), "r"));
        let mut results = [finish(a), finish(b)];
        results.sort();
        assert!(results[0].starts_with("completed"), "{results:?}");
        assert!(results[1] == "held" || results[1] == results[0], "{results:?}");
        let lines = ledger(folder.path());
        let external = lines.iter().filter(|line| line.starts_with("pay ") || line.starts_with("last "));
        let mut seen = HashSet::new();
        assert!(
            external.clone().all(|line| seen.insert(line)),
            "an effect that must not be repeated was: {lines:?}"
        );
    }
}
