//! A batch as arrays, one for each column, and the one statement that takes them.

use std::fmt::Write as _;

use ferrata_core::record::{Record, RecordHeader, RunFacts};
use ferrata_core::store::RunAppend;
use ferrata_core::{ErrorKind, Result, Seq};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

use crate::codes;
use crate::db::{Sql, query};
use crate::error::Fault;
use crate::names::Names;
use crate::row::fingerprint_to_uuid;

/// The columns of a head after an append, and their types.
const HEADS: &[(&str, &str)] = &[
    ("n", "int4"),
    ("tenant", "text"),
    ("run", "text"),
    ("seq", "int8"),
    ("id", "uuid"),
    ("format", "int2"),
    ("kind", "\"char\""),
    ("status", "\"char\""),
    ("epoch", "int4"),
    ("owner", "uuid"),
    ("wake_at", "int8"),
    ("updated", "int8"),
];

/// The head that a run must have.
const EXPECTED: &[(&str, &str)] = &[("expected_seq", "int8"), ("expected_id", "uuid")];

/// What is said of a new run.
const FACTS: &[(&str, &str)] = &[
    ("workflow", "text"),
    ("version", "text"),
    ("graph", "uuid"),
    ("input", "uuid"),
    ("created", "int8"),
    ("parent_tenant", "text"),
    ("parent_run", "text"),
    ("parent_seq", "int8"),
    ("parent_id", "uuid"),
    ("user_name", "text"),
    ("labels", "text"),
];

/// The columns of a record, after the number of its entry.
const RECORDS: &[(&str, &str)] = &[
    ("n", "int4"),
    ("seq", "int8"),
    ("at", "int8"),
    ("wake_at", "int8"),
    ("id", "uuid"),
    ("prev", "uuid"),
    ("owner", "uuid"),
    ("epoch", "int4"),
    ("visit", "int4"),
    ("crc", "int4"),
    ("format", "int2"),
    ("kind", "\"char\""),
    ("status", "\"char\""),
    ("base", "bool"),
    ("node", "text"),
    ("body", "bytea"),
];

/// The statements that append: by whether runs grow and whether runs start.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    grow: Sql,
    start: Sql,
    both: Sql,
}

impl Statements {
    pub(crate) fn new(names: &Names) -> Self {
        let sql = |grows, starts| names.fill(&statement(grows, starts)).into();
        Self { grow: sql(true, false), start: sql(false, true), both: sql(true, true) }
    }
}

/// Writes the statement.
///
/// Each part waits for the one before, and waits for other transactions only in one order that all share: first the rows of
/// the runs that grow are locked, by key; then new runs are inserted, by name; what follows waits for nobody. So no two batches
/// ever wait for each other, whatever runs they share and in whatever order. That the second part comes after the first, and the
/// third after the second, is forced by counting the rows of the part before.
///
/// A row that was locked is compared as it is then, not as it was when the statement began; so the comparison is right under
/// READ COMMITTED. `gate` keeps the count out of what PostgreSQL evaluates again for a row that changed meanwhile.
fn statement(grows: bool, starts: bool) -> String {
    let mut sql = String::from("WITH ");
    let mut parameter = 0;
    if grows {
        let given = unnest(&mut parameter, "g", &[HEADS, EXPECTED]);
        // Writing into a string cannot fail.
        let _ = write!(
            sql,
            "locked AS MATERIALIZED (\
             SELECT g.*, r.key, r.seq AS actual_seq, r.id AS actual_id, \
             r.seq = g.expected_seq AND r.id = g.expected_id AS fits \
             FROM {given} JOIN {{runs}} r ON r.tenant = g.tenant AND r.run = g.run \
             ORDER BY r.key FOR NO KEY UPDATE OF r), "
        );
    }
    if starts {
        let given = unnest(&mut parameter, "s", &[HEADS, FACTS]);
        let after = if grows { "WHERE (SELECT count(*) FROM locked) >= 0 " } else { "" };
        let columns = names(&[&HEADS[1..], FACTS], "");
        let values = names(&[&HEADS[1..], &FACTS[..FACTS.len() - 1]], "s.");
        let _ = write!(
            sql,
            "start AS (SELECT * FROM {given}), \
             started AS (INSERT INTO {{runs}} ({columns}) SELECT {values}, s.labels::jsonb FROM start s {after}\
             ORDER BY s.tenant, s.run ON CONFLICT (tenant, run) DO NOTHING RETURNING key, tenant, run), "
        );
    }
    if grows {
        let gate = if starts { "gate" } else { "locked" };
        if starts {
            sql.push_str(
                "gate AS MATERIALIZED (SELECT l.* FROM locked l WHERE (SELECT count(*) FROM started) >= 0), ",
            );
        }
        let set: Vec<_> = HEADS[3..].iter().map(|(name, _)| format!("{name} = l.{name}")).collect();
        let _ = write!(
            sql,
            "moved AS (UPDATE {{runs}} r SET {} FROM {gate} l WHERE r.key = l.key AND l.fits RETURNING l.n, r.key), ",
            set.join(", ")
        );
    }
    let moved = "SELECT n, key FROM moved";
    let started = "SELECT s.n, t.key FROM started t JOIN start s ON s.tenant = t.tenant AND s.run = t.run";
    let changed = match (grows, starts) {
        (true, true) => format!("{moved} UNION ALL {started}"),
        (true, false) => moved.to_owned(),
        (false, _) => started.to_owned(),
    };
    let given = unnest(&mut parameter, "c", &[RECORDS]);
    let _ = write!(
        sql,
        "changed AS MATERIALIZED ({changed}), \
         written AS (INSERT INTO {{records}} (run, {}) SELECT w.key, {} FROM {given} JOIN changed w ON w.n = c.n) \
         SELECT n, true, NULL::int8, NULL::uuid FROM changed",
        names(&[&RECORDS[1..]], ""),
        names(&[&RECORDS[1..]], "c."),
    );
    if grows {
        sql.push_str(" UNION ALL SELECT n, false, actual_seq, actual_id FROM locked WHERE NOT fits");
    }
    sql
}

fn names(columns: &[&[(&str, &str)]], of: &str) -> String {
    let names: Vec<_> = columns.concat().iter().map(|(name, _)| format!("{of}{name}")).collect();
    names.join(", ")
}

fn unnest(parameter: &mut usize, alias: &str, columns: &[&[(&str, &str)]]) -> String {
    let arrays: Vec<_> = columns
        .concat()
        .iter()
        .map(|(_, kind)| {
            *parameter += 1;
            format!("${parameter}::{kind}[]")
        })
        .collect();
    format!("unnest({}) AS {alias}({})", arrays.join(", "), names(columns, ""))
}

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
    seq: Vec<i64>,
    at: Vec<i64>,
    wake_at: Vec<Option<i64>>,
    id: Vec<Uuid>,
    prev: Vec<Option<Uuid>>,
    owner: Vec<Option<Uuid>>,
    epoch: Vec<i32>,
    visit: Vec<Option<i32>>,
    crc: Vec<i32>,
    format: Vec<i16>,
    kind: Vec<i8>,
    status: Vec<i8>,
    base: Vec<bool>,
    node: Vec<Option<&'a str>>,
    body: Vec<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// Adds an entry that [`check`] let pass.
    pub(crate) fn push(&mut self, append: &'a RunAppend, last: &RecordHeader) -> Result<()> {
        let n = self.entries;
        self.entries += 1;
        match (&append.expected, &append.facts) {
            (None, Some(facts)) => {
                self.facts.push(facts)?;
                self.starts.push(n, append, last);
            }
            (expected, _) => {
                let expected =
                    expected.map(|head| (number(head.seq), *head.id.as_uuid())).unwrap_or_default();
                self.expected.0.push(expected.0);
                self.expected.1.push(expected.1);
                self.grows.push(n, append, last);
            }
        }
        append.records.iter().for_each(|record| self.records.push(n, record));
        Ok(())
    }

    /// Binds the arrays to the statement that fits.
    pub(crate) fn query(self, statements: &Statements) -> Query<'static, Postgres, PgArguments> {
        let (grows, starts) = (!self.grows.n.is_empty(), !self.starts.n.is_empty());
        let mut query = query(match (grows, starts) {
            (true, true) => &statements.both,
            (true, false) => &statements.grow,
            (false, _) => &statements.start,
        });
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
    fn push(&mut self, n: i32, append: &'a RunAppend, last: &RecordHeader) {
        self.n.push(n);
        self.tenant.push(append.run.tenant.as_str());
        self.run.push(append.run.run.as_str());
        self.seq.push(number(last.seq));
        self.id.push(*last.id.as_uuid());
        self.format.push(last.format.cast_signed());
        self.kind.push(codes::of_kind(last.kind).unwrap_or_default());
        self.status.push(codes::of_status(last.status).unwrap_or_default());
        self.epoch.push(last.epoch.get().cast_signed());
        self.owner.push(last.owner.map(|owner| *owner.as_uuid()));
        self.wake_at.push(last.wake_at.map(|wake| wake.unix_ms()));
        self.updated.push(last.at.unix_ms());
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
    fn push(&mut self, n: i32, record: &'a Record) {
        let header = &record.header;
        self.n.push(n);
        self.seq.push(number(header.seq));
        self.at.push(header.at.unix_ms());
        self.wake_at.push(header.wake_at.map(|wake| wake.unix_ms()));
        self.id.push(*header.id.as_uuid());
        self.prev.push(header.prev.map(|prev| *prev.as_uuid()));
        self.owner.push(header.owner.map(|owner| *owner.as_uuid()));
        self.epoch.push(header.epoch.get().cast_signed());
        self.visit.push(header.visit.map(|visit| visit.get().cast_signed()));
        self.crc.push(header.body_crc.cast_signed());
        self.format.push(header.format.cast_signed());
        self.kind.push(codes::of_kind(header.kind).unwrap_or_default());
        self.status.push(codes::of_status(header.status).unwrap_or_default());
        self.base.push(header.base);
        self.node.push(header.node.as_ref().map(|node| node.as_str()));
        self.body.push(&record.body);
    }

    fn bind<'q>(self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        query
            .bind(self.n)
            .bind(self.seq)
            .bind(self.at)
            .bind(self.wake_at)
            .bind(self.id)
            .bind(self.prev)
            .bind(self.owner)
            .bind(self.epoch)
            .bind(self.visit)
            .bind(self.crc)
            .bind(self.format)
            .bind(self.kind)
            .bind(self.status)
            .bind(self.base)
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
