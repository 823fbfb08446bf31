//! The benchmark: built, given its servers, and run.
#![expect(clippy::print_stdout, reason = "which servers are measured is what a person wants to see")]

use std::path::Path;
use std::thread;

use anyhow::{Result, anyhow};
use ferrata_test_servers::{Moto, Postgres, PostgresOptions, Redis, RedisOptions};

use crate::args::{BenchOptions, Install, TestOptions};
use crate::cargo::Cargo;
use crate::servers;

/// What a quick run is held against.
const RATIOS: &str = "benches/ratios.toml";

/// Builds the programs, starts servers if no stores are given, and runs them.
///
/// A quick run takes the profile of the tests, which is built already: it looks for orders of magnitude, for which no build of
/// all drivers with optimisation need be waited for.
pub(crate) fn run(root: &Path, options: &BenchOptions) -> Result<()> {
    let profile = if options.quick { "" } else { "--release " };
    if options.stores.is_empty() {
        servers::prepare(&TestOptions { install: Install::InCi, ..TestOptions::default() })?;
    }
    Cargo::new(&format!("build {profile}--locked -p ferrata-benches --bins")).run(root)?;
    let mut call = Cargo::new(&format!("run {profile}--quiet --locked -p ferrata-benches --bin bench --"));
    if options.quick {
        call = call.args(&["--quick".to_owned()]);
        // A part of the rows can be looked at without being judged.
        if options.parts.is_empty() && options.stores.is_empty() {
            call = call.args(&["--guard".to_owned(), RATIOS.to_owned()]);
        }
    }
    for (option, file) in [("--json", &options.json), ("--markdown", &options.markdown)] {
        if let Some(file) = file {
            call = call.args(&[option.to_owned(), file.clone()]);
        }
    }
    call = call.args(&options.parts);
    if !options.stores.is_empty() {
        return call.hidden_env("FERRATA_BENCH_STORES", options.stores.join(" ")).run(root);
    }
    let servers = Servers::start()?;
    println!("servers of the benchmark: {}", servers.urls().join(" "));
    for variable in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        call = call.hidden_env(variable, "bench");
    }
    // The servers stop when this value ends; if this process is killed, their watchdogs see to it.
    let outcome = call.hidden_env("FERRATA_BENCH_STORES", servers.urls().join(" ")).run(root);
    drop(servers);
    outcome
}

/// One server of each kind, as for the tests, and a folder: all on the disk of the temporary folder.
#[derive(Debug)]
struct Servers {
    postgres: Postgres,
    redis: Redis,
    moto: Moto,
    folder: tempfile::TempDir,
}

impl Servers {
    fn start() -> Result<Self> {
        let panicked = |_| anyhow!("the thread that starts a server panicked");
        thread::scope(|scope| {
            // Each waits for the disk before it says that something is committed, as by default.
            let postgres = scope.spawn(|| Postgres::start(PostgresOptions::default()));
            let redis = scope.spawn(|| Redis::start(RedisOptions::default()));
            let moto = Moto::start();
            Ok(Self {
                postgres: postgres.join().map_err(panicked)??,
                redis: redis.join().map_err(panicked)??,
                moto: moto?,
                folder: tempfile::tempdir()?,
            })
        })
    }

    fn urls(&self) -> Vec<String> {
        let endpoint = self.moto.url();
        vec![
            self.postgres.url(),
            self.redis.url(),
            format!("file:{}", self.folder.path().display()),
            format!("s3://ferrata-bench/runs?endpoint={endpoint}&path_style=true&region=us-east-1"),
        ]
    }
}
