//! Rows to headers, records and heads: one list of columns for each, read in its order.

use bytes::Bytes;
use ferrata_store::{
    Epoch, Error, ErrorKind, ExecutorId, FORMAT, Fingerprint, HeadRef, Labels, NodeName, Parent, Record,
    RecordHeader, RecordId, Result, RunFacts, RunHead, RunId, RunKey, Seq, TenantId, Timestamp, Visit,
    WorkflowName,
};
use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row as _, Type};
use uuid::Uuid;

use crate::codes;
use crate::error::{Call, fault};

/// The columns of what was said of a run, of the table `r`.
pub(crate) const FACTS: &str = "r.workflow, r.version, r.graph, r.input, r.created, r.parent_tenant, r.parent_run, \
     r.parent_seq, r.parent_id, r.user_name, r.labels::text";

/// The place of the time of creation among the columns of a head.
pub(crate) const CREATED: usize = 16;

/// Returns the columns of a head, of the table `r`; whether its owner lives is looked up for each row.
pub(crate) fn head_columns() -> String {
    format!(
        "r.tenant, r.run, r.seq, r.id, r.first_seq, r.format, r.kind, r.status, r.epoch, r.owner, r.wake_at, r.updated, \
         {FACTS}, coalesce((SELECT h.until > {{now}} FROM {{heartbeats}} h WHERE h.executor = r.owner), false)"
    )
}

/// The columns of a header, of the table `c`. The length comes from the place of the body; the body is not read for it.
pub(crate) const HEADER: &str = "c.seq, c.id, c.prev, c.format, c.kind, c.status, c.node, c.visit, c.epoch, c.owner, \
     c.wake_at, c.at, c.base, octet_length(c.body), c.crc";

/// How many columns a header has: a record's body is the one after them.
const HEADER_COLUMNS: usize = 15;

/// Reads the columns of a row from a place on, one after the other.
pub(crate) struct Columns<'r> {
    row: &'r PgRow,
    at: usize,
}

impl<'r> Columns<'r> {
    pub(crate) fn new(row: &'r PgRow, at: usize) -> Self {
        Self { row, at }
    }

    pub(crate) fn next<T: Decode<'r, Postgres> + Type<Postgres>>(&mut self) -> Result<T> {
        let value =
            self.row.try_get(self.at).map_err(|error| fault(&error, Call::Read).into_error("store.read"))?;
        self.at += 1;
        Ok(value)
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
        return Err(newer(&format!("the record has format {format}, this version reads up to {FORMAT}")));
    }
    Ok(format)
}

/// Reads the key of a run.
pub(crate) fn key(columns: &mut Columns<'_>) -> Result<RunKey> {
    let named = |error| corrupt("the name of a run is none").with_source(error);
    let tenant = TenantId::new(columns.next::<&str>()?).map_err(named)?;
    let run = RunId::new(columns.next::<&str>()?).map_err(named)?;
    Ok(RunKey::new(tenant, run))
}

/// Reads a head from the [`head_columns`]; an error names the run.
pub(crate) fn head(row: &PgRow) -> Result<RunHead> {
    let mut columns = Columns::new(row, 0);
    let run = key(&mut columns)?;
    head_of(run.clone(), &mut columns).map_err(|error| error.with_run(&run))
}

fn head_of(run: RunKey, columns: &mut Columns<'_>) -> Result<RunHead> {
    let (seq, id) = (seq(columns.next()?)?, RecordId::from_uuid(columns.next()?));
    let first = self::seq(columns.next()?)?;
    let format = format(columns.next()?)?;
    let kind =
        codes::kind(columns.next()?).ok_or_else(|| newer("the kind of the last record is not known"))?;
    let status = codes::status(columns.next()?).ok_or_else(|| newer("the run's status is not known"))?;
    let last = RecordHeader {
        format,
        seq,
        id,
        prev: None,
        kind,
        status,
        node: None,
        visit: None,
        epoch: Epoch::new(columns.next::<i32>()?.cast_unsigned()),
        owner: columns.next::<Option<Uuid>>()?.map(ExecutorId::from_uuid),
        wake_at: columns.next::<Option<i64>>()?.map(Timestamp::from_unix_ms),
        at: Timestamp::from_unix_ms(columns.next()?),
        base: false,
        body_len: 0,
        body_crc: 0,
    };
    let facts = facts(columns)?;
    Ok(RunHead::after(run, first, &last, columns.next()?, facts))
}

/// Reads the columns [`FACTS`].
pub(crate) fn facts(columns: &mut Columns<'_>) -> Result<RunFacts> {
    let workflow = WorkflowName::new(columns.next::<&str>()?)
        .map_err(|error| corrupt("the workflow's name is none").with_source(error))?;
    let version = columns.next::<String>()?;
    let (graph, input) = (fingerprint(columns.next()?)?, fingerprint(columns.next()?)?);
    let created = Timestamp::from_unix_ms(columns.next()?);
    let odd = |error| corrupt("what was said of the run at its start is not valid").with_source(error);
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
    let named = |error| corrupt("the parent's name is none").with_source(error);
    match (tenant, run, at, id) {
        (None, None, None, None) => Ok(None),
        (Some(tenant), Some(run), Some(at), Some(id)) => Ok(Some(Parent {
            run: RunKey::new(TenantId::new(tenant).map_err(named)?, RunId::new(run).map_err(named)?),
            at: HeadRef { seq: seq(at)?, id: RecordId::from_uuid(id) },
        })),
        _ => Err(corrupt("half of what is said of the parent is missing")),
    }
}

fn fingerprint(id: Uuid) -> Result<Fingerprint> {
    id.simple().to_string().parse()
}

/// Turns a fingerprint into the 16 bytes that a column of type `uuid` holds.
pub(crate) fn fingerprint_to_uuid(fingerprint: Fingerprint) -> Result<Uuid> {
    Uuid::parse_str(&fingerprint.to_string()).map_err(|error| {
        Error::new(ErrorKind::Invalid, "the fingerprint has not 128 bits").with_source(error)
    })
}

/// Reads a header from the columns [`HEADER`], which begin at `at`; an error names run and record.
pub(crate) fn header(row: &PgRow, at: usize, run: &RunKey) -> Result<RecordHeader> {
    let mut columns = Columns::new(row, at);
    let seq = seq(columns.next()?).map_err(|error| error.with_run(run))?;
    header_of(seq, &mut columns).map_err(|error| error.with_run(run).with_seq(seq))
}

fn header_of(seq: Seq, columns: &mut Columns<'_>) -> Result<RecordHeader> {
    Ok(RecordHeader {
        seq,
        id: RecordId::from_uuid(columns.next()?),
        prev: columns.next::<Option<Uuid>>()?.map(RecordId::from_uuid),
        format: format(columns.next()?)?,
        kind: codes::kind(columns.next()?).ok_or_else(|| newer("the record's kind is not known"))?,
        status: codes::status(columns.next()?).ok_or_else(|| newer("the record's status is not known"))?,
        node: columns
            .next::<Option<&str>>()?
            .map(NodeName::new)
            .transpose()
            .map_err(|error| corrupt("the node's name is none").with_source(error))?,
        visit: columns.next::<Option<i32>>()?.map(|visit| Visit::new(visit.cast_unsigned())),
        epoch: Epoch::new(columns.next::<i32>()?.cast_unsigned()),
        owner: columns.next::<Option<Uuid>>()?.map(ExecutorId::from_uuid),
        wake_at: columns.next::<Option<i64>>()?.map(Timestamp::from_unix_ms),
        at: Timestamp::from_unix_ms(columns.next()?),
        base: columns.next()?,
        body_len: u32::try_from(columns.next::<i32>()?)
            .map_err(|_| corrupt("the body's length is below zero"))?,
        body_crc: columns.next::<i32>()?.cast_unsigned(),
    })
}

/// Reads a record from the columns [`HEADER`] and its body, and checks it.
pub(crate) fn record(row: &PgRow, at: usize, run: &RunKey) -> Result<Record> {
    let header = header(row, at, run)?;
    let body = Columns::new(row, at + HEADER_COLUMNS).next::<&[u8]>().map_err(|error| error.with_run(run))?;
    let record = Record { header, body: Bytes::copy_from_slice(body) };
    record.verify(run)?;
    Ok(record)
}
