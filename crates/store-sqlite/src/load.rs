//! Reading one run: its head, a range of its headers, and the newest base with what follows it, each in one statement.

use std::sync::Arc;

use ferrata_store::{
    Anchor, At, Error, HeadRef, HeaderRange, Headers, Record, Result, RunHead, RunKey, Seq, Timestamp,
    check_loaded, check_news, refusal,
};
use sqlx::sqlite::SqliteRow;

use crate::db::Db;
use crate::row::{self, HEAD, HEADER, LAST, get, number, seq_at};
use crate::statement::Statement;

const HEAD_OF: &str = "store.head";
const LOAD: &str = "store.load";
const HEADERS: &str = "store.headers";

/// Reads the head of a run.
pub(crate) async fn head(db: &Arc<Db>, run: &RunKey, now: Timestamp) -> Result<Option<RunHead>> {
    let columns = row::head_columns("?1");
    let look = format!("SELECT {columns} FROM ferrata_runs r {LAST} WHERE r.tenant = ?2 AND r.run = ?3");
    let look = Statement::new(&look).bind(now.unix_ms()).bind(run.tenant.as_str()).bind(run.run.as_str());
    let rows = db.read(look).await.map_err(|failed| failed.of_run(HEAD_OF, run))?;
    let head = rows.first().map(row::head).transpose();
    head.map_err(|error| error.with_operation(HEAD_OF).with_run(run))
}

/// Loads up to a position. There is a row also when there is no record to load, so that a run without is told from no run.
pub(crate) async fn load(db: &Arc<Db>, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
    let mut look = Statement::default().bind(run.tenant.as_str()).bind(run.run.as_str());
    let end = match at {
        At::Latest => HEAD.to_owned(),
        At::Seq(seq) => look.name(number(seq)),
        At::Record(id) => {
            let id = look.name(id.to_string());
            // Within the run only: an index of all ids would cost each step more than it is worth.
            format!(
                "(SELECT max(i.seq) FROM ferrata_records i WHERE i.run = r.key \
                 AND CASE WHEN json_valid(i.header) THEN i.header ->> '$.id' END = {id})"
            )
        }
    };
    let look = look.and(&format!(
        "WITH r AS MATERIALIZED (SELECT r.key, r.first_seq, {HEAD} AS seq, {end} AS at FROM ferrata_runs r \
         WHERE r.tenant = ?1 AND r.run = ?2) \
         SELECT r.first_seq, r.seq, r.at, {HEADER}, c.body FROM r LEFT JOIN ferrata_records c ON c.run = r.key AND c.seq <= r.at \
         AND c.seq >= (SELECT b.seq FROM ferrata_records b WHERE b.run = r.key AND b.seq <= r.at AND b.base ORDER BY b.seq DESC LIMIT 1) \
         ORDER BY c.seq"
    ));
    let rows = db.read(look).await.map_err(|failed| failed.of_run(LOAD, run))?;
    let Some(first) = rows.first() else { return Ok(None) };
    records(run, at, first, &rows).map(Some).map_err(|error| error.with_operation(LOAD).with_run(run))
}

fn records(run: &RunKey, at: At, row: &SqliteRow, rows: &[SqliteRow]) -> Result<Vec<Record>> {
    let (first, head) = (seq_at(row, 0)?, seq_at(row, 1)?);
    let end = get::<Option<i64>>(row, 2)?.and_then(|end| u64::try_from(end).ok()).map(Seq::new);
    let missing = || refusal::no_record(LOAD, run, at);
    let end = end.filter(|end| (first..=head).contains(end)).ok_or_else(missing)?;
    let has_record = get::<Option<i64>>(row, 3)?.is_some();
    let rows = if has_record { rows } else { &[] };
    let records: Vec<Record> = rows.iter().map(|row| row::record(row, 3, run)).collect::<Result<_>>()?;
    check_loaded(run, &records, end)?;
    Ok(records)
}

/// Loads what came after a record, or as much as a load of the head if that record is not kept.
pub(crate) async fn load_since(db: &Arc<Db>, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
    let look = format!(
        "SELECT {HEADER}, CASE WHEN c.seq > ?3 THEN c.body END FROM ferrata_runs r \
         JOIN ferrata_records c ON c.run = r.key AND c.seq >= ?3 WHERE r.tenant = ?1 AND r.run = ?2 ORDER BY c.seq"
    );
    let look = Statement::new(&look).bind(run.tenant.as_str()).bind(run.run.as_str()).bind(number(known.seq));
    let rows = db.read(look).await.map_err(|failed| failed.of_run(LOAD, run))?;
    let rest = match rows.split_first() {
        // One that cannot be read is told of by the load.
        Some((first, rest)) if row::header(first, 0, run).is_ok_and(|first| first.head() == known) => rest,
        _ => return load(db, run, At::Latest).await,
    };
    let read = || {
        let records: Vec<Record> = rest.iter().map(|row| row::record(row, 0, run)).collect::<Result<_>>()?;
        check_news(run, known, &records).map(|()| records)
    };
    read().map(Some).map_err(|error| error.with_operation(LOAD).with_run(run))
}

/// Lists the headers of a range, by the key of the table, without a body.
pub(crate) async fn headers(db: &Arc<Db>, run: &RunKey, range: HeaderRange) -> Result<Headers> {
    let (anchor, within) = match range.anchor() {
        Anchor::From(seq) => (seq, "c.seq >= max(?3, r.first_seq) AND c.seq < max(?3, r.first_seq) + ?4"),
        Anchor::UpTo(seq) => {
            (seq, "c.seq <= min(?3, r.seq) AND c.seq > min(?3, r.seq) - ?4 AND c.seq >= r.first_seq")
        }
    };
    let look = format!(
        "WITH r AS MATERIALIZED (SELECT r.key, r.first_seq, {HEAD} AS seq FROM ferrata_runs r WHERE r.tenant = ?1 AND r.run = ?2) \
         SELECT r.first_seq, r.seq, {HEADER} FROM r LEFT JOIN ferrata_records c ON c.run = r.key AND {within} ORDER BY c.seq"
    );
    // No record has a number that is beyond the greatest less a page.
    let anchor = number(anchor).min(i64::MAX - i64::from(HeaderRange::MAX));
    let look = Statement::new(&look).bind(run.tenant.as_str()).bind(run.run.as_str());
    let look = look.bind(anchor).bind(i64::from(range.limit()));
    let rows = db.read(look).await.map_err(|failed| failed.of_run(HEADERS, run))?;
    let row = rows.first().ok_or_else(|| refusal::no_run(HEADERS, run))?;
    let read = || {
        let kept = (seq_at(row, 0)?, seq_at(row, 1)?);
        let has_record = get::<Option<i64>>(row, 2)?.is_some();
        let rows = if has_record { rows.as_slice() } else { &[] };
        let items = rows.iter().map(|row| row::header(row, 2, run)).collect::<Result<_>>()?;
        Headers::checked(run, range, kept, items)
    };
    read().map_err(|error: Error| error.with_operation(HEADERS).with_run(run))
}
