//! What can go wrong with a server, said once, with what to do about it.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::program::Program;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, ServerError>;

/// Why a server is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Programs are not installed, and there are no package tools of Debian's to get them with.
    #[error("{} missing; install what your system has it in, or run the tests in a container with Debian's package tools:\n    {IN_A_CONTAINER}", names(.programs))]
    Missing {
        /// What is not installed.
        programs: Vec<Program>,
    },
    /// A system call failed.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was to be done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The server or a program that prepares it ended by itself, or did not get ready in time.
    #[error("{name} {what}; its output ends with:\n{log}")]
    Failed {
        /// Which server or program.
        name: String,
        /// What happened to it.
        what: String,
        /// The last lines that it printed.
        log: String,
    },
    /// The server does not run, and what was asked for needs it to.
    #[error("{name} does not run; call `restart` first")]
    NotRunning {
        /// Which server.
        name: &'static str,
    },
}

impl ServerError {
    pub(crate) fn io(doing: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { doing, path, source }
    }

    /// Tells whether another process was quicker to take the port.
    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Failed { log, .. } if log.to_lowercase().contains("address already in use"))
    }
}

/// What runs the tests on a machine that has nothing but a container engine.
const IN_A_CONTAINER: &str =
    "docker run --rm -it --init -v \"$PWD:/ferrata\" -w /ferrata rust:bookworm cargo xtask test";

fn names(programs: &[Program]) -> String {
    let names: Vec<String> = programs.iter().map(ToString::to_string).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

/// The end of a log, which is where a server says why it ended.
pub(crate) struct LogEnd<'a>(pub(crate) &'a Path);

impl fmt::Display for LogEnd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough for a stack trace of Python; more would hide the error.
        const LINES: usize = 30;
        let text = std::fs::read(self.0).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let end = &lines[lines.len().saturating_sub(LINES)..];
        f.write_str(&end.join("\n"))
    }
}
