//! The second read, for unwritten entries. It finds out whether each entry is a repeat or a conflict, and the actual head.

use ferrata_store::{Error, ErrorKind, HeadRef, RecordId, Result, RunAppend, RunKey, is_repeat, refusal};
use sqlx::Postgres;
use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;

use crate::db::{Sql, query};
use crate::row::{Columns, FACTS, facts, header, header_columns, seq};
use crate::stored_run::{self, HEAD, IS_SOUND};

/// The number of columns before those of the headers.
const BEFORE: usize = 16;

/// Reads the head, the facts, and as many of the newest headers as an entry has records. Reads several runs at once.
pub(crate) fn statement() -> String {
    let header = header_columns();
    format!(
        "SELECT v.n, r.key, a.is_sound, h.seq, h.id, {FACTS}, {header} \
         FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[]) AS v(n, tenant, run, records) \
         LEFT JOIN {{runs}} r ON r.run = v.run AND r.tenant = v.tenant {HEAD} \
         LEFT JOIN LATERAL (SELECT {IS_SOUND} AS is_sound) a ON true \
         LEFT JOIN {{records}} c ON c.run = r.key AND c.seq > h.seq - v.records \
         ORDER BY v.n, c.seq DESC"
    )
}

pub(crate) fn bind_entries(
    sql: &Sql,
    entries: &[(i32, &RunAppend)],
) -> Query<'static, Postgres, PgArguments> {
    let numbers: Vec<_> = entries.iter().map(|(n, _)| *n).collect();
    let tenants: Vec<_> = entries.iter().map(|(_, append)| append.run.tenant.as_str()).collect();
    let runs: Vec<_> = entries.iter().map(|(_, append)| append.run.run.as_str()).collect();
    let records: Vec<_> =
        entries.iter().map(|(_, append)| i64::try_from(append.records.len()).unwrap_or(i64::MAX)).collect();
    query(sql).bind(numbers).bind(tenants).bind(runs).bind(records)
}

/// Returns the key of a run from a row, if the run exists.
pub(crate) fn key(row: &PgRow) -> Option<i64> {
    row.try_get(1).ok().flatten()
}

/// Decides about one entry from the rows with its number. Returns `None` if the head is the expected head, so that something else prevented the
/// write.
pub(crate) fn decide(append: &RunAppend, rows: &[&PgRow]) -> Result<Option<HeadRef>> {
    let run = &append.run;
    let Some(row) = rows.first().filter(|row| key(row).is_some()) else {
        return answer(append, None, false);
    };
    let mut columns = Columns::new(row, 2);
    stored_run::check(&mut columns).map_err(|error| error.with_operation("store.append").with_run(run))?;
    let head = HeadRef { seq: seq(columns.next()?)?, id: RecordId::from_uuid(columns.next()?) };
    if append.records.last().is_none_or(|last| last.header.id != head.id) {
        return answer(append, Some(head), false);
    }
    let kept: Vec<_> =
        rows.iter().map(|row| header(&mut Columns::new(row, BEFORE), run)).collect::<Result<_>>()?;
    let is_repeat = is_repeat(&kept, append)
        && match &append.facts {
            Some(given) => *given == facts(&mut columns).map_err(|error| error.with_run(run))?,
            None => true,
        };
    answer(append, Some(head), is_repeat)
}

fn answer(append: &RunAppend, actual: Option<HeadRef>, is_repeat: bool) -> Result<Option<HeadRef>> {
    match actual {
        Some(head) if is_repeat => Ok(Some(head)),
        actual if actual == append.expected => Ok(None),
        actual => Err(refusal::conflict(&append.run, append.expected, actual)),
    }
}

/// Returns the error for an unwritten entry with the expected head. Another caller purged or started the run between the two reads.
pub(crate) fn changed_back_error(run: &RunKey) -> Error {
    let message = "the run changed twice during the write; nothing was written, retry";
    Error::new(ErrorKind::Unavailable, message).with_operation("store.append").with_run(run)
}
