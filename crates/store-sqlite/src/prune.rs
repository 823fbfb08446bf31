//! Prunes and purges: the removal of records.

use ferrata_store::{At, HeadRef, PruneCut, Removed, Result, RunKey, check_prune, refusal};
use sqlx::sqlite::SqliteRow;

use crate::row::{self, HEADER_LEN, corrupt, get, header_columns, header_text, number, run_sum};
use crate::statement::{SqlStatement, SqlValue};
use crate::stored_run::{self, LEN, NAMED, StoredRun, named};

pub(crate) const PRUNE: &str = "store.prune";
pub(crate) const PURGE: &str = "store.purge";

/// Returns free pages to the file system, up to 1,000 at a time. SQLite copies each page at the end of the file into a free page first.
const VACUUM: &str = "PRAGMA incremental_vacuum(1000);";

/// Reads a run and the record at the cut, and counts the records before it.
pub(crate) fn prune_lookup(run: &RunKey, cut: &PruneCut) -> SqlStatement {
    let (columns, tables, at) = (stored_run::columns(), stored_run::tables(NAMED), header_columns("p"));
    named(run).bind(number(cut.at)).and(&format!(
        "SELECT {columns}, {at}, (SELECT count(*) FROM ferrata_records g WHERE g.run = h.key AND g.seq < ?3), \
         (SELECT coalesce(sum(length(g.body)), 0) FROM ferrata_records g WHERE g.run = h.key AND g.seq < ?3) \
         FROM {tables} LEFT JOIN ferrata_records p ON p.run = h.key AND p.seq = ?3;"
    ))
}

/// Reads a run, and counts its records. An unreadable run can be purged, too. So this statement takes the run's key from the row that has its name,
/// because a damaged head may lead to another run.
pub(crate) fn purge_lookup(run: &RunKey) -> SqlStatement {
    let (columns, tables) = (stored_run::columns(), stored_run::tables(NAMED));
    let by_name = "SELECT n.key FROM ferrata_runs n WHERE n.tenant = v.tenant AND n.run = v.run";
    // The plus signs prevent SQLite from using the index, which may be damaged.
    let is_its = |row: &str| format!("+{row}.tenant = v.tenant AND +{row}.run = v.run");
    let (by_head, by_index) = (is_its("r"), is_its("t"));
    named(run).and(&format!(
        "WITH found AS MATERIALIZED (SELECT {columns}, ({by_name}) AS named_key, CASE WHEN {by_head} THEN r.key \
             ELSE (SELECT t.key FROM ferrata_runs t WHERE t.key = ({by_name}) AND {by_index}) END AS own_key FROM {tables}) \
         SELECT found.*, (SELECT count(*) FROM ferrata_records g WHERE g.run = found.own_key), \
         (SELECT coalesce(sum(length(g.body)), 0) FROM ferrata_records g WHERE g.run = found.own_key) FROM found;"
    ))
}

fn removed(row: &SqliteRow, at: usize) -> Result<Removed> {
    let count = |at| get::<i64>(row, at).map(|count| u64::try_from(count).unwrap_or(0));
    Ok(Removed { records: count(at)?, bytes: count(at + 1)? })
}

/// Decides which rows a prune removes or changes.
pub(crate) fn plan_prune(
    rows: &[SqliteRow],
    run: &RunKey,
    cut: &PruneCut,
) -> Result<(Removed, Vec<SqlStatement>)> {
    let no_run = || refusal::no_run(PRUNE, run);
    let row = rows.first().ok_or_else(no_run)?;
    let StoredRun { key, first, last, facts_text, .. } = StoredRun::read(row, 0)?.ok_or_else(no_run)?;
    if cut.at < first {
        return Ok((Removed::default(), Vec::new()));
    }
    if cut.at > last.seq {
        return Err(refusal::no_record(PRUNE, run, At::Seq(cut.at)));
    }
    let header = row::header_at(row, LEN, run, cut.at)?;
    let (base, at) = (check_prune(run, &header, cut)?, number(cut.at));
    let mut statement = SqlStatement::default();
    if let Some(base) = base {
        let (text, sum) = header_text(run, &base.header)?;
        statement = statement
            .and("UPDATE ferrata_records SET base = 1, header = ?, sum = ?, body = ? WHERE run = ? AND seq = ?;")
            .bind(text)
            .bind(sum)
            .bind(SqlValue::Bytes(base.body.to_vec()))
            .bind(key)
            .bind(at);
    }
    if cut.at > first {
        statement = statement
            .and("UPDATE ferrata_runs SET first_seq = ?, sum = ? WHERE key = ?;")
            .bind(at)
            .bind(run_sum(run, cut.at, &facts_text))
            .bind(key)
            .and("DELETE FROM ferrata_records WHERE run = ? AND seq < ?;")
            .bind(key)
            .bind(at)
            .and(VACUUM);
    }
    Ok((removed(row, LEN + HEADER_LEN)?, vec![statement]))
}

/// Decides which rows a purge removes. A run with unreadable records can be purged if the caller expects no head.
pub(crate) fn plan_purge(
    rows: &[SqliteRow],
    run: &RunKey,
    expected: Option<HeadRef>,
) -> Result<(Removed, Vec<SqlStatement>)> {
    let Some(row) = rows.first() else { return Ok(Default::default()) };
    if expected.is_some() {
        let Some(stored) = StoredRun::read(row, 0)? else { return Ok(Default::default()) };
        let head = stored.last.head();
        if expected != Some(head) {
            return Err(refusal::conflict(run, expected, Some(head)));
        }
    }
    let Some(key) = get::<Option<i64>>(row, LEN + 1)? else {
        let is_there = stored_run::has_head(row)? || get::<Option<i64>>(row, LEN)?.is_some();
        return match is_there {
            true => {
                Err(corrupt("the index entry of the run points to a row of another run, run `REINDEX` first"))
            }
            false => Ok(Default::default()),
        };
    };
    let statement = SqlStatement::new("DELETE FROM ferrata_records WHERE run = ?;")
        .bind(key)
        .and("DELETE FROM ferrata_runs WHERE key = ?;")
        .bind(key)
        .and("DELETE FROM ferrata_heads WHERE tenant = ? AND run = ?;")
        .bind(run.tenant.as_str())
        .bind(run.run.as_str())
        .and(VACUUM);
    Ok((removed(row, LEN + 2)?, vec![statement]))
}
