//! Builds the benchmarks, starts their servers, and runs them.
#![expect(clippy::print_stdout, reason = "which servers are measured is what a person wants to see")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use ferrata_test_servers::{
    MotoServer, NatsServer, NatsServerOptions, PostgresServer, PostgresServerOptions, RadosgwServer,
    RedisServer, RedisServerOptions,
};

use crate::args::{BenchOptions, Services};
use crate::cargo::Cargo;
use crate::{servers, testing};

/// The variable with the URLs of the stores. The URLs are not on the command line, because a URL may contain a password.
const STORES: &str = "FERRATA_BENCH_STORES";

/// The file of ratios with which a quick run is compared.
const RATIOS: &str = "benches/ratios.toml";

/// Builds the benchmark programs, starts servers if no stores are given, and runs the programs.
///
/// A quick run uses the build of the tests, which exists already. A quick run measures only orders of magnitude, so an optimized build of all drivers
/// is not needed. The call of cargo is the same as for the tests, because other features of a dependency would cause another build.
pub(crate) fn run(root: &Path, options: &BenchOptions) -> Result<()> {
    if options.stores.is_empty() && !options.real_s3 {
        servers::prepare(Services::Native)?;
    }
    let build =
        if options.quick { testing::BUILD } else { "build --release --locked -p ferrata-benches --bins" };
    Cargo::new(build).run(root)?;
    let mut command = Command::new(program(options.quick)?);
    command.current_dir(root).args(arguments(options)).stdin(Stdio::null());
    if !options.stores.is_empty() {
        return finish(command.env(STORES, options.stores.join(" ")));
    }
    if options.real_s3 {
        // At the first time, the server is downloaded.
        let server = RadosgwServer::start()?;
        println!("server of the benchmark: {} at {}", server.version()?, server.url());
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        return finish(command.env(STORES, bucket(&server.url())));
    }
    let servers = Servers::start()?;
    println!("servers of the benchmark: {}", servers.urls().join(" "));
    // The local server accepts every client, but the client library must sign its requests with some key.
    command.env("AWS_ACCESS_KEY_ID", "bench").env("AWS_SECRET_ACCESS_KEY", "bench");
    // Dropping this value stops the servers. If this process is killed, their watchdogs stop them.
    let outcome = finish(command.env(STORES, servers.urls().join(" ")));
    drop(servers);
    outcome
}

/// Returns the path of the benchmark program. The benchmark program is next to this program, which is never built with optimization.
fn program(quick: bool) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let folder = own.parent().and_then(Path::parent).context("this program lies in no target folder")?;
    Ok(folder.join(if quick { "debug" } else { "release" }).join("bench"))
}

fn arguments(options: &BenchOptions) -> Vec<String> {
    let mut arguments = Vec::new();
    if options.quick {
        arguments.push("--quick".to_owned());
        // A part of the rows can be measured without a comparison.
        if options.parts.is_empty() && options.stores.is_empty() && !options.real_s3 {
            arguments.extend(["--guard", RATIOS].map(str::to_owned));
        }
    }
    for (option, file) in [("--json", &options.json), ("--markdown", &options.markdown)] {
        arguments.extend(file.iter().flat_map(|file| [option.to_owned(), file.clone()]));
    }
    if options.real_s3 && options.parts.is_empty() {
        arguments.push("s3/".to_owned());
    }
    arguments.extend_from_slice(&options.parts);
    arguments
}

fn finish(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot start the benchmark")?;
    if !status.success() {
        bail!("the benchmark failed ({status})");
    }
    Ok(())
}

/// One server of each kind, as for the tests, and a folder. All are on the disk of the temporary folder.
#[derive(Debug)]
struct Servers {
    postgres: PostgresServer,
    redis: RedisServer,
    moto: MotoServer,
    nats: NatsServer,
    folder: tempfile::TempDir,
}

impl Servers {
    fn start() -> Result<Self> {
        let panicked = |_| anyhow!("the thread that starts a server panicked");
        thread::scope(|scope| {
            // As by default, each server confirms a commit only after it is on disk.
            let postgres = scope.spawn(|| PostgresServer::start(PostgresServerOptions::default()));
            let redis = scope.spawn(|| RedisServer::start(RedisServerOptions::default()));
            let nats = scope.spawn(|| NatsServer::start(NatsServerOptions::default()));
            let moto = MotoServer::start();
            Ok(Self {
                postgres: postgres.join().map_err(panicked)??,
                redis: redis.join().map_err(panicked)??,
                nats: nats.join().map_err(panicked)??,
                moto: moto?,
                folder: tempfile::tempdir()?,
            })
        })
    }

    fn urls(&self) -> Vec<String> {
        vec![
            self.postgres.url(),
            self.redis.url(),
            format!("file:{}", self.folder.path().display()),
            format!("sqlite:{}", self.folder.path().display()),
            bucket(&self.moto.url()),
            self.nats.url(),
        ]
    }
}

/// Returns the URL of a store on an S3 server.
fn bucket(endpoint: &str) -> String {
    format!("s3://ferrata-bench/runs?endpoint={endpoint}&path_style=true&region=us-east-1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_quick_run_is_judged() {
        let quick = BenchOptions { quick: true, ..BenchOptions::default() };
        assert_eq!(arguments(&quick), ["--quick", "--guard", RATIOS]);
        let part = BenchOptions { parts: vec!["core/".to_owned()], json: Some("a".to_owned()), ..quick };
        assert_eq!(arguments(&part), ["--quick", "--json", "a", "core/"]);
        assert!(arguments(&BenchOptions::default()).is_empty());
        let real = BenchOptions { real_s3: true, quick: true, ..BenchOptions::default() };
        assert_eq!(arguments(&real), ["--quick", "s3/"]);
    }
}
