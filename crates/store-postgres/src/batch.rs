//! A batch in the form of columns. Each column is an array, or one value for all rows.

use ferrata_store::{ErrorKind, Record, RecordHeader, Result, RunAppend, RunFacts, Seq};
use uuid::Uuid;

use crate::columns::{Values, bind_each, bind_shared};
use crate::db::roomy;
use crate::error::PostgresStoreError;
use crate::row::{code, fingerprint_to_uuid};
use crate::row_write_mode::RowWriteMode;
use crate::statement::{LockMode, Statements};

/// The entries of one statement.
#[derive(Debug)]
pub(crate) struct StatementBatch<'a> {
    shown: RowWriteMode,
    grows: Vec<BatchEntry<'a>>,
    starts: Vec<BatchEntry<'a>>,
    facts: Vec<FactColumns<'a>>,
    records: Vec<(i32, &'a Record)>,
    entries: i32,
    /// The approximate size of the values in bytes.
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct BatchEntry<'a> {
    n: i32,
    /// The run's known key.
    key: Option<i64>,
    append: &'a RunAppend,
    last: &'a RecordHeader,
}

/// The facts of a new run. Values are converted if the tables use another form.
#[derive(Debug)]
struct FactColumns<'a> {
    said: &'a RunFacts,
    graph: Uuid,
    input: Uuid,
    labels: Option<String>,
}

/// The approximate size of an entry and of a record in bytes, without names and bodies.
pub(crate) const ENTRY_BYTES: usize = 200;
pub(crate) const RECORD_BYTES: usize = 160;

/// The maximum number of parameters of a statement.
const PARAMETERS: usize = 110;

impl<'a> StatementBatch<'a> {
    pub(crate) fn new(shown: RowWriteMode) -> Self {
        Self {
            shown,
            grows: Vec::new(),
            starts: Vec::new(),
            facts: Vec::new(),
            records: Vec::new(),
            entries: 0,
            bytes: 0,
        }
    }

    /// Adds an entry that passed [`check`]. `last` is the header of its last record.
    pub(crate) fn push(
        &mut self,
        append: &'a RunAppend,
        key: Option<i64>,
        last: &'a RecordHeader,
    ) -> Result<()> {
        let entry = BatchEntry { n: self.entries, key, append, last };
        match (&append.expected, &append.facts) {
            (None, Some(said)) => {
                self.facts.push(FactColumns::of(said)?);
                self.starts.push(entry);
            }
            _ => self.grows.push(entry),
        }
        self.bytes += ENTRY_BYTES + append.run.run.as_str().len();
        for record in &append.records {
            self.bytes += RECORD_BYTES + record.body.len();
            self.records.push((self.entries, record));
        }
        self.entries += 1;
        Ok(())
    }

    /// Binds the columns to the statement that fits the entries.
    pub(crate) fn query(&self, statements: &Statements, waits: LockMode) -> Values {
        let (grows, starts) = (!self.grows.is_empty(), !self.starts.is_empty());
        let mut query = roomy(statements.of(grows, starts, waits), PARAMETERS, self.bytes);
        if grows {
            query = expected(entries(query, &self.grows), &self.grows, self.shown);
        }
        if starts {
            query = facts(entries(query, &self.starts), &self.facts);
        }
        records(query, &self.records)
    }
}

impl<'a> FactColumns<'a> {
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

/// Binds the columns `ENTRY` and `SHOWN`.
fn entries(query: Values, entries: &[BatchEntry<'_>]) -> Values {
    let last = || entries.iter().map(|entry| entry.last);
    let query = bind_each(query, entries.iter().map(|entry| entry.n));
    let query = bind_shared(query, entries.iter().map(|entry| Some(entry.append.run.tenant.as_str())));
    // The statement needs the name of a run only if it has no key.
    let names = entries.iter().map(|entry| entry.key.is_none().then_some(entry.append.run.run.as_str()));
    let query = bind_shared(query, names);
    let query = bind_shared(query, last().map(|header| Some(number(header.seq))));
    let query = bind_each(query, last().map(|header| *header.id.as_uuid()));
    let query = bind_shared(query, last().map(|header| Some(code(header.status.letter()))));
    let query = bind_shared(query, last().map(|header| header.owner.map(|owner| *owner.as_uuid())));
    bind_shared(query, last().map(|header| header.wake_at.map(|wake| wake.unix_ms())))
}

/// Binds the columns `HEADERS`.
fn headers<'h>(query: Values, headers: &(impl Iterator<Item = &'h RecordHeader> + Clone)) -> Values {
    let all = || headers.clone();
    let query = bind_shared(query, all().map(|header| Some(number(header.seq))));
    let query = bind_each(query, all().map(|header| *header.id.as_uuid()));
    let query = bind_shared(query, all().map(|header| Some(header.format.cast_signed())));
    let query = bind_shared(query, all().map(|header| Some(code(header.kind.letter()))));
    let query = bind_shared(query, all().map(|header| Some(code(header.status.letter()))));
    let query = bind_shared(query, all().map(|header| Some(header.epoch.get().cast_signed())));
    let query = bind_shared(query, all().map(|header| header.owner.map(|owner| *owner.as_uuid())));
    let query = bind_shared(query, all().map(|header| header.wake_at.map(|wake| wake.unix_ms())));
    bind_shared(query, all().map(|header| Some(header.at.unix_ms())))
}

/// Binds the columns `EXPECTED`.
fn expected(query: Values, entries: &[BatchEntry<'_>], shown: RowWriteMode) -> Values {
    let expected = || entries.iter().map(|entry| entry.append.expected);
    let query = bind_each(query, entries.iter().map(|entry| entry.key));
    let query = bind_shared(query, expected().map(|head| head.map(|head| number(head.seq))));
    let query = bind_each(query, expected().map(|head| head.map(|head| *head.id.as_uuid())));
    bind_shared(query, entries.iter().map(|entry| Some(shown.may_change(entry.last))))
}

/// Binds the columns `FACTS`.
fn facts(query: Values, facts: &[FactColumns<'_>]) -> Values {
    let said = || facts.iter().map(|facts| facts.said);
    let parent = || said().map(|said| said.parent.as_ref());
    let query = bind_shared(query, said().map(|said| Some(said.workflow.as_str())));
    let query = bind_shared(query, said().map(|said| Some(said.version.as_str())));
    let query = bind_shared(query, facts.iter().map(|facts| Some(facts.graph)));
    let query = bind_shared(query, facts.iter().map(|facts| Some(facts.input)));
    let query = bind_shared(query, said().map(|said| Some(said.created.unix_ms())));
    let query = bind_shared(query, parent().map(|parent| parent.map(|parent| parent.run.tenant.as_str())));
    let query = bind_shared(query, parent().map(|parent| parent.map(|parent| parent.run.run.as_str())));
    let query = bind_shared(query, parent().map(|parent| parent.map(|parent| number(parent.at.seq))));
    let query = bind_shared(query, parent().map(|parent| parent.map(|parent| *parent.at.id.as_uuid())));
    let query = bind_shared(query, said().map(|said| said.user.as_deref()));
    bind_shared(query, facts.iter().map(|facts| facts.labels.as_deref()))
}

/// Binds the columns `RECORDS`.
fn records(query: Values, records: &[(i32, &Record)]) -> Values {
    let all = || records.iter().map(|(_, record)| *record);
    let query = bind_shared(query, records.iter().map(|(n, _)| Some(*n)));
    let query = headers(query, &all().map(|record| &record.header));
    let query = bind_each(query, all().map(|record| record.header.prev.map(|prev| *prev.as_uuid())));
    let of_all = || all().map(|record| &record.header);
    let query =
        bind_shared(query, of_all().map(|header| header.visit.map(|visit| visit.get().cast_signed())));
    let query = bind_each(query, of_all().map(|header| header.body_crc.cast_signed()));
    let query = bind_shared(query, of_all().map(|header| Some(header.base)));
    let query = bind_shared(query, of_all().map(|header| header.node.as_ref().map(|node| node.as_str())));
    bind_each(query, all().map(|record| &*record.body))
}

/// Returns the number of a record in the form of the column. A signed integer is enough: a run would need centuries for a larger number.
pub(crate) fn number(seq: Seq) -> i64 {
    i64::try_from(seq.get()).unwrap_or(i64::MAX)
}

/// The maximum size of the bodies of one entry, in bytes. The server holds several copies of them while it executes a statement.
const MAX_ENTRY: usize = 256 << 20;

/// Checks what the tables cannot store, in addition to the checks of every store.
pub(crate) fn check(append: &RunAppend) -> Result<(), PostgresStoreError> {
    let bytes: usize = append.records.iter().map(|record| record.body.len()).sum();
    if bytes > MAX_ENTRY {
        let message = format!(
            "the records have {bytes} bytes, and one append has at most {MAX_ENTRY}; append fewer or smaller records"
        );
        return Err(PostgresStoreError::new(ErrorKind::TooLarge, message));
    }
    let texts = append.facts.iter().flat_map(|facts| {
        let labels = facts.labels.iter().flat_map(|(key, value)| [key, value]);
        labels.chain([facts.version.as_str()]).chain(facts.user.as_deref())
    });
    if texts.into_iter().any(|text| text.contains('\0')) {
        let message =
            "the facts of the run contain a NUL character, which PostgreSQL cannot store; remove it";
        return Err(PostgresStoreError::new(ErrorKind::Invalid, message));
    }
    let parent = append.facts.as_ref().and_then(|facts| facts.parent.as_ref());
    if parent.is_some_and(|parent| i64::try_from(parent.at.seq.get()).is_err()) {
        return Err(PostgresStoreError::new(
            ErrorKind::Invalid,
            "the number of the parent's record exceeds 2^63; correct it",
        ));
    }
    Ok(())
}
