//! `kill -9` at random moments, checked with a ledger outside the store, and two processes on one run. On every store.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]
#![expect(clippy::print_stdout, reason = "a failed test is repeated with its seed")]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ferrata_core::record::RecordKind;
use ferrata_core::store::{At, CheckpointStore};
use ferrata_core::{Clock, RunKey, Seq, SystemClock};
use ferrata_test_servers::Service;
use ferrata_testing::every_header;
use ferrata_tests::{LAYERS, Space, StoreKind};

/// Number of kills in one test, on a local disk and on a server.
const KILLS: u32 = 50;
const KILLS_ON_SERVER: u32 = 12;

/// The same with compressed and encrypted records, which is independent of the store.
const KILLS_IN_ENVELOPES: u32 = 6;

/// Time for which a killed process counts as alive if the store cannot detect its death. The test waits this long.
const SHORT: Duration = Duration::from_secs(1);

/// The heartbeat lifetime of a process that is not killed: longer than any delay on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Maximum time of any wait on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A kill during work follows the first work of a process within a fourth of the time of an undisturbed run.
const AT_WORK: u64 = 4;

/// The environment variable for a seed to repeat.
const SEED: &str = "FERRATA_KILL_SEED";

fn seed() -> u64 {
    let seed = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("seed {seed}; repeat with {SEED}={seed} cargo test -p ferrata-tests --test kill");
    seed
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// One ledger, and the processes that write to it.
struct Crew<'a> {
    space: &'a Space,
    /// The store, opened in this process.
    store: &'a dyn CheckpointStore,
    run: String,
    layers: Layers,
}

/// The layers between the processes and the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layers {
    Off,
    /// Every record is compressed and encrypted.
    On,
}

impl Crew<'_> {
    fn ledger(&self) -> PathBuf {
        self.space.folder().join(format!("ledger-{}", self.run))
    }

    fn spawn(&self, ttl: Duration) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
        command.arg(self.space.url()).arg(self.ledger()).arg(&self.run).arg(ttl.as_millis().to_string());
        command.envs(self.space.environment());
        if self.layers == Layers::On {
            command.env(LAYERS, "on");
        }
        command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
    }

    /// Runs two processes on the run. Returns their outputs in sorted order.
    fn meet(&self) -> [String; 2] {
        let (a, b) = (self.spawn(LONG), self.spawn(LONG));
        let mut results = [finish(a), finish(b)];
        results.sort();
        results
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.ledger()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn key(&self) -> RunKey {
        RunKey::try_from(self.run.as_str()).unwrap()
    }

    /// Waits until a process has done some work, or has exited.
    async fn works(&self, child: &mut Child) {
        let (before, clock) = (self.lines().len(), SystemClock::new());
        while self.lines().len() == before && child.try_wait().unwrap().is_none() {
            assert!(clock.monotonic() < PATIENCE, "{}: a process does no work", self.run);
            clock.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Kills a process with SIGKILL, and waits until the store counts it as dead.
    async fn kill(&self, mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
        self.counts_as_dead().await;
    }

    async fn counts_as_dead(&self) {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + PATIENCE;
        while self.store.head(&self.key()).await.unwrap().is_some_and(|head| head.owner_alive) {
            assert!(clock.monotonic() < deadline, "{}: a dead process still counts as alive", self.run);
            clock.sleep(Duration::from_millis(10)).await;
        }
    }

    /// Checks that the store contains no plain text of a state, and that each record is encrypted.
    async fn holds_nothing_in_the_clear(&self) {
        let head = self.store.head(&self.key()).await.unwrap().unwrap();
        for seq in head.first.get()..=head.seq.get() {
            let records = self.store.load(&self.key(), At::Seq(Seq::new(seq))).await.unwrap().unwrap();
            let body = &records.last().unwrap().body;
            assert_eq!((body[0], body[2] & 2), (0xFE, 2), "{}: record {seq} is not encrypted", self.run);
            assert!(!body.windows(6).any(|part| part == b"again@"), "{}: record {seq}", self.run);
        }
    }

    /// The ended activations in the log, as `node visit`.
    async fn recorded(&self) -> HashSet<String> {
        let mut ended = HashSet::new();
        if self.store.head(&self.key()).await.unwrap().is_none() {
            return ended;
        }
        let headers = every_header(self.store, &self.key()).await.unwrap();
        for header in headers.into_iter().filter(|header| header.kind == RecordKind::Node) {
            ended.insert(format!("{} {}", header.node.unwrap(), header.visit.unwrap()));
        }
        ended
    }
}

/// The message of a process that lost the run or its heartbeats: on a busy machine it may be too slow for a short heartbeat lifetime.
const HELD: &str = "held";

fn finish(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Whether a node is `External`.
fn is_external(activation: &str) -> bool {
    activation.starts_with("pay ") || activation.starts_with("last ")
}

/// Drives a run to its end without faults. Returns the end and the duration in microseconds. Kills are spread over that duration, however slow
/// machine and store are.
fn calm(space: &Space, store: &dyn CheckpointStore, layers: Layers) -> (String, u64) {
    let clock = SystemClock::new();
    let wanted = finish(Crew { space, store, run: "calm".to_owned(), layers }.spawn(LONG));
    assert!(wanted.starts_with("completed again@1"), "{wanted}");
    (wanted, u64::try_from(clock.monotonic().as_micros()).unwrap())
}

async fn is_killed(kind: impl Into<StoreKind>, kills: u32) {
    let seed = seed();
    Space::within(kind, async |space| kill_again_and_again(space, Layers::Off, seed, kills).await).await;
}

async fn kill_again_and_again(space: &Space, layers: Layers, seed: u64, all: u32) {
    let mut random = seed;
    let store = &*space.open();
    let (wanted, calm_micros) = calm(space, store, layers);
    let (mut kills, mut runs, mut killed_at_work) = (0, 0, 0);
    while kills < all {
        let crew = Crew { space, store, run: format!("r{runs}"), layers };
        let run = &crew.run;
        runs += 1;
        // The recorded activations at each kill, and the length of the ledger.
        let mut before: Vec<(HashSet<String>, usize)> = Vec::new();
        let result = loop {
            let mut child = crew.spawn(SHORT);
            if kills >= all {
                match finish(child).as_str() {
                    HELD => continue,
                    told => break told.to_owned(),
                }
            }
            // Alternate kills at any time with kills during work, because the machine may be slower now than in the undisturbed run.
            let mut moment = next(&mut random) % calm_micros;
            if kills % 2 == 1 {
                crew.works(&mut child).await;
                moment /= AT_WORK;
            }
            std::thread::park_timeout(Duration::from_micros(moment));
            if child.try_wait().unwrap().is_some() {
                match finish(child).as_str() {
                    HELD => continue,
                    told => break told.to_owned(),
                }
            }
            crew.kill(child).await;
            kills += 1;
            let lines = crew.lines();
            killed_at_work += u32::from(!lines.is_empty());
            before.push((crew.recorded().await, lines.len()));
        };
        assert_eq!(result, wanted, "seed {seed}, {run}: the end differs from that of an undisturbed run");
        if layers == Layers::On {
            crew.holds_nothing_in_the_clear().await;
        }
        let lines = crew.lines();
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
                "seed {seed}, {run}: `{activation}` has another key"
            );
            let first = seen.insert(activation);
            assert!(
                first || !is_external(activation),
                "seed {seed}, {run}: `{activation}` must not be repeated, but was"
            );
        }
    }
    println!(
        "{kills} kills in {runs} runs, {killed_at_work} of them at work; a calm run took {calm_micros} µs"
    );
    assert!(killed_at_work >= all / 2, "seed {seed}: the kills came before any work");
}

async fn meet(kind: impl Into<StoreKind>, rounds: u32) {
    let seed = seed();
    Space::within(kind, async |space| meet_again_and_again(space, seed, rounds).await).await;
}

async fn meet_again_and_again(space: &Space, seed: u64, rounds: u32) {
    let mut random = seed;
    let store = &*space.open();
    let (wanted, calm_micros) = calm(space, store, Layers::Off);
    for round in 0..rounds {
        let crew = Crew { space, store, run: format!("r{round}"), layers: Layers::Off };
        let first = crew.spawn(SHORT);
        std::thread::park_timeout(Duration::from_micros(next(&mut random) % calm_micros));
        crew.kill(first).await;
        let mut results = crew.meet();
        if results == [HELD, HELD] {
            // A late request of the killed process reached the server, so that it counted as alive again.
            crew.counts_as_dead().await;
            results = crew.meet();
        }
        assert_eq!(results[0], wanted, "seed {seed}, round {round}: {results:?}");
        assert!(results[1] == HELD || results[1] == wanted, "seed {seed}, round {round}: {results:?}");
        let lines = crew.lines();
        let mut seen = HashSet::new();
        assert!(
            lines.iter().filter(|line| is_external(line)).all(|line| seen.insert(line)),
            "seed {seed}, round {round}: an `External` effect was repeated: {lines:?}"
        );
    }
}

/// The tests of a store.
macro_rules! on {
    ($store:ident, $service:expr, $kills:expr, $rounds:expr) => {
        mod $store {
            use super::*;

            /// Guarantees: DURABLE-1, DURABLE-2, RUN-1, RUN-4, RUN-5.
            #[tokio::test]
            async fn kill_at_any_moment_preserves_effect_promises() {
                is_killed($service, $kills).await;
            }

            /// Guarantees: FLEET-1.
            #[tokio::test]
            async fn second_process_on_same_run_is_refused() {
                meet($service, $rounds).await;
            }
        }
    };
}

on!(files, None, KILLS, 10);
on!(sqlite, StoreKind::Sqlite, KILLS_ON_SERVER, 5);

/// Over three shards, two of which were added later.
mod shards {
    use super::*;

    /// Guarantees: DURABLE-1, DURABLE-2, RUN-1, RUN-4, RUN-5.
    #[tokio::test]
    async fn kill_at_any_moment_preserves_effect_promises() {
        let seed = seed();
        Space::within_shards(async |space| {
            kill_again_and_again(space, Layers::Off, seed, KILLS_ON_SERVER).await
        })
        .await;
    }

    /// Guarantees: FLEET-1.
    #[tokio::test]
    async fn second_process_on_same_run_is_refused() {
        let seed = seed();
        Space::within_shards(async |space| meet_again_and_again(space, seed, 5).await).await;
    }
}

/// With compressed and encrypted records.
macro_rules! in_envelopes {
    ($store:ident, $service:expr, $kills:expr) => {
        mod $store {
            use super::*;

            /// Guarantees: DURABLE-1, DURABLE-2, RUN-1, RUN-4, RUN-5.
            #[tokio::test]
            async fn kill_at_any_moment_preserves_effect_promises() {
                let seed = seed();
                Space::within($service, async |space| {
                    kill_again_and_again(space, Layers::On, seed, $kills).await;
                })
                .await;
            }
        }
    };
}

in_envelopes!(files_in_envelopes, None, KILLS_IN_ENVELOPES);
in_envelopes!(sqlite_in_envelopes, StoreKind::Sqlite, KILLS_IN_ENVELOPES);
in_envelopes!(postgres_in_envelopes, Some(Service::Postgres), KILLS_IN_ENVELOPES);
in_envelopes!(redis_in_envelopes, Some(Service::Redis), KILLS_IN_ENVELOPES);
in_envelopes!(nats_in_envelopes, Some(Service::Nats), KILLS_IN_ENVELOPES);
in_envelopes!(s3_in_envelopes, Some(Service::S3), KILLS_IN_ENVELOPES / 2);

on!(postgres, Some(Service::Postgres), KILLS_ON_SERVER, 3);
on!(nats, Some(Service::Nats), KILLS_ON_SERVER, 3);
on!(redis, Some(Service::Redis), KILLS_ON_SERVER, 3);
on!(redis_cluster, Some(Service::RedisCluster), KILLS_ON_SERVER, 3);
on!(s3, Some(Service::S3), KILLS_ON_SERVER, 3);
