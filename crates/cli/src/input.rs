//! Reads input: files, stdin, and answers of a person at the terminal.

use std::io::{self, BufRead, IsTerminal, Read};
use std::path::Path;

use serde_json::Value;

use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::to_stderr;

/// Maximum size of a file that contains one value. No record allows as much.
const MOST: u64 = 256 * 1024 * 1024;

/// Reads a file as bytes. `-` stands for stdin.
pub(crate) fn bytes(path: &str) -> Result<Vec<u8>, CommandFailure> {
    let mut all = Vec::new();
    let read = if path == "-" {
        io::stdin().lock().take(MOST + 1).read_to_end(&mut all)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut all))
    };
    read.map_err(|error| unreadable_input(path, &error))?;
    if all.len() as u64 > MOST {
        let message = format!("the file `{path}` has more than {MOST} bytes; check the path");
        return Err(CommandFailure::usage(message, "ferrata --help"));
    }
    Ok(all)
}

/// Reads a file as text. `-` stands for stdin.
pub(crate) fn text(path: &str) -> Result<String, CommandFailure> {
    String::from_utf8(bytes(path)?)
        .map_err(|_| CommandFailure::usage(format!("the file `{path}` is not UTF-8 text"), "ferrata --help"))
}

/// Returns the error for an unreadable file.
pub(crate) fn unreadable_input(path: &str, error: &io::Error) -> CommandFailure {
    let exit =
        if error.kind() == io::ErrorKind::NotFound { ExitReason::NotFound } else { ExitReason::Internal };
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or(".".to_owned(), |folder| folder.display().to_string());
    CommandFailure::new(exit, format!("cannot read `{path}`: {error}"), format!("ls -l {folder}"))
}

/// Returns a value of the command line: the word itself, the content of a file for `@FILE`, or stdin for `-`.
pub(crate) fn value(word: &str) -> Result<String, CommandFailure> {
    match word.strip_prefix('@') {
        Some(path) => text(path),
        None if word == "-" => text("-"),
        None => Ok(word.to_owned()),
    }
}

/// Parses a text as JSON. If the text is not valid JSON, it is the value itself.
pub(crate) fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text)
        .unwrap_or_else(|_| Value::String(text.trim_end_matches(['\n', '\r']).to_owned()))
}

impl CommandContext {
    /// Returns whether a person at the terminal can answer.
    pub(crate) fn is_attended(&self) -> bool {
        !self.global.no_input && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks a question on the terminal. Returns `None` if there is no terminal or no answer.
    pub(crate) fn ask(&self, question: &str) -> Result<Option<String>, CommandFailure> {
        if !self.is_attended() {
            return Ok(None);
        }
        to_stderr(question, self.out.color_notes);
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map_err(|error| unreadable_input("-", &error))?;
        let line = line.trim().to_owned();
        Ok(Some(line).filter(|line| !line.is_empty()))
    }

    /// Returns only if `--yes` is given, or if a person agrees. Otherwise fails.
    pub(crate) fn confirm(&self, yes: bool, what: &str, next: &str) -> Result<(), CommandFailure> {
        if yes {
            return Ok(());
        }
        match self.ask(&format!("{what}? [y/N] "))? {
            Some(line) if ["y", "yes"].contains(&line.to_lowercase().as_str()) => Ok(()),
            _ => Err(CommandFailure::usage(format!("not confirmed: to {what}, add --yes"), next)),
        }
    }
}
