//! The test programs of a build. The messages of cargo name them, and several of them run concurrently.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::report::{Report, Row};
use super::usage;
use crate::cargo::{self, Cargo};

/// The variable that sets the number of concurrent tests of a program.
const THREADS: &str = "RUST_TEST_THREADS";

/// Number of concurrent programs. Tests mostly wait for a server, a process or a clock. With more programs, the deadlines of tests about time would
/// fail as on a busy machine.
const AT_ONCE: usize = 3;

/// The programs that take longest, in this order. If they were started last, each would run alone at the end. The number is the duration in seconds
/// on two cores next to two other programs. The remaining time is estimated from it.
const FIRST: [(&str, u64); 14] = [
    ("crates/store-s3/tests/s3", 336),
    ("examples/tests/programs", 167),
    (super::DOCUMENTATION, 93),
    ("tests/tests/fleet", 70),
    ("crates/store-redis/tests/store", 65),
    ("tests/tests/kill", 43),
    ("tests/tests/stores", 50),
    ("crates/store-postgres/tests/store", 30),
    ("crates/core/tests/sim", 141),
    ("crates/core/tests/crash", 125),
    ("tests/mistakes/tests/ui", 88),
    ("crates/core/tests/history", 59),
    ("crates/store-redis/tests/conformance", 53),
    ("crates/store-postgres/tests/conformance", 35),
];

/// Average duration of the other programs in seconds.
const OTHERS: u64 = 12;

/// Returns the position of a program in the order, and its expected duration.
fn place(name: &str) -> (usize, Duration) {
    let known = FIRST.iter().position(|(first, _)| *first == name);
    (known.unwrap_or(FIRST.len()), Duration::from_secs(known.map_or(OTHERS, |at| FIRST[at].1)))
}

/// A program that contains tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The beginning of the path of its source, without the part that all such paths have at their end.
    pub(super) name: String,
    pub(super) executable: PathBuf,
    pub(super) arguments: Vec<String>,
    /// The folder of its package. Cargo runs tests in this folder.
    pub(super) folder: PathBuf,
    /// The package of the program; empty for a call of cargo.
    pub(super) package: String,
    /// Whether the program gets the variables that name the servers. Cargo does not, because it would build everything again that depends on them.
    pub(super) wants_servers: bool,
}

/// The test programs of one build.
#[derive(Clone, Debug)]
pub(crate) struct Programs(pub(super) Vec<Program>);

impl Programs {
    /// Builds the programs. `line` is a call of `cargo test` that runs no test.
    pub(crate) fn build(root: &Path, line: &str) -> Result<Self> {
        let call = Cargo::new(line).args(&["--message-format=json-render-diagnostics".to_owned()]);
        let mut cargo = call
            .command(root)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{call}`"))?;
        let said = cargo.stdout.take().context("the output of cargo was asked for")?;
        let mut programs = Vec::new();
        for message in BufReader::new(said).lines() {
            programs.extend(program(root, &message?));
        }
        let status = cargo.wait()?;
        if !status.success() {
            bail!("`{}` failed ({status})", Cargo::new(line));
        }
        Ok(Self(programs))
    }

    /// Adds a call of cargo that builds and runs tests itself.
    pub(super) fn add(&mut self, name: &str, root: &Path, call: &Cargo) {
        self.0.push(Program {
            name: name.to_owned(),
            executable: cargo::program(),
            arguments: call.arguments().iter().cloned().chain(["--".to_owned()]).collect(),
            folder: root.to_owned(),
            package: String::new(),
            wants_servers: false,
        });
    }

    /// Removes the programs with these names.
    pub(super) fn leave_out(&mut self, names: &[&str]) {
        self.0.retain(|program| !names.contains(&program.name.as_str()));
    }

    /// Returns the programs with these names, in this order.
    pub(crate) fn select<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<Self> {
        let select = |name: &str| {
            let program = self.0.iter().find(|program| program.name == name).cloned();
            program.with_context(|| format!("the build has no test program `{name}`"))
        };
        Ok(Self(names.map(select).collect::<Result<_>>()?))
    }

    /// Runs the programs one after another, with `variables` set and with `arguments`. Returns the end of each.
    pub(crate) fn run_in_turn(
        &self,
        variables: &[(&'static str, String)],
        arguments: &[String],
    ) -> Result<Vec<Row>> {
        self.0.iter().map(|program| program.run(variables, arguments)).collect()
    }

    /// Runs the programs with `variables` set, and with `filter` as their arguments. Failures go to `report`.
    pub(super) fn run(
        mut self,
        variables: &[(&'static str, String)],
        filter: &[String],
        report: &mut Report,
    ) -> Result<()> {
        self.0.sort_by_key(|program| place(&program.name).0);
        report.expect(self.0.iter().map(|program| (program.name.as_str(), place(&program.name).1)));
        let (report, waiting) = (Mutex::new(report), Mutex::new(VecDeque::from(self.0)));
        let lock = || report.lock().unwrap_or_else(PoisonError::into_inner);
        thread::scope(|scope| {
            let work = || -> Result<()> {
                loop {
                    let Some(program) = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
                    else {
                        return Ok(());
                    };
                    lock().begun(&program.name);
                    let row = program.run(variables, filter)?;
                    lock().ended(row, !filter.is_empty());
                }
            };
            let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
            let ends = workers.into_iter().map(|worker| match worker.join() {
                Ok(end) => end,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ends.collect()
        })
    }
}

impl Program {
    fn run(&self, variables: &[(&'static str, String)], filter: &[String]) -> Result<Row> {
        let output = tempfile::NamedTempFile::new().context("cannot make a file for the output of a test")?;
        let mut command = Command::new(&self.executable);
        command.args(&self.arguments).args(filter).current_dir(&self.folder).stdin(Stdio::null());
        // Both share one position in the file, so that neither overwrites the output of the other.
        let file = output.reopen()?;
        command.stdout(file.try_clone()?).stderr(file);
        // Do the same as cargo: the variables of this process's package must not reach the program.
        cargo::forget_package(&mut command);
        if !self.package.is_empty() {
            command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package);
        }
        if std::env::var_os(THREADS).is_none() {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            command.env(THREADS, cores.max(2).to_string());
        }
        if self.wants_servers {
            command.envs(variables.iter().map(|(name, value)| (name, value)));
        } else {
            command.env(cargo::SERVERS.0, cargo::SERVERS.1);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a person is told how long it took; no run depends on it"
        )]
        let begun = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", self.executable.display()))?;
        let (status, processor) = usage::wait(child)?;
        let output = std::fs::read(output.path()).context("the output of a test is gone")?;
        let output = String::from_utf8_lossy(&output).into_owned();
        Ok(Row { name: self.name.clone(), took: begun.elapsed(), processor, status, output })
    }
}

/// Parses a message of cargo. Returns the program that it names, if the program contains tests.
fn program(root: &Path, message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    let text = |place: &str| message.pointer(place).and_then(Value::as_str);
    if text("/reason") != Some("compiler-artifact")
        || message.pointer("/profile/test") != Some(&Value::Bool(true))
    {
        return None;
    }
    let source = Path::new(text("/target/src_path")?);
    let name = source.strip_prefix(root).unwrap_or(source).with_extension("");
    let name = if name.ends_with("main") { name.parent()?.to_owned() } else { name };
    // The id has the form `…/crates/core#ferrata-core@0.1.0`, or `…/crates/ferrata#0.1.0` if the folder has the name of the package.
    let (place, version) = text("/package_id")?.rsplit_once('#')?;
    let package = version
        .split_once('@')
        .map_or_else(|| place.rsplit('/').next().unwrap_or_default(), |(name, _)| name);
    Some(Program {
        name: name.display().to_string(),
        executable: text("/executable")?.into(),
        arguments: Vec::new(),
        folder: Path::new(text("/manifest_path")?).parent()?.to_owned(),
        package: package.to_owned(),
        wants_servers: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "/home/of/ferrata";

    fn artifact(package: &str, source: &str, test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file://{ROOT}/{package}","manifest_path":"{ROOT}/crates/core/Cargo.toml",
            "target":{{"src_path":"{ROOT}/crates/core/{source}"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
        )
    }

    #[test]
    fn test_program_is_parsed_from_cargo_message() {
        let read = |message: String| program(Path::new(ROOT), &message);
        let model =
            read(artifact("crates/core#ferrata-core@0.1.0", "tests/model/main.rs", true, "\"/t/model\""));
        let expected = Program {
            name: "crates/core/tests/model".to_owned(),
            executable: "/t/model".into(),
            arguments: Vec::new(),
            folder: "/home/of/ferrata/crates/core".into(),
            package: "ferrata-core".to_owned(),
            wants_servers: true,
        };
        assert_eq!(model, Some(expected));
        let unit = read(artifact("crates/ferrata#0.1.0", "src/lib.rs", true, "\"/t/lib\"")).unwrap();
        assert_eq!((unit.name.as_str(), unit.package.as_str()), ("crates/core/src/lib", "ferrata"));
        assert_eq!(read(artifact("crates/ferrata#0.1.0", "src/lib.rs", false, "null")), None);
        assert_eq!(read(r#"{"reason":"build-finished","success":true}"#.to_owned()), None);
        assert_eq!(read("no JSON".to_owned()), None);
    }

    #[test]
    fn those_that_go_first_are_there() {
        let root = crate::root().unwrap();
        let first =
            FIRST.into_iter().map(|(name, _)| name).filter(|name| *name != super::super::DOCUMENTATION);
        for name in first.chain(super::super::LONG) {
            let is_there =
                root.join(name).join("main.rs").is_file() || root.join(name).with_extension("rs").is_file();
            assert!(is_there, "{name} is no test program; FIRST and LONG are to name what takes longest");
        }
    }

    #[test]
    fn program_output_and_exit_status_are_captured() {
        let shell = Program {
            name: "shell".to_owned(),
            executable: "/bin/sh".into(),
            arguments: ["-c", "echo $0 $A $CARGO_PKG_NAME; echo wrong >&2; exit 7"].map(str::to_owned).into(),
            folder: "/".into(),
            package: "ferrata-core".to_owned(),
            wants_servers: true,
        };
        let row = shell.run(&[("A", "b".to_owned())], &["resume".to_owned()]).unwrap();
        assert_eq!((row.status.code(), row.output.as_str()), (Some(7), "resume b ferrata-core\nwrong\n"));
        // A call of cargo. With the package of this process, it would build the drivers of the stores again.
        let cargo = Program {
            arguments: [
                "-c",
                "echo ${CARGO_MANIFEST_DIR-none} ${CARGO_PKG_NAME-none} ${CARGO_PKG_VERSION_MAJOR-none}",
            ]
            .map(str::to_owned)
            .into(),
            package: String::new(),
            ..shell
        };
        assert_eq!(cargo.run(&[], &[]).unwrap().output, "none none none\n");
    }
}
