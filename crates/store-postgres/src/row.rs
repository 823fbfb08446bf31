//! Converts rows to headers, records and heads. Each has a list of columns, which the code reads in order.

use bytes::Bytes;
use ferrata_store::codec::{Field, Shape, Value};
use ferrata_store::{
    Error, ErrorKind, FORMAT, Fingerprint, HeadRef, Labels, NodeName, Parent, Record, RecordHeader, RecordId,
    RecordKind, Result, RunFacts, RunHead, RunId, RunKey, RunStatus, Seq, TenantId, Timestamp, WorkflowName,
};
use sqlx::postgres::PgRow;
use sqlx::{Column as _, Decode, Postgres, Row as _, Type};
use uuid::Uuid;

use crate::error::{PostgresCallEffect, fault};
use crate::stored_run;

/// The columns of a run's facts, in the table `r`.
pub(crate) const FACTS: &str = "r.workflow, r.version, r.graph, r.input, r.created, r.parent_tenant, r.parent_run, \
     r.parent_seq, r.parent_id, r.user_name, r.labels::text";

/// The indexes of the name and of the time of creation among the columns of a head.
pub(crate) const NAME: usize = 1;
pub(crate) const CREATED: usize = 17;

/// Returns the columns of a head, from its record `h` and the run's row `r`, with a lookup of the owner's heartbeat. The first column tells
/// whether they agree. The name comes from `r`, so that a row without a record has a name, too.
pub(crate) fn head_columns(is_sound: &str) -> String {
    format!(
        "{is_sound}, r.tenant, r.run, h.seq, h.id, r.first_seq, h.format, h.kind, h.status, h.epoch, h.owner, h.wake_at, h.at, \
         {FACTS}, h.owner IS NOT NULL \
         AND coalesce((SELECT b.until > {{now}} FROM {{heartbeats}} b WHERE b.executor = h.owner), false)"
    )
}

/// The columns of a header in the table `c`, and their fields. The number comes first, so that an error can name the record; the other fields have
/// the order of [`Field::ALL`]. The length comes from the metadata of the body, without reading the body.
const COLUMNS: [(Field, &str); Field::ALL.len()] = [
    (Field::Seq, "c.seq"),
    (Field::Format, "c.format"),
    (Field::Id, "c.id"),
    (Field::Prev, "c.prev"),
    (Field::Kind, "c.kind"),
    (Field::Status, "c.status"),
    (Field::Node, "c.node"),
    (Field::Visit, "c.visit"),
    (Field::Epoch, "c.epoch"),
    (Field::Owner, "c.owner"),
    (Field::WakeAt, "c.wake_at"),
    (Field::At, "c.at"),
    (Field::Base, "c.base"),
    (Field::Len, "octet_length(c.body)"),
    (Field::Crc, "c.crc"),
];

/// Returns the columns of a header in the table `c`.
pub(crate) fn header_columns() -> String {
    COLUMNS.map(|(_, column)| column).join(", ")
}

/// The fields of the last header in the columns of a head, after the number of the first record.
const OF_HEAD: [Field; 7] =
    [Field::Format, Field::Kind, Field::Status, Field::Epoch, Field::Owner, Field::WakeAt, Field::At];

/// Reads the columns of a row from an index on, in order.
pub(crate) struct Columns<'r> {
    row: &'r PgRow,
    at: usize,
    is_known: bool,
}

impl<'r> Columns<'r> {
    pub(crate) fn new(row: &'r PgRow, at: usize) -> Self {
        Self { row, at, is_known: false }
    }

    /// Reads a later row of the same answer, from column `at` on. All rows of an answer have the same types, so the types are not checked again.
    pub(crate) fn of_next(row: &'r PgRow, at: usize) -> Self {
        Self { row, at, is_known: true }
    }

    pub(crate) fn next<T: Decode<'r, Postgres> + Type<Postgres>>(&mut self) -> Result<T> {
        self.read().map_err(|error| fault(&error, PostgresCallEffect::Read).into_error("store.read"))
    }

    fn read<T: Decode<'r, Postgres> + Type<Postgres>>(&mut self) -> sqlx::Result<T> {
        let at = self.at;
        self.at += 1;
        if !self.is_known {
            // Check every column, even if it is null in this row: it may have a value in the next row.
            let found = self.row.try_column(at)?.type_info();
            if !T::compatible(found) {
                let source = format!("a column has type {found}, and {} was expected", T::type_info()).into();
                return Err(sqlx::Error::ColumnDecode { index: at.to_string(), source });
            }
        }
        self.row.try_get_unchecked(at)
    }
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what}; restore the run from a backup"))
}

fn newer(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what}; upgrade this process"))
}

pub(crate) fn seq(number: i64) -> Result<Seq> {
    u64::try_from(number).map(Seq::new).map_err(|_| corrupt("a record's number is below zero"))
}

fn format(number: i16) -> Result<u16> {
    let format = u16::try_from(number).map_err(|_| corrupt("the format version is below zero"))?;
    if format > FORMAT {
        return Err(newer(&format!("the record has format {format}, and this version reads up to {FORMAT}")));
    }
    Ok(format)
}

/// Reads the key of a run.
pub(crate) fn key(columns: &mut Columns<'_>) -> Result<RunKey> {
    let named = |error| corrupt("the id of the run is invalid").with_source(error);
    let tenant = TenantId::new(columns.next::<&str>()?).map_err(named)?;
    let run = RunId::new(columns.next::<&str>()?).map_err(named)?;
    Ok(RunKey::new(tenant, run))
}

/// Reads a head from the [`head_columns`]. An error names the run.
pub(crate) fn head(row: &PgRow) -> Result<RunHead> {
    let run = key(&mut Columns::new(row, NAME))?;
    let read = || {
        stored_run::check(&mut Columns::new(row, 0))?;
        head_of(run.clone(), &mut Columns::new(row, NAME + 2))
    };
    read().map_err(|error| error.with_run(&run))
}

fn head_of(run: RunKey, columns: &mut Columns<'_>) -> Result<RunHead> {
    let mut last = HeaderFields::default();
    last.read(&[Field::Seq, Field::Id], columns)?;
    let first = seq(columns.next()?)?;
    last.read(&OF_HEAD, columns)?;
    // The columns of a head have no such field. Use the value of a record that is no base.
    last.0[Field::Base as usize] = Some(Value::Flag(false));
    last.0[Field::Len as usize] = Some(Value::Number(0));
    last.0[Field::Crc as usize] = Some(Value::Number(0));
    let (last, facts) = (last.header()?, facts(columns)?);
    Ok(RunHead::after(run, first, &last, columns.next()?, facts))
}

/// Reads the columns [`FACTS`].
pub(crate) fn facts(columns: &mut Columns<'_>) -> Result<RunFacts> {
    let workflow = WorkflowName::new(columns.next::<&str>()?)
        .map_err(|error| corrupt("the workflow's name is invalid").with_source(error))?;
    let version = columns.next::<String>()?;
    let (graph, input) = (fingerprint(columns.next()?)?, fingerprint(columns.next()?)?);
    let created = Timestamp::from_unix_ms(columns.next()?);
    let odd = |error| corrupt("the facts of the run are invalid").with_source(error);
    let mut facts = RunFacts::new(workflow, version, graph, input, created).map_err(odd)?;
    facts.parent = parent(columns)?;
    facts.user = columns.next()?;
    if let Some(labels) = columns.next::<Option<&str>>()? {
        facts.labels = serde_json::from_str::<Labels>(labels)
            .map_err(|error| corrupt("the run's labels are not valid").with_source(error))?;
    }
    Ok(facts)
}

fn parent(columns: &mut Columns<'_>) -> Result<Option<Parent>> {
    let (tenant, run) = (columns.next::<Option<&str>>()?, columns.next::<Option<&str>>()?);
    let (at, id) = (columns.next::<Option<i64>>()?, columns.next::<Option<Uuid>>()?);
    let named = |error| corrupt("the parent's id is invalid").with_source(error);
    match (tenant, run, at, id) {
        (None, None, None, None) => Ok(None),
        (Some(tenant), Some(run), Some(at), Some(id)) => Ok(Some(Parent {
            run: RunKey::new(TenantId::new(tenant).map_err(named)?, RunId::new(run).map_err(named)?),
            at: HeadRef { seq: seq(at)?, id: RecordId::from_uuid(id) },
        })),
        _ => Err(corrupt("the parent's id and record are incomplete")),
    }
}

fn fingerprint(id: Uuid) -> Result<Fingerprint> {
    id.simple().to_string().parse()
}

/// Converts a fingerprint to a `uuid` value, which has the same 16 bytes.
pub(crate) fn fingerprint_to_uuid(fingerprint: Fingerprint) -> Result<Uuid> {
    Uuid::parse_str(&fingerprint.to_string()).map_err(|error| {
        Error::new(ErrorKind::Invalid, "the fingerprint does not have 128 bits").with_source(error)
    })
}

/// The fields of a header, in any order of reading.
#[derive(Default)]
struct HeaderFields([Option<Value>; Field::ALL.len()]);

impl HeaderFields {
    fn read<'f>(
        &mut self,
        fields: impl IntoIterator<Item = &'f Field>,
        columns: &mut Columns<'_>,
    ) -> Result<()> {
        for field in fields {
            self.0[*field as usize] = value(*field, columns)?;
        }
        Ok(())
    }

    fn header(mut self) -> Result<RecordHeader> {
        RecordHeader::from_fields(|field| Ok(self.0[field as usize].take()), wrong)
    }
}

/// Reads the column of a field.
fn value(field: Field, columns: &mut Columns<'_>) -> Result<Option<Value>> {
    Ok(match field.shape() {
        Shape::Number if field == Field::Seq => Some(Value::Number(seq(columns.next()?)?.get())),
        Shape::Number if field == Field::Format => Some(Value::Number(format(columns.next()?)?.into())),
        Shape::Number => {
            let number = columns.next::<Option<i32>>()?;
            if field == Field::Len && number.is_some_and(|length| length < 0) {
                return Err(corrupt("the body's length is below zero"));
            }
            number.map(|number| Value::Number(number.cast_unsigned().into()))
        }
        Shape::Time => columns.next::<Option<i64>>()?.map(|ms| Value::Time(Timestamp::from_unix_ms(ms))),
        Shape::Id => columns.next::<Option<Uuid>>()?.map(Value::Id),
        Shape::Kind => {
            let kind = RecordKind::from_letter(letter(columns)?);
            Some(Value::Kind(kind.ok_or_else(|| newer("the record's kind is unknown"))?))
        }
        Shape::Status => {
            let status = RunStatus::from_letter(letter(columns)?);
            Some(Value::Status(status.ok_or_else(|| newer("the record's status is unknown"))?))
        }
        Shape::Name => {
            let name = columns.next::<Option<&str>>()?.map(NodeName::new).transpose();
            name.map_err(|error| corrupt("the node's name is invalid").with_source(error))?.map(Value::Name)
        }
        Shape::Flag => columns.next::<Option<bool>>()?.map(Value::Flag),
        _ => return Err(newer(&format!("the store has no column for `{}`", field.name()))),
    })
}

fn letter(columns: &mut Columns<'_>) -> Result<char> {
    Ok(char::from(columns.next::<i8>()?.cast_unsigned()))
}

/// Returns the letter of a kind or a status in the form of the column. All letters are ASCII.
pub(crate) fn code(letter: char) -> i8 {
    u8::try_from(letter).unwrap_or_default().cast_signed()
}

/// Reads a header from the [`header_columns`]. An error names the run and the record.
pub(crate) fn header(columns: &mut Columns<'_>, run: &RunKey) -> Result<RecordHeader> {
    let seq = columns.next().and_then(seq).map_err(|error| error.with_run(run))?;
    let read = |field| match field {
        Field::Seq => Ok(Some(Value::Number(seq.get()))),
        field => value(field, columns),
    };
    RecordHeader::from_fields(read, wrong).map_err(|error| error.with_run(run).with_seq(seq))
}

fn wrong(field: Field) -> Error {
    corrupt(&format!("the column of `{}` is invalid", field.name()))
}

/// Reads a record from the [`header_columns`] and the body after them, and checks it.
pub(crate) fn record(mut columns: Columns<'_>, run: &RunKey) -> Result<Record> {
    let header = header(&mut columns, run)?;
    let body = columns.next::<&[u8]>().map_err(|error| error.with_run(run))?;
    let record = Record { header, body: Bytes::copy_from_slice(body) };
    record.verify(run)?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_header_has_a_column() {
        let all = Field::ALL.into_iter().filter(|field| *field != Field::Seq);
        let in_order: Vec<Field> = [Field::Seq].into_iter().chain(all).collect();
        assert_eq!(COLUMNS.map(|(field, _)| field).as_slice(), in_order);
    }

    #[test]
    fn the_views_know_every_letter_by_its_name() {
        let script = include_str!("../migrations/0001_tables.sql");
        for status in RunStatus::ALL {
            let text = format!("WHEN '{}' THEN '{status}'", status.letter());
            assert_eq!(script.matches(&text).count(), 2, "{text}");
        }
        for kind in RecordKind::ALL {
            let text = format!("WHEN '{}' THEN '{kind}'", kind.letter());
            assert!(script.contains(&text), "{text}");
        }
    }
}
