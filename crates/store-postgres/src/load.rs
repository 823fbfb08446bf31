//! Loads a run. One statement reads the newest base at or before a position, and the records after it.

use std::mem;

use ferrata_store::{
    At, HeadRef, Record, Result, RunKey, Seq, check_asked, check_loaded, check_news, refusal,
};
use sqlx::postgres::PgRow;
use sqlx::{Row as _, ValueRef as _};

use crate::batch::number;
use crate::db::{PostgresDb, Sql, query};
use crate::row::{Columns, header, header_columns, record, seq};
use crate::stored_run::{self, HEAD, IS_SOUND, NAMED};

const OPERATION: &str = "store.load";

/// The number of columns before those of the records.
const BEFORE: usize = 4;

/// The number of columns before those of the records after a known record.
const OF_SINCE: usize = 2;

/// The statements, by the kind of [`At`] position.
#[derive(Clone, Debug)]
pub(crate) struct LoadStatements {
    pub(crate) latest: Sql,
    pub(crate) by_seq: Sql,
    pub(crate) by_id: Sql,
    pub(crate) since: Sql,
}

/// Returns a statement that loads up to the position `at`, an SQL expression.
///
/// The statement returns a row even if there is no record to load. This distinguishes a run without that record from a missing run. The index of
/// bases finds the base.
pub(crate) fn statement(at: &str) -> String {
    let header = header_columns();
    format!(
        "SELECT a.is_sound, r.first_seq, h.seq, a.seq, {header}, c.body \
         FROM {NAMED} {HEAD} \
         LEFT JOIN LATERAL (SELECT {at} AS seq, {IS_SOUND} AS is_sound) a ON true \
         LEFT JOIN LATERAL (SELECT b.seq FROM {{records}} b WHERE b.run = r.key AND b.seq <= a.seq AND b.base \
             ORDER BY b.seq DESC LIMIT 1) b ON true \
         LEFT JOIN {{records}} c ON c.run = r.key AND c.seq >= b.seq AND c.seq <= a.seq \
         ORDER BY c.seq"
    )
}

pub(crate) const LATEST: &str = "h.seq";
pub(crate) const BY_SEQ: &str = "$3::int8";
/// Searches the id only within the run. An index of all record ids would cost each append more than it saves.
pub(crate) const BY_ID: &str = "(SELECT max(i.seq) FROM {records} i WHERE i.run = r.key AND i.id = $3)";

/// Returns a statement that reads a record without its body, and the records after it with their bodies. Each row has the number of the last
/// record.
pub(crate) fn since() -> String {
    let header = header_columns();
    format!(
        "SELECT a.is_sound, h.seq, {header}, CASE WHEN c.seq > $3 THEN c.body END \
         FROM {NAMED} {HEAD} LEFT JOIN LATERAL (SELECT {IS_SOUND} AS is_sound) a ON true \
         JOIN {{records}} c ON c.run = r.key AND c.seq >= $3 AND c.seq <= h.seq ORDER BY c.seq"
    )
}

impl LoadStatements {
    /// Loads the records after `known`. Loads from the newest base on if the run does not have `known` any more.
    pub(crate) async fn since(
        &self,
        db: &PostgresDb,
        run: &RunKey,
        known: HeadRef,
    ) -> Result<Option<Vec<Record>>> {
        let (tenant, name) = (run.tenant.as_str(), run.run.as_str());
        let make = || query(&self.since).bind(tenant).bind(name).bind(number(known.seq));
        let rows = db.read(make).await.map_err(|failed| failed.of_run(OPERATION, run))?;
        let (first, rest) = match rows.split_first() {
            // The load reports an unreadable record.
            Some((first, rest))
                if header(&mut Columns::new(first, OF_SINCE), run)
                    .is_ok_and(|first| first.head() == known) =>
            {
                (first, rest)
            }
            _ => return self.run(db, run, At::Latest).await,
        };
        let read = || {
            let mut columns = Columns::new(first, 0);
            stored_run::check(&mut columns)?;
            let records: Vec<Record> =
                rest.iter().map(|row| record(Columns::new(row, OF_SINCE), run)).collect::<Result<_>>()?;
            check_news(run, known, &records)?;
            let last = records.last().map_or(known.seq, |record| record.header.seq);
            match last < seq(columns.next()?)? {
                true => Err(refusal::gone(run, last.next())),
                false => Ok(records),
            }
        };
        read().map(Some).map_err(|error| error.with_operation(OPERATION).with_run(run))
    }

    pub(crate) async fn run(&self, db: &PostgresDb, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let (tenant, name) = (run.tenant.as_str(), run.run.as_str());
        let make = || match at {
            At::Latest => query(&self.latest).bind(tenant).bind(name),
            At::Seq(seq) => query(&self.by_seq).bind(tenant).bind(name).bind(number(seq)),
            At::Record(id) => query(&self.by_id).bind(tenant).bind(name).bind(*id.as_uuid()),
        };
        let of = run.clone();
        let mut is_first = true;
        let read = move |row: PgRow| match mem::take(&mut is_first) {
            true => LoadedRow {
                bounds: Some(bounds(&row)),
                record: record_of(&row, Columns::new(&row, BEFORE), &of),
            },
            false => LoadedRow { bounds: None, record: record_of(&row, Columns::of_next(&row, BEFORE), &of) },
        };
        let rows = db.read_as(make, read).await;
        let rows = rows.map_err(|failed| failed.of_run(OPERATION, run))?;
        if rows.is_empty() {
            return Ok(None);
        }
        records(rows, run, at).map(Some).map_err(|error| error.with_operation(OPERATION).with_run(run))
    }
}

/// A row: the columns of the run, which only the first row has, and the record; `None` if there is no record to load.
struct LoadedRow {
    bounds: Option<Result<Bounds>>,
    record: Result<Option<Record>>,
}

/// The number of the first stored record, of the last record, and of the requested record.
type Bounds = (Seq, Seq, Option<Seq>);

fn record_of(row: &PgRow, columns: Columns<'_>, run: &RunKey) -> Result<Option<Record>> {
    let has_record = row.try_get_raw(BEFORE).is_ok_and(|seq| !seq.is_null());
    has_record.then(|| record(columns, run)).transpose()
}

fn bounds(row: &PgRow) -> Result<Bounds> {
    let mut columns = Columns::new(row, 0);
    stored_run::check(&mut columns)?;
    Ok((seq(columns.next()?)?, seq(columns.next()?)?, columns.next::<Option<i64>>()?.map(seq).transpose()?))
}

fn records(rows: Vec<LoadedRow>, run: &RunKey, at: At) -> Result<Vec<Record>> {
    let mut records = Vec::with_capacity(rows.len());
    let mut end = None;
    for row in rows {
        if let Some(bounds) = row.bounds {
            end = last(bounds?);
        }
        records.extend(row.record?);
    }
    let end = end.ok_or_else(|| refusal::no_record(OPERATION, run, at))?;
    check_loaded(run, &records, end)?;
    check_asked(run, at, &records)?;
    Ok(records)
}

/// Returns the position to load, if the run has a record there.
fn last((first, head, end): Bounds) -> Option<Seq> {
    end.filter(|end| *end >= first && *end <= head)
}

#[cfg(test)]
mod tests;
