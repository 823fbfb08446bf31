//! The text format of an exported run, for backup, transfer and replay tests.
//!
//! Each line is one JSON object and a newline. The first line has these fields, in this order:
//!
//! | Field | Content |
//! |---|---|
//! | `file` | `"ferrata run"` |
//! | `v` | the version of the file: 1 |
//! | `run` | `{"tenant":…,"run":…}`, the run's key |
//! | `facts` | the facts of the run |
//! | `records` | the number of lines that follow |
//!
//! Each further line is a record, in order:
//!
//! | Field | Content |
//! |---|---|
//! | `h` | the header, with the length and the CRC-32C of the body |
//! | `b` | the body: `h.len` and `h.crc` cover the bytes between `"b":` and the closing `}` of the line |
//! | `t` | instead of `b`: the body as JSON text, if it has a newline, is not JSON, or has a character that could control a terminal |
//!
//! Characters that could control a terminal are JSON escapes: controls (C0, C1, U+007F) and marks that reorder text (U+061C, U+200E, U+200F, U+2028 to
//! U+202E, U+2066 to U+2069).

use std::borrow::Cow;
use std::fmt::Write;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::engine::fold::missing;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey, Seq};
use crate::log_reader;
use crate::record::body::{RecordBody, RecordEvent, Signal, SignalKind};
use crate::record::{Record, RecordHeader, RunFacts, RunStatus, codec};
use crate::redact::{LogRedactor, RedactedNumbers};
use crate::store::{At, CheckpointStore, RunAppend, RunHead};
use crate::wording::count;

/// The format name in the first line.
const KIND: &str = "ferrata run";

/// The version of the file.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct ArchiveHeader {
    file: String,
    v: u32,
    run: RunKey,
    facts: RunFacts,
    records: u64,
}

#[derive(Serialize, Deserialize)]
struct ArchiveLine {
    h: RecordHeader,
    /// The body as JSON, if it has one line. This version of Ferrata writes only such bodies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<Box<RawValue>>,
    /// The body as text, if it has several lines or contains terminal control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<String>,
}

/// The number of attempts to export a run. Several may be needed if the run is purged and started again at the same time.
const ROUNDS: u32 = 32;

/// Exports all stored records of a run, or only the records before `before`. With `redacted`, the text contains no values of the application.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if there is no such run, and the errors of the store.
pub async fn export(
    store: &dyn CheckpointStore,
    run: &RunKey,
    before: Option<Seq>,
    redacted: Option<RedactedNumbers>,
) -> Result<String> {
    let mut head = store.head(run).await?.ok_or_else(|| missing(run))?;
    for _ in 0..ROUNDS {
        let text = export_as_of(store, run, &head, before, redacted).await;
        let now = store.head(run).await?.ok_or_else(|| missing(run))?;
        if now.facts == head.facts {
            return text;
        }
        // The run was purged and started again: the lines so far mix two generations.
        head = now;
    }
    let message = "other callers keep purging and starting the run; export it when they are done";
    Err(Error::new(ErrorKind::Unavailable, message).with_run(run))
}

async fn export_as_of(
    store: &dyn CheckpointStore,
    run: &RunKey,
    head: &RunHead,
    before: Option<Seq>,
    redacted: Option<RedactedNumbers>,
) -> Result<String> {
    let mut redactor = redacted.map(LogRedactor::new);
    let (key, facts) = match &mut redactor {
        Some(redactor) => (redactor.run_key(run)?, redactor.facts(&head.facts)?),
        None => (run.clone(), head.facts.clone()),
    };
    let to = match before {
        None => head.seq,
        Some(before) => {
            let last = before.get().checked_sub(1).ok_or_else(|| nothing_before(run, before))?;
            head.seq.min(Seq::new(last))
        }
    };
    let broken = |source: serde_json::Error| {
        Error::new(ErrorKind::Corrupt, "cannot encode a record").with_run(run).with_source(source)
    };
    let mut lines = String::new();
    let (mut records, mut last) = (0, None);
    for end in log_reader::segment_ends(store, run, At::Seq(to)).await? {
        for record in log_reader::segment_records(store, run, end).await? {
            if !log_reader::is_continuous(last, &record.header) {
                // The run was pruned during the export. Restart at the first stored record, since a file with a gap is not a run.
                (lines, records) = (String::new(), 0);
            }
            last = Some(record.header.head());
            record.verify(run)?;
            let record = match &mut redactor {
                Some(redactor) => redactor.record(run, &record)?,
                None => record,
            };
            let text = codec::text(run, &record)?;
            let plain = !text.contains(is_control_char);
            let raw = if plain { RawValue::from_string(text.to_owned()).ok() } else { None };
            let escaped = raw.is_none().then(|| text.to_owned());
            let line = ArchiveLine { h: record.header, t: escaped, b: raw };
            // Writing to a string never fails.
            let _ = writeln!(lines, "{}", escape_controls(&serde_json::to_string(&line).map_err(broken)?));
            records += 1;
        }
    }
    if let Some(before) = before.filter(|_| records == 0) {
        return Err(nothing_before(run, before));
    }
    let title = ArchiveHeader { file: KIND.into(), v: VERSION, run: key, facts, records };
    Ok(format!("{}\n{lines}", escape_controls(&serde_json::to_string(&title).map_err(broken)?)))
}

fn nothing_before(run: &RunKey, before: Seq) -> Error {
    Error::new(ErrorKind::NotFound, format!("cannot find a record before {before}; use a later position"))
        .with_run(run)
}

/// Returns whether a character could control a terminal: a control character, or a mark that changes the text direction.
fn is_control_char(c: char) -> bool {
    let reorders = |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders(c)
}

/// Escapes control characters in one line of JSON, where only strings can contain them.
fn escape_controls(json: &str) -> Cow<'_, str> {
    if !json.contains(is_control_char) {
        return Cow::Borrowed(json);
    }
    let escaped =
        |c: char| if is_control_char(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(json.chars().map(escaped).collect())
}

/// Parses an exported run.
fn read(text: &str) -> Result<(ArchiveHeader, Vec<Record>)> {
    let refuse = |line: usize, what: &str| {
        Error::new(ErrorKind::Invalid, format!("line {line} of the file {what}; export the run again"))
    };
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let (_, first) = lines.next().ok_or_else(|| refuse(1, "is missing"))?;
    let title: ArchiveHeader = serde_json::from_str(first)
        .map_err(|source| refuse(1, "does not describe a run").with_source(source))?;
    if title.file != KIND {
        return Err(refuse(1, "is not the header of an exported run"));
    }
    if title.v > VERSION {
        let message = format!(
            "the file has version {}, and this program reads up to version {VERSION}; upgrade this program",
            title.v
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    title.facts.check().map_err(|error| {
        let what = format!("has start options that no start accepts: {}", error.message());
        refuse(1, &what).with_source(error)
    })?;
    let mut records = Vec::new();
    for (at, line) in lines {
        let line: ArchiveLine = serde_json::from_str(line)
            .map_err(|source| refuse(at, "cannot be read as a record").with_source(source))?;
        let body = match (line.b, line.t) {
            (Some(raw), None) => Bytes::from(raw.get().to_owned()),
            (None, Some(text)) => Bytes::from(text),
            _ => return Err(refuse(at, "has no body, or two")),
        };
        let record = Record { header: line.h, body };
        record.verify(&title.run)?;
        if record.header.epoch.next() == record.header.epoch {
            return Err(refuse(at, "has an epoch that is out of range"));
        }
        // The import renumbers records, which would hide a gap.
        if !log_reader::is_continuous(
            records.last().map(|before: &Record| before.header.head()),
            &record.header,
        ) {
            return Err(refuse(at, "does not follow the previous record"));
        }
        records.push(record);
    }
    if records.len() as u64 != title.records {
        let message =
            format!("announces {}, and is followed by {}", count(title.records, "record"), records.len());
        return Err(refuse(1, &message));
    }
    Ok((title, records))
}

/// Renumbers the pins of a record for an import.
fn renumber(run: &RunKey, record: &mut Record, shift: u64) -> Result<()> {
    let moved = |seq: Seq| Seq::new(seq.get().saturating_sub(shift));
    let RecordBody { mut event, mut base } = codec::decode(run, record)?;
    let place = |error: Error| error.with_run(run).with_seq(record.header.seq);
    let mut changed = false;
    if let RecordEvent::Signal(Signal { what: SignalKind::Pin { seq } | SignalKind::Unpin { seq }, .. }) =
        &mut event
    {
        *seq = moved(*seq);
        changed = true;
    }
    if let Some(base) = &mut base {
        let mut machine = Machine::restore(&base.machine, None).map_err(place)?;
        if machine.renumber_pins(moved) {
            base.machine = machine.snapshot()?;
            changed = true;
        }
    }
    if changed {
        *record = Record::seal(record.header.clone(), codec::encode(&event, base.as_ref())?)?;
    }
    Ok(())
}

/// An exported run in the form that an import stores.
#[derive(Debug)]
pub struct ImportedRun {
    /// The id of the copy.
    pub run: RunKey,
    /// The facts to store next to its log.
    pub facts: RunFacts,
    /// Its log.
    pub records: Vec<Record>,
    /// Whether the run has the id under which it was exported.
    pub is_same_id: bool,
}

/// Imports an exported run under its own key or another key. The imported run has no owner, because the former owner drives the original run and not
/// the copy. `prepare` may reject the run or add records. Returns the run with its last record.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`] if the text is not an exported run, the errors of `prepare`, and the errors of the store.
pub async fn import(
    store: &dyn CheckpointStore,
    text: &str,
    run: Option<RunKey>,
    prepare: impl FnOnce(&mut ImportedRun) -> Result<()>,
) -> Result<(RunKey, HeadRef)> {
    let (title, mut records) = read(text)?;
    let is_same_id = run.as_ref().is_none_or(|run| *run == title.run);
    let run = run.unwrap_or(title.run);
    // A pruned run starts with a later record. The imported run starts with record 0.
    let (mut prev, mut seq) = (None, Seq::new(0));
    let shift = records.first().map_or(0, |record| record.header.seq.get());
    for record in &mut records {
        if shift > 0 {
            renumber(&run, record, shift)?;
        }
        record.header.seq = seq;
        record.header.prev = prev;
        prev = Some(record.header.id);
        seq = seq.next();
    }
    if let Some(last) = records.last_mut()
        && !matches!(last.header.status, RunStatus::Completed | RunStatus::Cancelled)
    {
        last.header.owner = None;
    }
    let mut imported = ImportedRun { run, facts: title.facts, records, is_same_id };
    prepare(&mut imported).map_err(|error| error.with_run(&imported.run))?;
    let ImportedRun { run, facts, records, .. } = imported;
    let append = RunAppend { run: run.clone(), expected: None, records, facts: Some(facts) };
    let mut results = store.append(vec![append]).await;
    match results.pop() {
        Some(Ok(head)) => Ok((run, head)),
        Some(Err(error)) if error.kind() == ErrorKind::Conflict => {
            let message = "a run with this id already exists; purge it, or import under another id";
            Err(Error::new(ErrorKind::AlreadyExists, message).with_run(&run))
        }
        Some(Err(error)) => Err(error.with_run(&run)),
        None => {
            Err(Error::new(ErrorKind::Corrupt, "the store returned no result for the append").with_run(&run))
        }
    }
}
