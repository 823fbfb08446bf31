//! A batch as arrays, one for each column.

use ferrata_core::record::{Record, RecordHeader, RunFacts};
use ferrata_core::store::RunAppend;
use ferrata_core::{ErrorKind, Result, Seq};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

use crate::codes;
use crate::db::query;
use crate::error::Fault;
use crate::row::fingerprint_to_uuid;
use crate::statement::{Statements, Waits};

/// Entries that stand in one statement, by column.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    grows: Heads<'a>,
    expected: (Vec<i64>, Vec<Uuid>),
    starts: Heads<'a>,
    facts: Facts<'a>,
    records: Records<'a>,
    entries: i32,
}

#[derive(Debug, Default)]
struct Heads<'a> {
    n: Vec<i32>,
    tenant: Vec<&'a str>,
    run: Vec<&'a str>,
    seq: Vec<i64>,
    id: Vec<Uuid>,
    format: Vec<i16>,
    kind: Vec<i8>,
    status: Vec<i8>,
    epoch: Vec<i32>,
    owner: Vec<Option<Uuid>>,
    wake_at: Vec<Option<i64>>,
    updated: Vec<i64>,
}

#[derive(Debug, Default)]
struct Facts<'a> {
    workflow: Vec<&'a str>,
    version: Vec<&'a str>,
    graph: Vec<Uuid>,
    input: Vec<Uuid>,
    created: Vec<i64>,
    parent_tenant: Vec<Option<&'a str>>,
    parent_run: Vec<Option<&'a str>>,
    parent_seq: Vec<Option<i64>>,
    parent_id: Vec<Option<Uuid>>,
    user_name: Vec<Option<&'a str>>,
    labels: Vec<Option<String>>,
}

#[derive(Debug, Default)]
struct Records<'a> {
    n: Vec<i32>,
    seq: Column<i64>,
    at: Column<i64>,
    wake_at: Column<Option<i64>>,
    id: Column<Uuid>,
    prev: Vec<Option<Uuid>>,
    owner: Column<Option<Uuid>>,
    epoch: Column<i32>,
    visit: Vec<Option<i32>>,
    crc: Vec<i32>,
    format: Column<i16>,
    kind: Column<i8>,
    status: Column<i8>,
    base: Column<bool>,
    node: Vec<Option<&'a str>>,
    body: Vec<&'a [u8]>,
}

/// A column that need not be sent if each value is what the server takes for an absent one.
#[derive(Debug, Default)]
struct Column<T> {
    values: Vec<T>,
    is_needed: bool,
}

impl<T: PartialEq> Column<T> {
    fn push(&mut self, value: T, otherwise: &T) {
        self.is_needed |= value != *otherwise;
        self.values.push(value);
    }

    fn sent(self) -> Vec<T> {
        if self.is_needed { self.values } else { Vec::new() }
    }
}

/// A head, as the columns hold it.
#[derive(Debug)]
struct Head {
    seq: i64,
    id: Uuid,
    format: i16,
    kind: i8,
    status: i8,
    epoch: i32,
    owner: Option<Uuid>,
    wake_at: Option<i64>,
    at: i64,
}

impl Head {
    fn of(header: &RecordHeader) -> Self {
        Self {
            seq: number(header.seq),
            id: *header.id.as_uuid(),
            format: header.format.cast_signed(),
            kind: codes::of_kind(header.kind).unwrap_or_default(),
            status: codes::of_status(header.status).unwrap_or_default(),
            epoch: header.epoch.get().cast_signed(),
            owner: header.owner.map(|owner| *owner.as_uuid()),
            wake_at: header.wake_at.map(|wake| wake.unix_ms()),
            at: header.at.unix_ms(),
        }
    }
}

impl<'a> Batch<'a> {
    /// Adds an entry that [`check`] let pass.
    pub(crate) fn push(&mut self, append: &'a RunAppend, last: &RecordHeader) -> Result<()> {
        let n = self.entries;
        self.entries += 1;
        let head = Head::of(last);
        match (&append.expected, &append.facts) {
            (None, Some(facts)) => {
                self.facts.push(facts)?;
                self.starts.push(n, append, &head);
            }
            (expected, _) => {
                let expected =
                    expected.map(|head| (number(head.seq), *head.id.as_uuid())).unwrap_or_default();
                self.expected.0.push(expected.0);
                self.expected.1.push(expected.1);
                self.grows.push(n, append, &head);
            }
        }
        append.records.iter().for_each(|record| self.records.push(n, record, &head));
        Ok(())
    }

    /// Binds the arrays to the statement that fits.
    pub(crate) fn query(
        self,
        statements: &Statements,
        waits: Waits,
    ) -> Query<'static, Postgres, PgArguments> {
        let (grows, starts) = (!self.grows.n.is_empty(), !self.starts.n.is_empty());
        let mut query = query(statements.of(grows, starts, waits));
        if grows {
            query = self.grows.bind(query).bind(self.expected.0).bind(self.expected.1);
        }
        if starts {
            query = self.facts.bind(self.starts.bind(query));
        }
        self.records.bind(query)
    }
}

impl<'a> Heads<'a> {
    fn push(&mut self, n: i32, append: &'a RunAppend, head: &Head) {
        self.n.push(n);
        self.tenant.push(append.run.tenant.as_str());
        self.run.push(append.run.run.as_str());
        self.seq.push(head.seq);
        self.id.push(head.id);
        self.format.push(head.format);
        self.kind.push(head.kind);
        self.status.push(head.status);
        self.epoch.push(head.epoch);
        self.owner.push(head.owner);
        self.wake_at.push(head.wake_at);
        self.updated.push(head.at);
    }

    fn bind<'q>(self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        query
            .bind(self.n)
            .bind(self.tenant)
            .bind(self.run)
            .bind(self.seq)
            .bind(self.id)
            .bind(self.format)
            .bind(self.kind)
            .bind(self.status)
            .bind(self.epoch)
            .bind(self.owner)
            .bind(self.wake_at)
            .bind(self.updated)
    }
}

impl<'a> Facts<'a> {
    fn push(&mut self, facts: &'a RunFacts) -> Result<()> {
        self.graph.push(fingerprint_to_uuid(facts.graph)?);
        self.input.push(fingerprint_to_uuid(facts.input)?);
        self.workflow.push(facts.workflow.as_str());
        self.version.push(&facts.version);
        self.created.push(facts.created.unix_ms());
        let parent = facts.parent.as_ref();
        self.parent_tenant.push(parent.map(|parent| parent.run.tenant.as_str()));
        self.parent_run.push(parent.map(|parent| parent.run.run.as_str()));
        self.parent_seq.push(parent.map(|parent| number(parent.at.seq)));
        self.parent_id.push(parent.map(|parent| *parent.at.id.as_uuid()));
        self.user_name.push(facts.user.as_deref());
        let labels = facts.labels.iter().map(|(key, value)| (key.to_owned(), value.into()));
        let labels = serde_json::Value::Object(labels.collect());
        self.labels.push((!facts.labels.is_empty()).then(|| labels.to_string()));
        Ok(())
    }

    fn bind<'q>(self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        query
            .bind(self.workflow)
            .bind(self.version)
            .bind(self.graph)
            .bind(self.input)
            .bind(self.created)
            .bind(self.parent_tenant)
            .bind(self.parent_run)
            .bind(self.parent_seq)
            .bind(self.parent_id)
            .bind(self.user_name)
            .bind(self.labels)
    }
}

impl<'a> Records<'a> {
    fn push(&mut self, n: i32, record: &'a Record, head: &Head) {
        let header = &record.header;
        let own = Head::of(header);
        self.n.push(n);
        self.seq.push(own.seq, &head.seq);
        self.at.push(own.at, &head.at);
        self.wake_at.push(own.wake_at, &head.wake_at);
        self.id.push(own.id, &head.id);
        self.prev.push(header.prev.map(|prev| *prev.as_uuid()));
        self.owner.push(own.owner, &head.owner);
        self.epoch.push(own.epoch, &head.epoch);
        self.visit.push(header.visit.map(|visit| visit.get().cast_signed()));
        self.crc.push(header.body_crc.cast_signed());
        self.format.push(own.format, &head.format);
        self.kind.push(own.kind, &head.kind);
        self.status.push(own.status, &head.status);
        self.base.push(header.base, &false);
        self.node.push(header.node.as_ref().map(|node| node.as_str()));
        self.body.push(&record.body);
    }

    fn bind<'q>(self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        query
            .bind(self.n)
            .bind(self.seq.sent())
            .bind(self.at.sent())
            .bind(self.wake_at.sent())
            .bind(self.id.sent())
            .bind(self.prev)
            .bind(self.owner.sent())
            .bind(self.epoch.sent())
            .bind(self.visit)
            .bind(self.crc)
            .bind(self.format.sent())
            .bind(self.kind.sent())
            .bind(self.status.sent())
            .bind(self.base.sent())
            .bind(self.node)
            .bind(self.body)
    }
}

/// The number of a record as a column holds it. None is above the half that fits: a run would need centuries for it.
pub(crate) fn number(seq: Seq) -> i64 {
    i64::try_from(seq.get()).unwrap_or(i64::MAX)
}

/// The most bytes of bodies of one entry. A statement holds them several times on its way through the server.
const MAX_ENTRY: usize = 256 << 20;

/// Checks what the tables cannot hold, beyond what every store must refuse.
pub(crate) fn check(append: &RunAppend) -> Result<(), Fault> {
    let bytes: usize = append.records.iter().map(|record| record.body.len()).sum();
    if bytes > MAX_ENTRY {
        let message =
            format!("the records have {bytes} bytes; at most {MAX_ENTRY} can be appended to a run at once");
        return Err(Fault::new(ErrorKind::TooLarge, message));
    }
    let is_known = |header: &RecordHeader| {
        codes::of_kind(header.kind).is_some() && codes::of_status(header.status).is_some()
    };
    if !append.records.iter().all(|record| is_known(&record.header)) {
        let message =
            "a record's kind or status is newer than this store; upgrade it together with the library";
        return Err(Fault::new(ErrorKind::Unsupported, message));
    }
    let texts = append.facts.iter().flat_map(|facts| {
        let labels = facts.labels.iter().flat_map(|(key, value)| [key, value]);
        labels.chain([facts.version.as_str()]).chain(facts.user.as_deref())
    });
    if texts.into_iter().any(|text| text.contains('\0')) {
        let message =
            "what is said of the run holds a zero character, which PostgreSQL cannot store; leave it out";
        return Err(Fault::new(ErrorKind::Invalid, message));
    }
    let parent = append.facts.as_ref().and_then(|facts| facts.parent.as_ref());
    if parent.is_some_and(|parent| i64::try_from(parent.at.seq.get()).is_err()) {
        return Err(Fault::new(
            ErrorKind::Invalid,
            "the parent's record has a number beyond 2^63; correct it",
        ));
    }
    Ok(())
}
