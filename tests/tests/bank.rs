//! A bank: accounts in the database of the store, transfers by several processes that are killed, suspended and cut off at random. The sum
//! must be right, each transfer there exactly once, and each with exactly one record.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]
#![expect(clippy::print_stdout, reason = "a failed test is repeated with its seed")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::store::CheckpointStore;
use ferrata_core::testing::every_header;
use ferrata_core::{Clock, RunKey, SystemClock};
use ferrata_test_servers::{Cut, Proxy, Service};
use ferrata_tests::{Space, StoreKind};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _};

/// The variables that hold the seed to repeat, and how many rounds to make.
const SEED: &str = "FERRATA_BANK_SEED";
const ROUNDS: &str = "FERRATA_BANK_ROUNDS";

/// Of each round: how many runs, of three transfers each, and processes; and how much happens to them.
const RUNS: u32 = 6;
const PROCESSES: usize = 2;
const BLOWS: u32 = 4;

/// For how long a killed process counts as alive.
const TTL: &str = "300";

/// How long a round may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The accounts, as this process sees them.
struct Bank<'a> {
    space: &'a Space,
    /// The server's own URL, and the schema with its dot; of a file, both are empty.
    server: String,
    schema: String,
}

impl<'a> Bank<'a> {
    async fn open(space: &'a Space) -> Self {
        let url = space.url();
        let (server, schema) = match url.split_once("schema=") {
            Some((server, rest)) => {
                let schema = rest.split('&').next().unwrap();
                (server.trim_end_matches(['?', '&']).to_owned(), format!("{schema}."))
            }
            None => (String::new(), String::new()),
        };
        space.open().setup().await.unwrap();
        let bank = Self { space, server, schema };
        let schema = &bank.schema;
        bank.ask(&format!(
            "CREATE TABLE {schema}accounts (id int PRIMARY KEY, balance int NOT NULL); \
             CREATE TABLE {schema}transfers (run text NOT NULL, visit int NOT NULL); \
             INSERT INTO {schema}accounts VALUES (0, 100), (1, 100), (2, 100), (3, 100), (4, 100)"
        ))
        .await;
        bank
    }

    /// Carries statements out, and returns the first column of the last row, if there is one.
    async fn ask(&self, sql: &str) -> Option<i64> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        if self.server.is_empty() {
            let file = self.space.url().strip_prefix("sqlite:").unwrap();
            let options = SqliteConnectOptions::new().filename(file).busy_timeout(PATIENCE);
            let rows = options.connect().await.unwrap().fetch_all(sql).await.unwrap();
            return rows.last().map(|row| row.get(0));
        }
        let mut connection = PgConnection::connect(&self.server).await.unwrap();
        let rows = connection.fetch_all(sql).await.unwrap();
        rows.last().map(|row| row.get(0))
    }

    fn spawn(&self, store: &str, how: &str) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bank"));
        command.args([store, &self.schema, TTL, &RUNS.to_string(), how]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// What is wrong with the accounts, once all runs have ended.
    async fn wrong(&self, store: &dyn CheckpointStore) -> Option<String> {
        let schema = &self.schema;
        let sum = self.ask(&format!("SELECT CAST(sum(balance) AS bigint) FROM {schema}accounts")).await;
        let all = self.ask(&format!("SELECT count(*) FROM {schema}transfers")).await;
        let distinct = self
            .ask(&format!("SELECT count(*) FROM (SELECT DISTINCT run, visit FROM {schema}transfers) t"))
            .await;
        let wanted = Some(i64::from(RUNS) * 3);
        let mut records = 0;
        for run in runs() {
            let headers = every_header(store, &run).await.unwrap();
            let is_move = |node: &ferrata_core::NodeName| node.as_str() == "move";
            let ended = headers.iter().filter(|header| header.kind == RecordKind::Node);
            records += ended.filter(|header| header.node.as_ref().is_some_and(is_move)).count();
        }
        let found = (sum, all, distinct, i64::try_from(records).ok());
        (found != (Some(500), wanted, wanted, wanted)).then(|| {
            format!("sum {sum:?}, transfers {all:?}, of them different {distinct:?}, records {records}; wanted {wanted:?}")
        })
    }
}

fn runs() -> impl Iterator<Item = RunKey> {
    (0..RUNS).map(|at| RunKey::try_from(format!("t{at}").as_str()).unwrap())
}

/// How many runs have completed.
async fn completed(store: &dyn CheckpointStore) -> u32 {
    let mut completed = 0;
    for run in runs() {
        let head = store.head(&run).await.unwrap();
        if let Some(head) = head {
            assert!(
                !matches!(head.status, RunStatus::Failed | RunStatus::Cancelled),
                "{run} is {}",
                head.status
            );
            completed += u32::from(head.status == RunStatus::Completed);
        }
    }
    completed
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let id = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(id, signal).unwrap();
}

/// One round: what is wrong at its end.
async fn round(space: &Space, random: &mut u64, how: &str) -> Option<String> {
    let (bank, store, clock) = (Bank::open(space).await, space.open(), SystemClock::new());
    let proxy = space.address().map(|address| Proxy::start(address).unwrap());
    let url = proxy.as_ref().map_or_else(|| space.url().to_owned(), |proxy| proxy.url(space.url()));
    let mut processes: Vec<Child> = (0..PROCESSES).map(|_| bank.spawn(&url, how)).collect();
    let deadline = clock.monotonic() + PATIENCE;
    for _ in 0..BLOWS {
        clock.sleep(Duration::from_millis(20 + next(random) % 180)).await;
        let one = usize::try_from(next(random)).unwrap_or(usize::MAX) % PROCESSES;
        match (next(random) % 4, &proxy) {
            (0, Some(proxy)) => proxy.cut(Cut::Reset),
            (1, _) => {
                // Longer than it counts as alive: another takes its runs, and it comes back.
                signal(&processes[one], rustix::process::Signal::STOP);
                clock.sleep(Duration::from_millis(next(random) % 600)).await;
                signal(&processes[one], rustix::process::Signal::CONT);
            }
            _ => {
                processes[one].kill().unwrap();
                processes[one].wait().unwrap();
                processes[one] = bank.spawn(&url, how);
            }
        }
    }
    while completed(&*store).await < RUNS {
        assert!(clock.monotonic() < deadline, "the runs did not complete in {PATIENCE:?}");
        clock.sleep(Duration::from_millis(10)).await;
    }
    for mut process in processes {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    bank.wrong(&*store).await
}

async fn rounds(kind: StoreKind, rounds: u64, how: &str) -> Result<(), String> {
    let mut random = variable(SEED).unwrap_or_else(|| RandomState::new().build_hasher().finish());
    for at in 0..rounds {
        println!(
            "seed {random}; repeat with {SEED}={random} {ROUNDS}=1 cargo test -p ferrata-tests --test bank"
        );
        let (seed, mut found) = (random, None);
        Space::within(kind, async |space| found = round(space, &mut random, how).await).await;
        if let Some(found) = found {
            return Err(format!("round {at}, seed {seed}: {found}"));
        }
    }
    Ok(())
}

async fn is_right(kind: StoreKind, few: u64) {
    rounds(kind, variable(ROUNDS).unwrap_or(few), "transactional").await.unwrap();
}

#[tokio::test]
async fn every_transfer_in_postgres_is_there_exactly_once() {
    is_right(StoreKind::Server(Service::Postgres), 3).await;
}

#[tokio::test]
async fn every_transfer_in_sqlite_is_there_exactly_once() {
    is_right(StoreKind::Sqlite, 2).await;
}

/// The same transfers by nodes that commit for themselves are found out: the check is worth something.
#[tokio::test]
async fn transfers_without_a_transaction_are_found_out() {
    let found = rounds(StoreKind::Sqlite, 40, "write").await;
    println!("{}", found.expect_err("no round in 40 made a transfer twice"));
}
