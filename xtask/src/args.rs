//! The command line of `cargo xtask`, and its help.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::release::ReleaseVersion;

/// The help text.
pub(crate) const USAGE: &str = "\
Everything automated about Ferrata.

Usage: cargo xtask <COMMAND>

Commands:
  test [OPTIONS] [-- FILTER...]   Build and run every test and documentation example, and build the example programs
  ci [--skip-tests]               The gate, which changes no file: format, tidy, clippy, tests, docs, licences and sources
  bench [OPTIONS] [PART...]       Measure what Ferrata costs beside bare references, in turn; see docs/how-to/performance.md
  prove [OPTIONS] [PROOF...]      Run the long form of each proof with new seeds, and write a page with the results
  release VERSION [OPTIONS]       Check, build and tag a release, and print the commands that publish it
  tidy [--write | --sizes]        Only the checks that lints cannot hold; or write what is made from the repository; or list large files
  ui [--check]                    Build the page of the inspector into the crate, with Node 20 or later; or hold the two together
  ui --large [--release]          Show the inspector 100,000 runs, 10,000 records and 1,000 children, and say what that takes
  fix                             Change files: format, and apply what clippy can apply by itself
  help                            Print this

Options of `test`:
  --services native   Start private Postgres, Redis, Redis Cluster, NATS and S3 servers for the tests, and stop them (the default)
  --services env      Start none: use those that STORE_TEST_POSTGRES_URL, STORE_TEST_REDIS_URL,
                      STORE_TEST_REDIS_CLUSTER_URL and STORE_TEST_S3_URL name; what is not set is that of
                      docker-compose.yml
  --quick             Two minutes: the core, the language and the store in a folder, without long explorations
  --real-s3           Only what concerns S3, on a private Ceph object gateway instead of moto: as root on Debian; it is
                      downloaded once (160 MB)

Options of `bench`:
  --store URL         Measure this store; again for more. Without it, private servers are started as for the tests
  --json FILE         Write all figures as JSON
  --markdown FILE     Write the table as Markdown
  --quick             Small, not optimised, and fails on a ratio ten times off benches/ratios.toml
  --real-s3           Only the rows of S3, on a private Ceph object gateway instead of moto, as for `test`
  PART                Only rows whose name contains it, such as `core/` or `postgres/runs-64`

Options of `prove`:
  --hours N           Run for about this time, such as 0.5; by default 1. From 1 on, also run the tests that take minutes each
  --write FILE        Write the page to this file, such as docs/reference/proof.md, instead of stdout
  PROOF               Only this proof: model, runs, queues, races, functions, operations, pipelines, stores or kills

Options of `release`:
  --dry-run           Change nothing: fold no fragments, and stop before the tag
  --skip-gate         The gate has just passed for this commit
  --skip-packages     Do not build the crates from their packages; only with --dry-run

What follows `--` after `test` goes to the test programs: a part of a test's name, or an option such as `--nocapture`.
";

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Prints the help.
    Help,
    /// Builds and runs the tests.
    Test(TestOptions),
    /// Runs the benchmarks.
    Bench(BenchOptions),
    /// Runs the gate.
    Ci {
        /// Whether the gate runs the tests.
        tests: Tests,
    },
    /// Runs the long form of each proof.
    Prove(ProveOptions),
    /// Prepares a release.
    Release(ReleaseOptions),
    /// Applies all corrections that need no person.
    Fix,
    /// Runs only the tidy checks.
    Tidy,
    /// Writes lower figures and generated texts instead of checking them.
    TidyWrite,
    /// Lists large files and types, with the reasons that they give.
    TidySizes,
    /// Builds the page of the inspector.
    Ui {
        /// Whether to only compare the page with the committed one.
        check: bool,
    },
    /// Runs the long forms of the inspector's tests, with a store that contains much data.
    LargeUi {
        /// Whether to measure a release build.
        release: bool,
    },
}

/// Options of a test run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestOptions {
    /// Where the servers for the tests come from.
    pub(crate) services: Services,
    /// Arguments that are passed on to the test programs.
    pub(crate) filter: Vec<String>,
}

/// What to measure, and where to write the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BenchOptions {
    /// The stores. If there are none, private servers are started.
    pub(crate) stores: Vec<String>,
    /// Whether to measure only S3, on a distributed server that is started.
    pub(crate) real_s3: bool,
    /// The file for all figures.
    pub(crate) json: Option<String>,
    /// The file for the table.
    pub(crate) markdown: Option<String>,
    /// Whether to measure only orders of magnitude.
    pub(crate) quick: bool,
    /// Parts of the names of the rows to measure. An empty list selects all rows.
    pub(crate) parts: Vec<String>,
}

/// Which proofs to run, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProveOptions {
    /// The time for all proofs. A round that has begun is completed.
    pub(crate) time: Duration,
    /// The file for the page.
    pub(crate) write: Option<String>,
    /// The names of the proofs. An empty list selects all proofs.
    pub(crate) parts: Vec<String>,
}

impl Default for ProveOptions {
    fn default() -> Self {
        Self { time: Duration::from_secs(3_600), write: None, parts: Vec::new() }
    }
}

/// The version to release, and which steps to skip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseOptions {
    pub(crate) version: ReleaseVersion,
    /// Whether to change nothing and stop before the tag.
    pub(crate) is_dry_run: bool,
    pub(crate) skips_gate: bool,
    pub(crate) skips_packages: bool,
}

/// Where the servers for the tests come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Services {
    /// Private servers are started for the tests and stopped afterwards.
    #[default]
    Native,
    /// The servers are already running. Environment variables name them.
    Env,
    /// Only a distributed S3 server is started, and only the tests that need it run.
    RealS3,
    /// No servers exist, and only the tests that need none run.
    None,
}

/// Whether the gate runs the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tests {
    /// The tests are a step of the gate.
    Run,
    /// The tests have just run. The tests are the longest step, and nothing has changed since then.
    Skip,
}

/// Parses the command line. `arguments` does not contain the name of the program.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command> {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => Ok(Command::Help),
        ["test", ..] => parse_test(&arguments[1..]).map(Command::Test),
        ["bench", ..] => parse_bench(&arguments[1..]).map(Command::Bench),
        ["prove", ..] => parse_prove(&arguments[1..]).map(Command::Prove),
        ["release", ..] => parse_release(&arguments[1..]).map(Command::Release),
        ["ci"] => Ok(Command::Ci { tests: Tests::Run }),
        ["ci", "--skip-tests"] => Ok(Command::Ci { tests: Tests::Skip }),
        ["fix"] => Ok(Command::Fix),
        ["tidy"] => Ok(Command::Tidy),
        ["tidy", "--write"] => Ok(Command::TidyWrite),
        ["tidy", "--sizes"] => Ok(Command::TidySizes),
        ["ui"] => Ok(Command::Ui { check: false }),
        ["ui", "--check"] => Ok(Command::Ui { check: true }),
        ["ui", "--large"] => Ok(Command::LargeUi { release: false }),
        ["ui", "--large", "--release"] => Ok(Command::LargeUi { release: true }),
        ["ci" | "fix" | "tidy" | "ui", ..] => {
            bail!("`{}` does not take `{}`; see `cargo xtask help`", words[0], words[1..].join(" "))
        }
        [other, ..] => bail!("there is no command `{other}`; see `cargo xtask help`"),
    }
}

fn parse_test(arguments: &[String]) -> Result<TestOptions> {
    let mut options = TestOptions::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--services" => {
                options.services = match rest.next().map(String::as_str) {
                    Some("native") => Services::Native,
                    Some("env") => Services::Env,
                    other => {
                        bail!("`--services` takes `native` or `env`, not `{}`", other.unwrap_or_default())
                    }
                }
            }
            "--real-s3" => options.services = Services::RealS3,
            "--quick" => options.services = Services::None,
            "--" => {
                options.filter = rest.cloned().collect();
                break;
            }
            other => {
                bail!("`test` does not take `{other}`; put what the test programs are to see after `--`")
            }
        }
    }
    Ok(options)
}

fn parse_prove(arguments: &[String]) -> Result<ProveOptions> {
    let mut options = ProveOptions::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--hours" => {
                let hours = rest.next().and_then(|hours| hours.parse::<f64>().ok());
                let time = hours.and_then(|hours| Duration::try_from_secs_f64(hours * 3_600.0).ok());
                let time = time.filter(|time| !time.is_zero());
                options.time = time.context("`--hours` takes a number above 0, such as 0.5")?;
            }
            "--write" => options.write = Some(rest.next().context("`--write` takes a file")?.clone()),
            option if option.starts_with('-') => bail!("`prove` does not take `{option}`"),
            _ => options.parts.push(argument.clone()),
        }
    }
    Ok(options)
}

fn parse_release(arguments: &[String]) -> Result<ReleaseOptions> {
    let (version, options) =
        arguments.split_first().context("`release` takes a version, such as `cargo xtask release 0.1.0`")?;
    let version = ReleaseVersion::parse(version)?;
    let mut parsed = ReleaseOptions { version, is_dry_run: false, skips_gate: false, skips_packages: false };
    for option in options {
        match option.as_str() {
            "--dry-run" => parsed.is_dry_run = true,
            "--skip-gate" => parsed.skips_gate = true,
            "--skip-packages" => parsed.skips_packages = true,
            other => bail!("`release` does not take `{other}`"),
        }
    }
    if parsed.skips_packages && !parsed.is_dry_run {
        bail!("a release builds the crates from their packages; `--skip-packages` needs `--dry-run`");
    }
    Ok(parsed)
}

fn parse_bench(arguments: &[String]) -> Result<BenchOptions> {
    let mut options = BenchOptions::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = |what: &str| match rest.next() {
            Some(value) => Ok(value.clone()),
            None => bail!("`{argument}` takes {what}"),
        };
        match argument.as_str() {
            "--store" => options.stores.push(value("the URL of a store")?),
            "--json" => options.json = Some(value("a file")?),
            "--markdown" => options.markdown = Some(value("a file")?),
            "--quick" => options.quick = true,
            "--real-s3" => options.real_s3 = true,
            option if option.starts_with('-') => bail!("`bench` does not take `{option}`"),
            _ => options.parts.push(argument.clone()),
        }
    }
    if options.real_s3 && !options.stores.is_empty() {
        bail!("`--real-s3` starts the one server that is measured; leave `--store` away");
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn each_command_is_understood() {
        assert_eq!(parsed("").unwrap(), Command::Help);
        assert_eq!(parsed("test").unwrap(), Command::Test(TestOptions::default()));
        let filter = vec!["resume".to_owned(), "--nocapture".to_owned()];
        let options = TestOptions { filter: filter.clone(), ..TestOptions::default() };
        assert_eq!(parsed("test -- resume --nocapture").unwrap(), Command::Test(options));
        let options = TestOptions { services: Services::Env, filter };
        let line = "test --services env -- resume --nocapture";
        assert_eq!(parsed(line).unwrap(), Command::Test(options));
        assert_eq!(parsed("test --services native").unwrap(), Command::Test(TestOptions::default()));
        let options = TestOptions { services: Services::RealS3, ..TestOptions::default() };
        assert_eq!(parsed("test --real-s3").unwrap(), Command::Test(options));
        let options = TestOptions { services: Services::None, ..TestOptions::default() };
        assert_eq!(parsed("test --quick").unwrap(), Command::Test(options));
        assert_eq!(parsed("ci").unwrap(), Command::Ci { tests: Tests::Run });
        assert_eq!(parsed("ci --skip-tests").unwrap(), Command::Ci { tests: Tests::Skip });
        assert_eq!(parsed("bench").unwrap(), Command::Bench(BenchOptions::default()));
        let options = BenchOptions {
            stores: vec!["file:a".to_owned(), "file:b".to_owned()],
            json: Some("out.json".to_owned()),
            markdown: Some("out.md".to_owned()),
            quick: true,
            parts: vec!["core/".to_owned()],
            ..BenchOptions::default()
        };
        let line = "bench --store file:a --store file:b --json out.json --markdown out.md --quick core/";
        assert_eq!(parsed(line).unwrap(), Command::Bench(options));
        let options = BenchOptions { real_s3: true, ..BenchOptions::default() };
        assert_eq!(parsed("bench --real-s3").unwrap(), Command::Bench(options));
        assert_eq!(parsed("prove").unwrap(), Command::Prove(ProveOptions::default()));
        let options = ProveOptions {
            time: Duration::from_secs(180),
            write: Some("proof.md".to_owned()),
            parts: vec!["runs".to_owned()],
        };
        assert_eq!(parsed("prove --hours 0.05 --write proof.md runs").unwrap(), Command::Prove(options));
        let version = ReleaseVersion::parse("0.1.0").unwrap();
        let options = ReleaseOptions { version, is_dry_run: true, skips_gate: true, skips_packages: true };
        let line = "release 0.1.0 --dry-run --skip-gate --skip-packages";
        assert_eq!(parsed(line).unwrap(), Command::Release(options));
        assert_eq!(parsed("fix").unwrap(), Command::Fix);
        assert_eq!(parsed("tidy").unwrap(), Command::Tidy);
        assert_eq!(parsed("tidy --write").unwrap(), Command::TidyWrite);
        assert_eq!(parsed("tidy --sizes").unwrap(), Command::TidySizes);
        assert_eq!(parsed("ui").unwrap(), Command::Ui { check: false });
        assert_eq!(parsed("ui --check").unwrap(), Command::Ui { check: true });
        assert_eq!(parsed("ui --large").unwrap(), Command::LargeUi { release: false });
        assert_eq!(parsed("ui --large --release").unwrap(), Command::LargeUi { release: true });
    }

    #[test]
    fn unknown_arguments_are_refused_with_remedy() {
        assert!(parsed("test resume").unwrap_err().to_string().contains("after `--`"));
        assert!(parsed("test --services").unwrap_err().to_string().contains("`native` or `env`"));
        assert!(parsed("test --services docker").unwrap_err().to_string().contains("not `docker`"));
        assert!(parsed("ci --skip-clippy").unwrap_err().to_string().contains("--skip-clippy"));
        assert!(parsed("bench --store").unwrap_err().to_string().contains("the URL of a store"));
        assert!(
            parsed("bench --real-s3 --store file:a").unwrap_err().to_string().contains("leave `--store`")
        );
        assert!(parsed("bench --fast").unwrap_err().to_string().contains("`--fast`"));
        for hours in ["many", "0", "-1", "nan", "inf"] {
            let error = parsed(&format!("prove --hours {hours}")).unwrap_err().to_string();
            assert!(error.contains("a number above 0"), "{hours}: {error}");
        }
        assert!(parsed("prove --seeds 5").unwrap_err().to_string().contains("`--seeds`"));
        assert!(parsed("release").unwrap_err().to_string().contains("takes a version"));
        assert!(parsed("release v1").unwrap_err().to_string().contains("`v1` is no version"));
        assert!(parsed("release 0.1.0 --skip-packages").unwrap_err().to_string().contains("--dry-run"));
        assert!(parsed("deploy").unwrap_err().to_string().contains("cargo xtask help"));
    }
}
