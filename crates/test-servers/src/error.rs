//! The errors of servers, with advice.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::program::Program;

/// The result of every function of this crate.
pub type Result<T> = std::result::Result<T, ServerError>;

/// The reason why a server is unavailable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Programs are not installed, and Debian's package tools, which could provide them, are missing.
    #[error("{} missing; install what your system has it in, or run the tests in a container with Debian's package tools:\n    {IN_A_CONTAINER}", names(.programs))]
    Missing {
        /// The missing programs.
        programs: Vec<Program>,
    },
    /// A system call failed.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// The name of the failed operation.
        doing: &'static str,
        /// The path that the operation used.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The server, or a program that prepares it, ended by itself or was not ready in time.
    #[error("{name} {what}; its output ends with:\n{log}")]
    Failed {
        /// The name of the server or of the program.
        name: String,
        /// A description of the failure.
        what: String,
        /// The last lines of its output.
        log: String,
    },
    /// The operation requires a running server.
    #[error("{name} does not run; call `restart` first")]
    NotRunning {
        /// The name of the server.
        name: &'static str,
    },
}

impl ServerError {
    pub(crate) fn io(doing: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { doing, path, source }
    }

    /// Returns whether the server failed because another process took the port first.
    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Failed { log, .. } if log.to_lowercase().contains("address already in use"))
    }
}

/// The command that runs the tests on a machine that has only a container engine.
const IN_A_CONTAINER: &str =
    "docker run --rm -it --init -v \"$PWD:/ferrata\" -w /ferrata rust:bookworm cargo xtask test";

fn names(programs: &[Program]) -> String {
    let names: Vec<String> = programs.iter().map(ToString::to_string).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

/// The last lines of a log, in which a server explains why it ended.
pub(crate) struct LogEnd<'a>(pub(crate) &'a Path);

impl fmt::Display for LogEnd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // This is enough for a stack trace of Python. More lines would hide the error.
        const LINES: usize = 30;
        let text = std::fs::read(self.0).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let end = &lines[lines.len().saturating_sub(LINES)..];
        f.write_str(&end.join("\n"))
    }
}
