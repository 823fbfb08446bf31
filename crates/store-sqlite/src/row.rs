//! Converts rows to headers and records, and back. Headers are stored as readable JSON, each with a checksum.

use bytes::Bytes;
use ferrata_store::codec::{Field, JsonHeader, JsonLayout, Value};
use ferrata_store::{
    Error, ErrorKind, FORMAT, Record, RecordHeader, Result, RunFacts, RunId, RunKey, Seq, TenantId, refusal,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row as _, Sqlite, Type};

use crate::error::{SqliteCallEffect, classify_error};

/// Returns the header columns of the table of records with this name. With the body, they make a record.
pub(crate) fn header_columns(table: &str) -> String {
    format!("{table}.seq, {table}.base, {table}.header, {table}.sum")
}

/// The number of [`header_columns`].
pub(crate) const HEADER_LEN: usize = 4;

/// The fields stored as columns instead of JSON: the number, and whether the record is a base.
enum HeaderColumns {}

impl JsonLayout for HeaderColumns {
    const SHORT_IDS: bool = false;

    fn key(field: Field) -> Option<&'static str> {
        (!matches!(field, Field::Seq | Field::Base)).then_some(field.name())
    }
}

fn assumed(seq: Seq, base: bool) -> impl Fn(Field) -> Option<Value> {
    move |field| match field {
        Field::Seq => Some(Value::Number(seq.get())),
        Field::Base => Some(Value::Flag(base)),
        _ => None,
    }
}

/// Returns the number of a record as the signed integer that the column stores. No log has more records than fit.
pub(crate) fn number(seq: Seq) -> i64 {
    i64::try_from(seq.get()).unwrap_or(i64::MAX)
}

fn seq(number: i64) -> Result<Seq> {
    u64::try_from(number).map(Seq::new).map_err(|_| corrupt("a record's number is below zero"))
}

/// Returns the header of a run's record as JSON, and its checksum.
pub(crate) fn header_text(run: &RunKey, header: &RecordHeader) -> Result<(String, i64)> {
    let said = JsonHeader::<HeaderColumns>::of(header, assumed(header.seq, header.base));
    let text = serde_json::to_string(&said).map_err(|error| {
        Error::new(ErrorKind::Invalid, "cannot write the header as JSON").with_source(error)
    })?;
    let sum = header_sum(run, header.seq, header.base, &text);
    Ok((text, sum))
}

/// Returns the facts of a run as JSON.
pub(crate) fn facts_text(facts: &RunFacts) -> Result<String> {
    serde_json::to_string(facts).map_err(|error| {
        Error::new(ErrorKind::Invalid, "cannot write the facts of the run as JSON").with_source(error)
    })
}

/// Returns the checksum of a header: the CRC-32C of `tenant/run`, a space, `seq`, a space, `base`, a space and the text of `header`. It includes the
/// run, so that no record can be read as another run's record.
fn header_sum(run: &RunKey, seq: Seq, base: bool, text: &str) -> i64 {
    crc32c::crc32c(format!("{run} {seq} {} {text}", u8::from(base)).as_bytes()).into()
}

/// Returns the checksum of a run's row: the CRC-32C of `tenant/run`, a space, `first_seq`, a space and the text of `facts`.
pub(crate) fn run_sum(run: &RunKey, first: Seq, facts: &str) -> i64 {
    crc32c::crc32c(format!("{run} {first} {facts}").as_bytes()).into()
}

pub(crate) fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what}; restore the run from a backup, or purge it"))
}

/// Reads a column.
pub(crate) fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(row: &'r SqliteRow, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| classify_error(&error, SqliteCallEffect::Read).into_error("store.read"))
}

/// Reads the number of a record.
pub(crate) fn seq_at(row: &SqliteRow, at: usize) -> Result<Seq> {
    seq(get(row, at)?)
}

/// Reads the name of a run from two columns.
pub(crate) fn key(row: &SqliteRow, at: usize) -> Result<RunKey> {
    let named = |error| corrupt("the id of the run is invalid").with_source(error);
    let (tenant, run) = (get::<&str>(row, at)?, get::<&str>(row, at + 1)?);
    Ok(RunKey::new(TenantId::new(tenant).map_err(named)?, RunId::new(run).map_err(named)?))
}

/// Reads the header of a record that must exist. `seq` is the number to report if it does not: the record's own, or that of a record that must
/// exist together with it.
pub(crate) fn header_at(row: &SqliteRow, at: usize, run: &RunKey, seq: Seq) -> Result<RecordHeader> {
    match get::<Option<i64>>(row, at)? {
        Some(_) => header(row, at, run),
        None => Err(refusal::gone(run, seq)),
    }
}

/// Reads a header from the [`header_columns`], which begin at column `at`. An error names the run and the record.
pub(crate) fn header(row: &SqliteRow, at: usize, run: &RunKey) -> Result<RecordHeader> {
    let seq = seq_at(row, at).map_err(|error| error.with_run(run))?;
    let read = || {
        let (base, text) = (get::<bool>(row, at + 1)?, get::<&str>(row, at + 2)?);
        if header_sum(run, seq, base, text) != get::<i64>(row, at + 3)? {
            return Err(corrupt("the header does not match its checksum"));
        }
        // Check the version first: a newer format may have fields that this version does not know.
        let said: serde_json::Result<JsonHeader<HeaderColumns>> = serde_json::from_str(text);
        let format = match &said {
            Ok(said) => said.get(Field::Format).cloned(),
            Err(_) => serde_json::from_str::<serde_json::Value>(text)
                .ok()
                .and_then(|said| said.get(Field::Format.name())?.as_u64().map(Value::Number)),
        };
        if let Some(Value::Number(format)) = format
            && format > u64::from(FORMAT)
        {
            let what = format!("the record has format {format}, and this version reads up to {FORMAT}");
            return Err(Error::new(ErrorKind::Unsupported, format!("{what}; upgrade this process")));
        }
        let said = said.map_err(|error| corrupt("the header is not valid").with_source(error))?;
        let wrong = |field: Field| corrupt(&format!("the field `{}` is invalid", field.name()));
        said.header(assumed(seq, base)).map_err(wrong)
    };
    read().map_err(|error| error.with_run(run).with_seq(seq))
}

/// Reads a record from the [`header_columns`] and the body after them, and checks it.
pub(crate) fn record(row: &SqliteRow, at: usize, run: &RunKey) -> Result<Record> {
    let header = header(row, at, run)?;
    let body =
        get::<&[u8]>(row, at + HEADER_LEN).map_err(|error| error.with_run(run).with_seq(header.seq))?;
    let record = Record { header, body: Bytes::copy_from_slice(body) };
    record.verify(run)?;
    Ok(record)
}
