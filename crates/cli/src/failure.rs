//! The failure of a command: its reason, its exit code, and the command that the user should type next.

use std::fmt::Write;

use ferrata::{Error, ErrorKind};

use crate::exit::ExitReason;
use crate::table::clean_lines;

/// The failure of a command.
#[derive(Debug)]
pub(crate) struct CommandFailure {
    exit: ExitReason,
    /// The stable code, if the failure is an error of the library.
    code: Option<&'static str>,
    message: String,
    /// Further lines below the message, for example other candidates.
    details: Vec<String>,
    /// The command that the user should type next.
    next: String,
}

impl CommandFailure {
    /// Creates a failure. `next` is a command line such as `ferrata ls`.
    pub(crate) fn new(exit: ExitReason, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { exit, code: None, message: message.into(), details: Vec::new(), next: next.into() }
    }

    /// Creates a failure for a mistake in the command line that clap does not detect.
    pub(crate) fn usage(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { code: Some(ErrorKind::Invalid.code()), ..Self::new(ExitReason::Usage, message, next) }
    }

    /// Creates a failure for an error in the command itself.
    pub(crate) fn internal(message: &str, error: &dyn std::error::Error) -> Self {
        Self::new(ExitReason::Internal, format!("{message}: {error}"), "ferrata --help")
    }

    /// Sets the command that the user should type next.
    #[must_use]
    pub(crate) fn or_type(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// Sets the error kind of the library that corresponds to this failure.
    #[must_use]
    pub(crate) fn with_code(mut self, kind: ErrorKind) -> Self {
        self.code = Some(kind.code());
        self
    }

    /// Adds lines below the message.
    #[must_use]
    pub(crate) fn with_details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }

    /// Formats the message and the details as lines of text, for the screen of `--watch`.
    pub(crate) fn lines(&self) -> String {
        std::iter::once(&self.message)
            .chain(&self.details)
            .map(|line| clean_lines(line))
            .collect::<Vec<_>>()
            .join("\n  ")
    }

    pub(crate) fn exit(&self) -> ExitReason {
        self.exit
    }

    pub(crate) fn code(&self) -> Option<&'static str> {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn details(&self) -> &[String] {
        &self.details
    }

    pub(crate) fn next(&self) -> &str {
        &self.next
    }
}

impl From<Error> for CommandFailure {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            // The errors of database drivers often repeat the error that they wrap.
            let text = error.to_string();
            if !message.contains(&text) {
                // Writing to a string never fails.
                let _ = write!(message, "\n  because: {text}");
            }
            cause = error.source();
        }
        let run = error.run().map(crate::find::display_key);
        if let Some(next) = missing_key(&error) {
            return Self { code: Some(kind.code()), ..Self::new(ExitReason::for_error(kind), message, next) };
        }
        let unset = kind == ErrorKind::Invalid
            && run.is_none()
            && error.operation().is_some_and(|operation| operation.starts_with("store."));
        if unset {
            // The command line is correct, but the store that its URL names is not set up.
            let prepared = error.message().contains("`setup`");
            let next =
                if prepared { "ferrata store check --setup" } else { "ferrata store check --store URL" };
            return Self { code: Some(kind.code()), ..Self::new(ExitReason::Internal, message, next) };
        }
        Self {
            code: Some(kind.code()),
            ..Self::new(ExitReason::for_error(kind), message, next(kind, run.as_deref()))
        }
    }
}

/// Returns the command to type next if a run is unreadable because its key is missing.
#[cfg(feature = "envelope")]
pub(crate) fn missing_key(error: &Error) -> Option<&'static str> {
    let is_encrypted = error.message().contains("is encrypted with the key");
    (error.kind() == ErrorKind::Unsupported && is_encrypted).then_some(crate::store::KEYS)
}

#[cfg(not(feature = "envelope"))]
pub(crate) fn missing_key(_: &Error) -> Option<&'static str> {
    None
}

/// Returns the command to type next after an error of the library.
fn next(kind: ErrorKind, run: Option<&str>) -> String {
    let with = |verb: &str, alone: &str| {
        run.map_or_else(|| format!("ferrata {alone}"), |run| format!("ferrata {verb} {run}"))
    };
    match kind {
        ErrorKind::NotFound => with("history", "ls"),
        ErrorKind::Conflict | ErrorKind::Fenced | ErrorKind::AlreadyExists | ErrorKind::WrongStatus => {
            with("show", "ls")
        }
        ErrorKind::GraphChanged | ErrorKind::Corrupt => with("verify", "store check"),
        ErrorKind::Invalid | ErrorKind::TooLarge => with("show", "--help"),
        _ => "ferrata store check".into(),
    }
}
