//! Calls of cargo: how they are run, how they are shown to a person, and what their failure says.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Tells the builds of the stores that servers will exist. Every call sets this variable, because a change of it builds the stores and all crates
/// that depend on them again.
pub(crate) const SERVERS: (&str, &str) = ("REQUIRE_SERVICES", "1");

/// A call of cargo at the root of the repository. The call is printed as the line that repeats it.
#[derive(Clone, Debug)]
pub(crate) struct Cargo {
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Cargo {
    /// Creates a call from its arguments, which are separated by white space.
    pub(crate) fn new(line: &str) -> Self {
        Self { arguments: line.split_whitespace().map(str::to_owned).collect(), environment: Vec::new() }
    }

    /// Adds arguments unchanged.
    pub(crate) fn args(mut self, arguments: &[String]) -> Self {
        self.arguments.extend_from_slice(arguments);
        self
    }

    /// Sets a variable for this call.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Runs the call at `root`, with the output of this process.
    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        let status = self.command(root).status().with_context(|| format!("cannot start `{self}`"))?;
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        Ok(())
    }

    /// Returns whether the call succeeds, without printing its output. Use it for a subcommand that may not be installed.
    pub(crate) fn succeeds_quietly(&self, root: &Path) -> bool {
        let status = self.command(root).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    pub(crate) fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(program());
        forget_package(&mut command);
        command.current_dir(root).args(&self.arguments).stdin(Stdio::null()).env(SERVERS.0, SERVERS.1);
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        command
    }
}

/// Removes from `command` the variables that cargo set for the package of this process.
///
/// The build scripts of dependencies read such variables, and run again when they change. Otherwise each test run would compile the drivers of three
/// stores again, and so would the next `cargo check` in a shell, where these variables are not set.
pub(crate) fn forget_package(command: &mut Command) {
    const OF_A_PACKAGE: [&str; 6] =
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_", "OUT_DIR"];
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_A_PACKAGE.iter().any(|of| name.starts_with(of))) {
            command.env_remove(name);
        }
    }
}

/// Returns the cargo program to call. Cargo names itself to the programs that it runs, so the toolchain that the caller has chosen stays the same.
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

/// Quotes `word` so that a shell reads it as one word.
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
    fn cargo_call_prints_as_repeatable_command_line() {
        let call = Cargo::new("doc  --locked").env("RUSTDOCFLAGS", "-D warnings").args(&["it's".to_owned()]);
        assert_eq!(call.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc --locked 'it'\''s'");
    }

    #[test]
    fn cargo_call_drops_environment_of_calling_package() {
        let command = Cargo::new("--version").command(Path::new("."));
        let removed: Vec<_> =
            command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        // The build script of `ring` reads this variable. Cargo sets all of these variables for this test, and `cargo xtask test` sets the first.
        assert!(removed.contains(&"CARGO_MANIFEST_DIR".as_ref()));
        for name in ["CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR", "CARGO_PKG_VERSION_PRE"] {
            assert!(std::env::var_os(name).is_none() || removed.contains(&name.as_ref()), "{name}");
        }
        let kept = |name: &str| std::env::var_os(name).is_none() || !removed.contains(&name.as_ref());
        assert!(["CARGO", "CARGO_HOME", "CARGO_TARGET_DIR", "PATH"].into_iter().all(kept));
    }

    #[test]
    fn a_failure_names_the_line() {
        let failure = Cargo::new("test --locked").run(Path::new("no/such/folder")).unwrap_err();
        assert_eq!(failure.to_string(), "cannot start `cargo test --locked`");
    }

    #[test]
    fn missing_subcommand_is_detected_quietly() {
        assert!(Cargo::new("--version").succeeds_quietly(Path::new(".")));
        assert!(!Cargo::new("no-such-subcommand-exists").succeeds_quietly(Path::new(".")));
    }
}
