//! One call of cargo: what is run, how it is shown to a person, and what its failure says.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Tells the builds of the stores that there will be servers. In every call: a store and all that depends on it are built again
/// when this changes.
pub(crate) const SERVERS: (&str, &str) = ("REQUIRE_SERVICES", "1");

/// A call of cargo at the root of the repository, printed as the line that repeats it.
#[derive(Clone, Debug)]
pub(crate) struct Cargo {
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Cargo {
    /// Makes a call from its arguments, separated by white space.
    pub(crate) fn new(line: &str) -> Self {
        Self { arguments: line.split_whitespace().map(str::to_owned).collect(), environment: Vec::new() }
    }

    /// Adds arguments as they are.
    pub(crate) fn args(mut self, arguments: &[String]) -> Self {
        self.arguments.extend_from_slice(arguments);
        self
    }

    /// Sets a variable for this call.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Runs it at `root`, with this process's output as its own.
    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        let status = self.command(root).status().with_context(|| format!("cannot start `{self}`"))?;
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        Ok(())
    }

    /// Tells whether it can be run at all, quietly: for a subcommand that may not be installed.
    pub(crate) fn succeeds_quietly(&self, root: &Path) -> bool {
        let status = self.command(root).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    pub(crate) fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(program());
        command.current_dir(root).args(&self.arguments).stdin(Stdio::null()).env(SERVERS.0, SERVERS.1);
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        command
    }
}

/// Returns the cargo to call: it names itself to the programs it runs, so that a toolchain chosen by the caller stays chosen.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into()
}

impl fmt::Display for Cargo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str("cargo")?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

/// Returns `word` as a shell reads it as one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_as_the_line_that_repeats_it() {
        let call = Cargo::new("doc  --locked").env("RUSTDOCFLAGS", "-D warnings").args(&["it's".to_owned()]);
        assert_eq!(call.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc --locked 'it'\''s'");
    }

    #[test]
    fn a_failure_names_the_line() {
        let failure = Cargo::new("test --locked").run(Path::new("no/such/folder")).unwrap_err();
        assert_eq!(failure.to_string(), "cannot start `cargo test --locked`");
    }

    #[test]
    fn a_subcommand_that_is_not_installed_is_known_without_noise() {
        assert!(Cargo::new("--version").succeeds_quietly(Path::new(".")));
        assert!(!Cargo::new("no-such-subcommand-exists").succeeds_quietly(Path::new(".")));
    }
}
