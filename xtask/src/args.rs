//! The command line: what `cargo xtask` understands, and its help.

use anyhow::{Result, bail};

/// The help.
pub(crate) const USAGE: &str = "\
Everything automated about Ferrata.

Usage: cargo xtask <COMMAND>

Commands:
  test [-- FILTER...]   Build and run every test and documentation example, and build the example programs
  ci [--skip-tests]     The gate, which changes no file: format, tidy, clippy, tests, docs, licences and sources
  tidy                  Only the checks that lints cannot hold
  fix                   Change files: format, and apply what clippy can apply by itself
  help                  Print this

What follows `--` after `test` goes to the test programs: a part of a test's name, or an option such as `--nocapture`.
";

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print the help.
    Help,
    /// Build and run the tests.
    Test {
        /// What is handed on to the test programs.
        filter: Vec<String>,
    },
    /// Run the gate.
    Ci {
        /// Whether the gate runs the tests.
        tests: Tests,
    },
    /// Change what can be changed without a person.
    Fix,
    /// Run only the tidy checks.
    Tidy,
}

/// Whether the gate runs the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tests {
    /// They are one of its steps.
    Run,
    /// Somebody ran them just before; they are the longest step, and nothing has changed since.
    Skip,
}

/// Reads the command line, without the name of the program.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command> {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => Ok(Command::Help),
        ["test"] => Ok(Command::Test { filter: Vec::new() }),
        ["test", "--", ..] => Ok(Command::Test { filter: arguments[2..].to_vec() }),
        ["test", other, ..] => {
            bail!("`test` does not take `{other}`; put what the test programs are to see after `--`")
        }
        ["ci"] => Ok(Command::Ci { tests: Tests::Run }),
        ["ci", "--skip-tests"] => Ok(Command::Ci { tests: Tests::Skip }),
        ["fix"] => Ok(Command::Fix),
        ["tidy"] => Ok(Command::Tidy),
        ["ci" | "fix" | "tidy", ..] => {
            bail!("`{}` does not take `{}`; see `cargo xtask help`", words[0], words[1..].join(" "))
        }
        [other, ..] => bail!("there is no command `{other}`; see `cargo xtask help`"),
    }
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
        assert_eq!(parsed("test").unwrap(), Command::Test { filter: Vec::new() });
        let filter = vec!["resume".to_owned(), "--nocapture".to_owned()];
        assert_eq!(parsed("test -- resume --nocapture").unwrap(), Command::Test { filter });
        assert_eq!(parsed("ci").unwrap(), Command::Ci { tests: Tests::Run });
        assert_eq!(parsed("ci --skip-tests").unwrap(), Command::Ci { tests: Tests::Skip });
        assert_eq!(parsed("fix").unwrap(), Command::Fix);
        assert_eq!(parsed("tidy").unwrap(), Command::Tidy);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_the_remedy() {
        assert!(parsed("test resume").unwrap_err().to_string().contains("after `--`"));
        assert!(parsed("ci --skip-clippy").unwrap_err().to_string().contains("--skip-clippy"));
        assert!(parsed("deploy").unwrap_err().to_string().contains("cargo xtask help"));
    }
}
