//! A batch as arrays, one for each column.

use ferrata_store::{ErrorKind, Record, RecordHeader, Result, RunAppend, RunFacts, Seq};
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgBindIterExt as _};
use sqlx::query::Query;
use uuid::Uuid;

use crate::db::roomy;
use crate::error::StoreError;
use crate::row::{code, fingerprint_to_uuid};
use crate::statement::{Statements, Waits};

/// Entries that stand in one statement.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    grows: Vec<Entry<'a>>,
    starts: Vec<Entry<'a>>,
    facts: Vec<Facts<'a>>,
    records: Vec<(i32, &'a Record)>,
    /// Where a record is not as the head of its entry.
    differs: Differs,
    entries: i32,
    /// About how many bytes the values take.
    bytes: usize,
}

#[derive(Debug)]
struct Entry<'a> {
    n: i32,
    append: &'a RunAppend,
    last: &'a RecordHeader,
}

/// What is said of a run at its start, and what of it has another form in the tables.
#[derive(Debug)]
struct Facts<'a> {
    said: &'a RunFacts,
    graph: Uuid,
    input: Uuid,
    labels: Option<String>,
}

/// The columns of records of which values are sent: without, the server takes that of the head, and for `base` that it is none.
#[derive(Debug, Default)]
struct Differs {
    head: bool,
    at: bool,
    wake_at: bool,
    owner: bool,
    epoch: bool,
    format: bool,
    kind: bool,
    status: bool,
    base: bool,
}

impl Differs {
    fn note(&mut self, record: &RecordHeader, head: &RecordHeader) {
        self.head |= record.seq != head.seq;
        self.at |= record.at != head.at;
        self.wake_at |= record.wake_at != head.wake_at;
        self.owner |= record.owner != head.owner;
        self.epoch |= record.epoch != head.epoch;
        self.format |= record.format != head.format;
        self.kind |= record.kind != head.kind;
        self.status |= record.status != head.status;
        self.base |= record.base;
    }
}

/// About how many bytes an entry and a record take, beside names and bodies.
pub(crate) const ENTRY_BYTES: usize = 200;
pub(crate) const RECORD_BYTES: usize = 160;

/// How many parameters a statement has at most.
const PARAMETERS: usize = 53;

impl<'a> Batch<'a> {
    /// Adds an entry that [`check`] let pass.
    pub(crate) fn push(&mut self, append: &'a RunAppend, last: &'a RecordHeader) -> Result<()> {
        let entry = Entry { n: self.entries, append, last };
        match (&append.expected, &append.facts) {
            (None, Some(said)) => {
                self.facts.push(Facts::of(said)?);
                self.starts.push(entry);
            }
            _ => self.grows.push(entry),
        }
        self.bytes += ENTRY_BYTES + append.run.run.as_str().len();
        for record in &append.records {
            self.differs.note(&record.header, last);
            self.bytes += RECORD_BYTES + record.body.len();
            self.records.push((self.entries, record));
        }
        self.entries += 1;
        Ok(())
    }

    /// Binds the columns, as arrays, to the statement that fits.
    pub(crate) fn query(
        &self,
        statements: &Statements,
        waits: Waits,
    ) -> Query<'static, Postgres, PgArguments> {
        let (grows, starts) = (!self.grows.is_empty(), !self.starts.is_empty());
        let mut query = roomy(statements.of(grows, starts, waits), PARAMETERS, self.bytes);
        if grows {
            query = expected(heads(query, &self.grows), &self.grows);
        }
        if starts {
            query = facts(heads(query, &self.starts), &self.facts);
        }
        records(query, &self.records, &self.differs)
    }
}

impl<'a> Facts<'a> {
    fn of(said: &'a RunFacts) -> Result<Self> {
        let labels = said.labels.iter().map(|(key, value)| (key.to_owned(), value.into()));
        let labels = serde_json::Value::Object(labels.collect());
        Ok(Self {
            said,
            graph: fingerprint_to_uuid(said.graph)?,
            input: fingerprint_to_uuid(said.input)?,
            labels: (!said.labels.is_empty()).then(|| labels.to_string()),
        })
    }
}

type Arrays = Query<'static, Postgres, PgArguments>;

/// Binds the columns `HEADS`.
fn heads(query: Arrays, entries: &[Entry<'_>]) -> Arrays {
    let last = || entries.iter().map(|entry| entry.last);
    query
        .bind(entries.iter().map(|entry| entry.n).bind_iter())
        .bind(entries.iter().map(|entry| entry.append.run.tenant.as_str()).bind_iter())
        .bind(entries.iter().map(|entry| entry.append.run.run.as_str()).bind_iter())
        .bind(last().map(|last| number(last.seq)).bind_iter())
        .bind(last().map(|last| *last.id.as_uuid()).bind_iter())
        .bind(last().map(|last| last.format.cast_signed()).bind_iter())
        .bind(last().map(|last| code(last.kind.letter())).bind_iter())
        .bind(last().map(|last| code(last.status.letter())).bind_iter())
        .bind(last().map(|last| last.epoch.get().cast_signed()).bind_iter())
        .bind(last().map(|last| last.owner.map(|owner| *owner.as_uuid())).bind_iter())
        .bind(last().map(|last| last.wake_at.map(|wake| wake.unix_ms())).bind_iter())
        .bind(last().map(|last| last.at.unix_ms()).bind_iter())
}

/// Binds the columns `EXPECTED`.
fn expected(query: Arrays, entries: &[Entry<'_>]) -> Arrays {
    let expected = || entries.iter().map(|entry| entry.append.expected);
    query
        .bind(expected().map(|head| head.map(|head| number(head.seq))).bind_iter())
        .bind(expected().map(|head| head.map(|head| *head.id.as_uuid())).bind_iter())
}

/// Binds the columns `FACTS`.
fn facts(query: Arrays, facts: &[Facts<'_>]) -> Arrays {
    let said = || facts.iter().map(|facts| facts.said);
    let parent = || said().map(|said| said.parent.as_ref());
    query
        .bind(said().map(|said| said.workflow.as_str()).bind_iter())
        .bind(said().map(|said| said.version.as_str()).bind_iter())
        .bind(facts.iter().map(|facts| facts.graph).bind_iter())
        .bind(facts.iter().map(|facts| facts.input).bind_iter())
        .bind(said().map(|said| said.created.unix_ms()).bind_iter())
        .bind(parent().map(|parent| parent.map(|parent| parent.run.tenant.as_str())).bind_iter())
        .bind(parent().map(|parent| parent.map(|parent| parent.run.run.as_str())).bind_iter())
        .bind(parent().map(|parent| parent.map(|parent| number(parent.at.seq))).bind_iter())
        .bind(parent().map(|parent| parent.map(|parent| *parent.at.id.as_uuid())).bind_iter())
        .bind(said().map(|said| said.user.as_deref()).bind_iter())
        .bind(facts.iter().map(|facts| facts.labels.as_deref()).bind_iter())
}

/// Binds the columns `RECORDS`; an array of which no value is needed is empty.
fn records(query: Arrays, records: &[(i32, &Record)], differs: &Differs) -> Arrays {
    let all = || records.iter().map(|(_, record)| &record.header);
    let only_if = |is_needed: bool| all().take(if is_needed { usize::MAX } else { 0 });
    query
        .bind(records.iter().map(|(n, _)| *n).bind_iter())
        .bind(only_if(differs.head).map(|header| number(header.seq)).bind_iter())
        .bind(only_if(differs.at).map(|header| header.at.unix_ms()).bind_iter())
        .bind(only_if(differs.wake_at).map(|header| header.wake_at.map(|wake| wake.unix_ms())).bind_iter())
        .bind(only_if(differs.head).map(|header| *header.id.as_uuid()).bind_iter())
        .bind(all().map(|header| header.prev.map(|prev| *prev.as_uuid())).bind_iter())
        .bind(only_if(differs.owner).map(|header| header.owner.map(|owner| *owner.as_uuid())).bind_iter())
        .bind(only_if(differs.epoch).map(|header| header.epoch.get().cast_signed()).bind_iter())
        .bind(all().map(|header| header.visit.map(|visit| visit.get().cast_signed())).bind_iter())
        .bind(all().map(|header| header.body_crc.cast_signed()).bind_iter())
        .bind(only_if(differs.format).map(|header| header.format.cast_signed()).bind_iter())
        .bind(only_if(differs.kind).map(|header| code(header.kind.letter())).bind_iter())
        .bind(only_if(differs.status).map(|header| code(header.status.letter())).bind_iter())
        .bind(only_if(differs.base).map(|header| header.base).bind_iter())
        .bind(all().map(|header| header.node.as_ref().map(|node| node.as_str())).bind_iter())
        .bind(records.iter().map(|(_, record)| &*record.body).bind_iter())
}

/// The number of a record as a column holds it. None is above the half that fits: a run would need centuries for it.
pub(crate) fn number(seq: Seq) -> i64 {
    i64::try_from(seq.get()).unwrap_or(i64::MAX)
}

/// The most bytes of bodies of one entry. A statement holds them several times on its way through the server.
const MAX_ENTRY: usize = 256 << 20;

/// Checks what the tables cannot hold, beyond what every store must refuse.
pub(crate) fn check(append: &RunAppend) -> Result<(), StoreError> {
    let bytes: usize = append.records.iter().map(|record| record.body.len()).sum();
    if bytes > MAX_ENTRY {
        let message =
            format!("the records have {bytes} bytes; at most {MAX_ENTRY} can be appended to a run at once");
        return Err(StoreError::new(ErrorKind::TooLarge, message));
    }
    let texts = append.facts.iter().flat_map(|facts| {
        let labels = facts.labels.iter().flat_map(|(key, value)| [key, value]);
        labels.chain([facts.version.as_str()]).chain(facts.user.as_deref())
    });
    if texts.into_iter().any(|text| text.contains('\0')) {
        let message =
            "what is said of the run holds a zero character, which PostgreSQL cannot store; leave it out";
        return Err(StoreError::new(ErrorKind::Invalid, message));
    }
    let parent = append.facts.as_ref().and_then(|facts| facts.parent.as_ref());
    if parent.is_some_and(|parent| i64::try_from(parent.at.seq.get()).is_err()) {
        return Err(StoreError::new(
            ErrorKind::Invalid,
            "the parent's record has a number beyond 2^63; correct it",
        ));
    }
    Ok(())
}
