//! Output of the command: data to stdout, everything else to stderr.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::args::GlobalArgs;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::store;
use crate::table::{Table, clean_json, clean_lines, paint, safe};
use crate::time::TimeFormat;

/// The format of data on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON object per line, each printed as soon as it is known.
    Jsonl,
    /// Only names or ids, one per line.
    Ids,
}

/// When output has colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorChoice {
    fn on(self, terminal: bool) -> bool {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match self {
            Self::Auto => terminal && !unwanted,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// The buffered stdout of a command with `--watch`.
fn screen() -> MutexGuard<'static, Option<String>> {
    static SCREEN: Mutex<Option<String>> = Mutex::new(None);
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the width of stdout in columns, from `COLUMNS` or from the terminal.
pub(crate) fn room() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let seen = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    said.or_else(seen).filter(|&columns| columns > 0)
}

/// The output of the command, for data and notes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// The format of data.
    pub(crate) format: OutputFormat,
    /// The format of times for people.
    pub(crate) time: TimeFormat,
    /// Whether data is colored.
    pub(crate) color: bool,
    /// The maximum width of a line of data in columns; `None` without a terminal.
    pub(crate) room: Option<usize>,
    /// Whether notes are colored.
    pub(crate) color_notes: bool,
    quiet: bool,
}

impl Output {
    /// Creates the output with the format and the colors of the options.
    pub(crate) fn new(global: &GlobalArgs) -> Self {
        Self {
            format: global.output,
            time: global.time,
            color: global.color.on(io::stdout().is_terminal()),
            room: room(),
            color_notes: global.color.on(io::stderr().is_terminal()),
            quiet: global.quiet,
        }
    }

    /// Buffers all output until [`end_screen`](Self::end_screen) is called.
    pub(crate) fn begin_screen(&self) {
        *screen() = Some(String::new());
    }

    /// Discards the buffered output, so that the terminal stays unchanged.
    pub(crate) fn drop_screen(&self) {
        screen().take();
    }

    /// Writes the buffered output. On a terminal, it replaces the previous screen.
    pub(crate) fn end_screen(&self) -> Result<(), CommandFailure> {
        let kept = screen().take().unwrap_or_default();
        if io::stdout().is_terminal() {
            // Overwrite each line and then clear the lines below, so that the screen does not flicker.
            let lines: String = kept.lines().map(|line| format!("{line}\u{1b}[K\n")).collect();
            to_stdout(&format!("\u{1b}[H{lines}\u{1b}[J"))
        } else {
            to_stdout(&kept)
        }
    }

    /// Returns whether a mistake in the command line is printed in color. The options are not known yet, so only the terminal decides.
    pub(crate) fn of_mistakes() -> bool {
        ColorChoice::Auto.on(io::stderr().is_terminal())
    }

    /// Writes data.
    pub(crate) fn text(&self, text: &str) -> Result<(), CommandFailure> {
        let text = safe(text, self.color);
        if let Some(kept) = screen().as_mut() {
            kept.push_str(&text);
            return Ok(());
        }
        to_stdout(&text)
    }

    /// Returns whether stdout still has a reader, as far as this is known. A command without an end stops when its reader is gone.
    pub(crate) fn is_read(&self) -> bool {
        !UNREAD.load(Ordering::Relaxed)
    }

    /// Writes data as a line.
    pub(crate) fn line(&self, text: &str) -> Result<(), CommandFailure> {
        self.text(&format!("{text}\n"))
    }

    /// Writes a JSON document over several lines.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), CommandFailure> {
        self.line(&clean_json(&serde_json::to_string_pretty(value).map_err(unserialised)?))
    }

    /// Writes a JSON document on one line.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> Result<(), CommandFailure> {
        self.line(&clean_json(&serde_json::to_string(value).map_err(unserialised)?))
    }

    /// Writes one item: as JSON, as its name, or as text for people.
    pub(crate) fn one<T: Serialize>(
        &self,
        value: &T,
        id: impl FnOnce(&T) -> String,
        people: impl FnOnce(&T) -> String,
    ) -> Result<(), CommandFailure> {
        match self.format {
            OutputFormat::Json => self.json(value),
            OutputFormat::Jsonl => self.json_line(value),
            OutputFormat::Ids => self.line(&id(value)),
            OutputFormat::Table => self.text(&people(value)),
        }
    }

    /// Returns whether the command prints each item at once, not all of them at its end.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.format, OutputFormat::Jsonl | OutputFormat::Ids)
    }

    /// Writes several items of the same kind.
    pub(crate) fn all<T: Serialize>(
        &self,
        values: &[T],
        id: impl Fn(&T) -> String,
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<(), CommandFailure> {
        match self.format {
            OutputFormat::Json => self.json(&values),
            OutputFormat::Jsonl => values.iter().try_for_each(|value| self.json_line(value)),
            OutputFormat::Ids => values.iter().try_for_each(|value| self.line(&id(value))),
            OutputFormat::Table if values.is_empty() => Ok(()),
            OutputFormat::Table => self.text(&table(values).render(self.color, self.room)),
        }
    }

    /// Shows the progress of a long operation on a terminal. Set its text with `set_message`. Without a terminal, nothing is shown.
    pub(crate) fn progress(&self) -> ProgressBar {
        let target = if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        // If the style cannot be used, the progress is a plain line.
        if let Ok(style) = ProgressStyle::with_template(" {spinner} {elapsed}  {msg}") {
            bar.set_style(style);
        }
        bar
    }

    /// Writes a note for people, unless `--quiet` is set.
    pub(crate) fn note(&self, text: &str) {
        if self.quiet {
            return;
        }
        // A watched screen shows only its own content. With other formats, programs read only data.
        let mut kept = screen();
        if let Some(kept) = kept.as_mut() {
            if self.format == OutputFormat::Table {
                kept.push_str(&safe(&format!("{text}\n"), self.color));
            }
        } else {
            to_stderr(&format!("{text}\n"), self.color_notes);
        }
    }

    /// Writes why the command failed, and the command that the user should type next.
    pub(crate) fn failure(&self, failure: &CommandFailure, global: &GlobalArgs) {
        let next = completed(failure.next(), global);
        if matches!(self.format, OutputFormat::Json | OutputFormat::Jsonl) {
            let error = serde_json::json!({ "error": {
                "kind": failure.code(),
                "exit": failure.exit().code(),
                "message": failure.message(),
                "details": failure.details(),
                "next": next,
            }});
            return to_stderr(&clean_json(&format!("{error}\n")), false);
        }
        let bold = |color: AnsiColor| Style::new().bold().fg_color(Some(color.into()));
        // A run that waits for an answer is not an error.
        let mut text = match failure.exit() {
            ExitReason::Waiting => paint("waiting", bold(AnsiColor::Yellow), self.color_notes),
            _ => paint("error", bold(AnsiColor::Red), self.color_notes),
        };
        text.push_str(": ");
        text.push_str(&clean_lines(failure.message()));
        for line in failure.details() {
            text.push_str("\n  ");
            text.push_str(&clean_lines(line));
        }
        let label = paint("next", bold(AnsiColor::Cyan), self.color_notes);
        to_stderr(&format!("{text}\n{label}: {next}\n"), self.color_notes);
    }
}

/// Adds the store and the tenant to a command that the user should type, if the current command line has them.
pub(crate) fn completed(next: &str, global: &GlobalArgs) -> String {
    let mut next = next.to_owned();
    if !next.starts_with("ferrata ") {
        return next;
    }
    let named = std::env::var("FERRATA_STORE").ok();
    if global.store != named.as_deref().unwrap_or(store::DEFAULT) && !next.contains("--store") {
        next.push_str(" --store ");
        next.push_str(&quoted(&store::redact_url(&global.store)));
    }
    if let Some(tenant) = &global.tenant
        && std::env::var("FERRATA_TENANT").ok().as_deref() != Some(tenant.as_str())
    {
        next.push_str(" --tenant ");
        next.push_str(tenant.as_str());
    }
    next
}

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Writes a message for people to stderr.
pub(crate) fn to_stderr(text: &str, color: bool) {
    let mut stderr = io::stderr().lock();
    // If stderr has no reader, there is no place left to report the error.
    let _ = stderr.write_all(safe(text, color).as_bytes()).and_then(|()| stderr.flush());
}

/// Whether the reader of stdout is gone, for example in `ferrata ls | head`.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Writes data to stdout. If the reader is gone, this is not a failure, and the exit code stays the same.
fn to_stdout(text: &str) -> Result<(), CommandFailure> {
    if UNREAD.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            UNREAD.store(true, Ordering::Relaxed);
            Ok(())
        }
        written => written.map_err(|error| CommandFailure::internal("cannot write the output", &error)),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn unserialised(error: serde_json::Error) -> CommandFailure {
    CommandFailure::internal("cannot encode the output as JSON", &error)
}
