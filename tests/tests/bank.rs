//! A bank with accounts in the database of the store. Several processes make transfers while they and their server are killed, suspended and cut off
//! at random. The sum is right, and each transfer and its record exist exactly once.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]
#![expect(clippy::print_stdout, reason = "a failed test is repeated with its seed")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, RunKey, SystemClock};
use ferrata_test_servers::{ConnectionCut, PostgresServer, PostgresServerOptions, Proxy, Service};
use ferrata_testing::every_header;
use ferrata_tests::{Space, StoreKind};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _};
use tokio::task::spawn_blocking;

/// The environment variables for a seed to repeat, and for the number of rounds.
const SEED: &str = "FERRATA_BANK_SEED";
const ROUNDS: &str = "FERRATA_BANK_ROUNDS";

/// The amount of work and the number of faults of a round.
#[derive(Clone, Copy)]
struct Size {
    accounts: u32,
    /// Number of runs, with three transfers each.
    runs: u32,
    processes: usize,
    blows: u32,
}

const SMALL: Size = Size { accounts: 5, runs: 6, processes: 2, blows: 4 };
const LARGE: Size = Size { accounts: 40, runs: 64, processes: 4, blows: 12 };

/// Initial balance of every account.
const BALANCE: u32 = 100;

/// Time in milliseconds for which a killed process counts as alive: the minimum of a runtime.
const TTL: u64 = 1_000;

/// Maximum time of a round on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

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

/// The accounts, read without the program.
struct Bank<'a> {
    space: &'a Space,
    size: Size,
    /// The URL of the server, and the schema with its dot. Both are empty for a file.
    server: String,
    schema: String,
}

impl<'a> Bank<'a> {
    async fn open(space: &'a Space, size: Size) -> Self {
        let url = space.url();
        let (server, schema) = match url.split_once("schema=") {
            Some((server, rest)) => {
                let schema = rest.split('&').next().unwrap();
                (server.trim_end_matches(['?', '&']).to_owned(), format!("{schema}."))
            }
            None => (String::new(), String::new()),
        };
        space.open().setup().await.unwrap();
        let bank = Self { space, size, server, schema };
        let schema = &bank.schema;
        let accounts: Vec<_> = (0..size.accounts).map(|id| format!("({id}, {BALANCE})")).collect();
        bank.ask(&format!(
            "CREATE TABLE {schema}accounts (id int PRIMARY KEY, balance int NOT NULL); \
             CREATE TABLE {schema}transfers (run text NOT NULL, visit int NOT NULL); \
             INSERT INTO {schema}accounts VALUES {}",
            accounts.join(", ")
        ))
        .await;
        bank
    }

    /// Executes statements. Returns the first column of the last row, if there is one.
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

    fn spawn(&self, store: &str, how: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bank"));
        let Size { accounts, runs, .. } = self.size;
        command.args([store, &self.schema, &accounts.to_string(), &TTL.to_string(), &runs.to_string(), how]);
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    async fn transfers(&self) -> Option<i64> {
        self.ask(&format!("SELECT count(*) FROM {}transfers", self.schema)).await
    }

    /// Checks the accounts after all runs have ended. Returns the first error.
    async fn wrong(&self, store: &dyn CheckpointStore) -> Option<String> {
        let schema = &self.schema;
        let sum = self.ask(&format!("SELECT CAST(sum(balance) AS bigint) FROM {schema}accounts")).await;
        let all = self.transfers().await;
        let distinct = self
            .ask(&format!("SELECT count(*) FROM (SELECT DISTINCT run, visit FROM {schema}transfers) t"))
            .await;
        let wanted = Some(i64::from(self.size.runs) * 3);
        let whole = Some(i64::from(self.size.accounts * BALANCE));
        let mut records = 0;
        for run in runs(self.size) {
            let headers = every_header(store, &run).await.unwrap();
            let is_move = |node: &ferrata_core::NodeName| node.as_str() == "move";
            let ended = headers.iter().filter(|header| header.kind == RecordKind::Node);
            records += ended.filter(|header| header.node.as_ref().is_some_and(is_move)).count();
        }
        let found = (sum, all, distinct, i64::try_from(records).ok());
        (found != (whole, wanted, wanted, wanted)).then(|| {
            format!("sum {sum:?}, transfers {all:?}, of them different {distinct:?}, records {records}; wanted {wanted:?}")
        })
    }
}

fn runs(size: Size) -> impl Iterator<Item = RunKey> {
    (0..size.runs).map(|at| RunKey::try_from(format!("t{at}").as_str()).unwrap())
}

/// Number of completed runs.
async fn completed(store: &dyn CheckpointStore, size: Size) -> u32 {
    let mut completed = 0;
    for run in runs(size) {
        let head = match store.head(&run).await {
            Ok(head) => head,
            // The connection belonged to a server that was killed.
            Err(error) if error.is_retryable() => return 0,
            Err(error) => panic!("{error:?}"),
        };
        if let Some(head) = head {
            assert!(
                matches!(head.status, RunStatus::InProgress | RunStatus::Completed),
                "{run} is {}",
                head.status
            );
            completed += u32::from(head.status == RunStatus::Completed);
        }
    }
    completed
}

/// A process that is killed when the value is dropped, so that a failed test leaves none.
struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The options of a round: its size, its server if the server may be killed, and its kind of nodes.
#[derive(Clone)]
struct Game {
    kind: StoreKind,
    size: Size,
    server: Option<Arc<PostgresServer>>,
    how: &'static str,
}

impl Game {
    /// Plays one round. Returns the first error at its end.
    async fn round(&self, space: &Space, random: &mut u64) -> Option<String> {
        let (bank, store, clock) = (Bank::open(space, self.size).await, space.open(), SystemClock::new());
        let proxy = space.address().map(|address| Proxy::start(address).unwrap());
        let url = proxy.as_ref().map_or_else(|| space.url().to_owned(), |proxy| proxy.url(space.url()));
        let mut processes: Vec<_> = (0..self.size.processes).map(|_| bank.spawn(&url, self.how)).collect();
        let deadline = clock.monotonic() + PATIENCE;
        for _ in 0..self.size.blows {
            // Wait until work has been done, however long the processes take to start.
            let before = bank.transfers().await;
            while bank.transfers().await == before && completed(&*store, self.size).await < self.size.runs {
                assert!(clock.monotonic() < deadline, "there was no transfer in {PATIENCE:?}");
            }
            clock.sleep(Duration::from_millis(next(random) % 60)).await;
            let one = usize::try_from(next(random)).unwrap_or(usize::MAX) % processes.len();
            match (next(random) % 5, &proxy, &self.server) {
                (0, Some(proxy), _) => proxy.cut(ConnectionCut::Reset),
                (1, ..) => {
                    // Suspend it for longer than it counts as alive. Another process claims its runs, and then it continues.
                    processes[one].signal(Signal::STOP);
                    clock.sleep(Duration::from_millis(next(random) % (2 * TTL))).await;
                    processes[one].signal(Signal::CONT);
                }
                (2, _, Some(server)) => {
                    let server = Arc::clone(server);
                    spawn_blocking(move || {
                        server.kill().unwrap();
                        server.restart().unwrap();
                    })
                    .await
                    .unwrap();
                }
                // The assignment drops and so kills the previous process.
                _ => processes[one] = bank.spawn(&url, self.how),
            }
        }
        while completed(&*store, self.size).await < self.size.runs {
            assert!(clock.monotonic() < deadline, "the runs did not complete in {PATIENCE:?}");
            clock.sleep(Duration::from_millis(10)).await;
        }
        drop(processes);
        bank.wrong(&*store).await
    }

    async fn rounds(&self, rounds: u64) -> Result<(), String> {
        let mut random = variable(SEED).unwrap_or_else(|| RandomState::new().build_hasher().finish());
        for at in 0..rounds {
            println!(
                "seed {random}; repeat with {SEED}={random} {ROUNDS}=1 cargo test -p ferrata-tests --test bank"
            );
            let (seed, mut found) = (random, None);
            let round = async |space: &Space| found = self.round(space, &mut random).await;
            match &self.server {
                Some(server) => Space::within_server(self.kind, server.url(), round).await,
                None => Space::within(self.kind, round).await,
            }
            if let Some(found) = found {
                return Err(format!("round {at}, seed {seed}: {found}"));
            }
        }
        Ok(())
    }
}

async fn is_right(kind: StoreKind, few: u64) {
    let game = Game { kind, size: SMALL, server: None, how: "transactional" };
    game.rounds(variable(ROUNDS).unwrap_or(few)).await.unwrap();
}

/// Guarantees: ONCE-1.
#[tokio::test]
async fn every_transfer_in_postgres_is_there_exactly_once() {
    is_right(StoreKind::Server(Service::Postgres), 7).await;
}

/// Guarantees: ONCE-1.
#[tokio::test]
async fn every_transfer_in_sqlite_is_there_exactly_once() {
    is_right(StoreKind::Sqlite, 12).await;
}

/// 64 runs in four processes, on their own server, which is also killed. The test also detects transfers by nodes without a transaction there.
///
/// Guarantees: ONCE-1.
#[tokio::test]
async fn every_transfer_happens_once_despite_server_kills() {
    // Transfers conflict in both orders. By default, a deadlock is detected only after a second.
    let options = PostgresServerOptions::default().with_setting("deadlock_timeout", "20ms");
    let server = spawn_blocking(|| PostgresServer::start(options)).await.unwrap().unwrap();
    let kind = StoreKind::Server(Service::Postgres);
    let game = Game { kind, size: LARGE, server: Some(Arc::new(server)), how: "transactional" };
    let right = game.rounds(variable(ROUNDS).unwrap_or(1)).await;
    let careless = Game { how: "write", ..game };
    let found = careless.rounds(10).await;
    spawn_blocking(move || drop(careless)).await.unwrap();
    right.unwrap();
    println!("{}", found.expect_err("no round in 10 made a transfer twice"));
}

/// The check detects transfers by nodes without a transaction.
#[tokio::test]
async fn transfers_without_a_transaction_are_found_out() {
    let game = Game { kind: StoreKind::Sqlite, size: SMALL, server: None, how: "write" };
    println!("{}", game.rounds(40).await.expect_err("no round in 40 made a transfer twice"));
}
