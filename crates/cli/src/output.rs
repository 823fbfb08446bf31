//! Where things go: data to stdout, everything else to stderr.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::store;
use crate::table::{Table, clean_json, clean_lines, paint, safe};
use crate::time::TimeFormat;

/// In which form data is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON object a line, each as soon as it is known.
    Jsonl,
    /// Only what a thing is called, one a line.
    Ids,
}

/// When there is colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    fn on(self, terminal: bool) -> bool {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match self {
            Self::Auto => terminal && !unwanted,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// What is kept of the one stdout while it is watched.
fn screen() -> MutexGuard<'static, Option<String>> {
    static SCREEN: Mutex<Option<String>> = Mutex::new(None);
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how many columns a line has on stdout: as many as `COLUMNS` says, or those of the terminal.
pub(crate) fn room() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let seen = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    said.or_else(seen).filter(|&columns| columns > 0)
}

/// Where data and notes go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// In which form data is written.
    pub(crate) format: Format,
    /// How times are written for people.
    pub(crate) time: TimeFormat,
    /// Whether data is coloured.
    pub(crate) color: bool,
    /// How many columns a line of data has; none where it goes to no terminal.
    pub(crate) room: Option<usize>,
    /// Whether notes are coloured.
    pub(crate) color_notes: bool,
    quiet: bool,
}

impl Output {
    /// Makes the output that the options ask for.
    pub(crate) fn new(global: &Global) -> Self {
        Self {
            format: global.output,
            time: global.time,
            color: global.color.on(io::stdout().is_terminal()),
            room: room(),
            color_notes: global.color.on(io::stderr().is_terminal()),
            quiet: global.quiet,
        }
    }

    /// Keeps what is written from now on, until [`end_screen`](Self::end_screen).
    pub(crate) fn begin_screen(&self) {
        *screen() = Some(String::new());
    }

    /// Forgets what was kept: what stands on the terminal stays.
    pub(crate) fn drop_screen(&self) {
        screen().take();
    }

    /// Writes what was kept: on a terminal in the place of what was there.
    pub(crate) fn end_screen(&self) -> Result<(), Failure> {
        let kept = screen().take().unwrap_or_default();
        if io::stdout().is_terminal() {
            // Each line is overwritten, so that nothing flickers, and what is below is cleared.
            let lines: String = kept.lines().map(|line| format!("{line}\u{1b}[K\n")).collect();
            to_stdout(&format!("\u{1b}[H{lines}\u{1b}[J"))
        } else {
            to_stdout(&kept)
        }
    }

    /// Tells whether a mistake on the command line is coloured: it is not known then what the options say.
    pub(crate) fn of_mistakes() -> bool {
        Color::Auto.on(io::stderr().is_terminal())
    }

    /// Writes data.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        let text = safe(text, self.color);
        if let Some(kept) = screen().as_mut() {
            kept.push_str(&text);
            return Ok(());
        }
        to_stdout(&text)
    }

    /// Tells whether stdout has a reader, as far as it is known: a verb without an end of its own ends with its reader.
    pub(crate) fn is_read(&self) -> bool {
        !UNREAD.load(Ordering::Relaxed)
    }

    /// Writes data as a line.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        self.text(&format!("{text}\n"))
    }

    /// Writes a JSON document over several lines.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(&clean_json(&serde_json::to_string_pretty(value).map_err(unserialised)?))
    }

    /// Writes a JSON document on one line.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(&clean_json(&serde_json::to_string(value).map_err(unserialised)?))
    }

    /// Writes one thing: as JSON if that is asked for, by its name, or as people read it.
    pub(crate) fn one<T: Serialize>(
        &self,
        value: &T,
        id: impl FnOnce(&T) -> String,
        people: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.json(value),
            Format::Jsonl => self.json_line(value),
            Format::Ids => self.line(&id(value)),
            Format::Table => self.text(&people(value)),
        }
    }

    /// Whether each of several things is written as soon as it is known.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.format, Format::Jsonl | Format::Ids)
    }

    /// Writes several things of a kind.
    pub(crate) fn all<T: Serialize>(
        &self,
        values: &[T],
        id: impl Fn(&T) -> String,
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.json(&values),
            Format::Jsonl => values.iter().try_for_each(|value| self.json_line(value)),
            Format::Ids => values.iter().try_for_each(|value| self.line(&id(value))),
            Format::Table if values.is_empty() => Ok(()),
            Format::Table => self.text(&table(values).render(self.color, self.room)),
        }
    }

    /// Shows on a terminal how far something long has come; the text is set with `set_message`. Elsewhere it shows nothing.
    pub(crate) fn progress(&self) -> ProgressBar {
        let target = if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        // Without the style it is a plainer line.
        if let Ok(style) = ProgressStyle::with_template(" {spinner} {elapsed}  {msg}") {
            bar.set_style(style);
        }
        bar
    }

    /// Tells people something that is no data, unless they want quiet.
    pub(crate) fn note(&self, text: &str) {
        if self.quiet {
            return;
        }
        // What is watched is looked at as a whole, and programs want the data alone.
        let mut kept = screen();
        if let Some(kept) = kept.as_mut() {
            if self.format == Format::Table {
                kept.push_str(&safe(&format!("{text}\n"), self.color));
            }
        } else {
            to_stderr(&format!("{text}\n"), self.color_notes);
        }
    }

    /// Says why the command came to nothing, and what to type next.
    pub(crate) fn failure(&self, failure: &Failure, global: &Global) {
        let next = completed(failure.next(), global);
        if matches!(self.format, Format::Json | Format::Jsonl) {
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
        // A question is no fault of anything.
        let mut text = match failure.exit() {
            Exit::Waiting => paint("waiting", bold(AnsiColor::Yellow), self.color_notes),
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

/// Adds the store and the tenant to a command to type, if they were given on the command line of this one.
pub(crate) fn completed(next: &str, global: &Global) -> String {
    let mut next = next.to_owned();
    if !next.starts_with("ferrata ") {
        return next;
    }
    let named = std::env::var("FERRATA_STORE").ok();
    if global.store != named.as_deref().unwrap_or(store::DEFAULT) && !next.contains("--store") {
        next.push_str(" --store ");
        next.push_str(&quoted(&store::shown(&global.store)));
    }
    if let Some(tenant) = &global.tenant
        && std::env::var("FERRATA_TENANT").ok().as_deref() != Some(tenant.as_str())
    {
        next.push_str(" --tenant ");
        next.push_str(tenant.as_str());
    }
    next
}

/// Returns a word as a shell reads it as one.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Writes to stderr what people are to be told.
pub(crate) fn to_stderr(text: &str, color: bool) {
    let mut stderr = io::stderr().lock();
    // When stderr has no reader, there is no one left to tell.
    let _ = stderr.write_all(safe(text, color).as_bytes()).and_then(|()| stderr.flush());
}

/// Whether the reader of stdout has gone, as in `ferrata ls | head`.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Writes data to stdout. A reader that has gone is no failure, and changes nothing of how the command ends.
fn to_stdout(text: &str) -> Result<(), Failure> {
    if UNREAD.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            UNREAD.store(true, Ordering::Relaxed);
            Ok(())
        }
        written => written.map_err(|error| Failure::internal("the output cannot be written", &error)),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn unserialised(error: serde_json::Error) -> Failure {
    Failure::internal("the output is no JSON", &error)
}
