//! Pruning and purging: what takes records away.

use ferrata_store::{At, HeadRef, PruneCut, Removed, Result, RunKey, check_prune, refusal};
use sqlx::sqlite::SqliteRow;

use crate::row::{self, HEAD, HEADER, LAST, get, header_text, number, seq_at};
use crate::statement::{Statement, Value};

pub(crate) const PRUNE: &str = "store.prune";
pub(crate) const PURGE: &str = "store.purge";

/// Gives pages that became free back to the file system, some at a time: each one from the end of the file is copied into a free one.
const VACUUM: &str = "PRAGMA incremental_vacuum(1000);";

fn named(look: Statement, run: &RunKey) -> Statement {
    look.bind(run.tenant.as_str()).bind(run.run.as_str())
}

/// Reads the record at the cut, and counts those before it.
pub(crate) fn look_prune(run: &RunKey, cut: &PruneCut) -> Statement {
    let look = Statement::new(&format!(
        "SELECT r.key, r.first_seq, {HEAD}, (SELECT count(*) FROM ferrata_records g WHERE g.run = r.key AND g.seq < ?), \
         (SELECT coalesce(sum(length(g.body)), 0) FROM ferrata_records g WHERE g.run = r.key AND g.seq < ?), {HEADER} \
         FROM ferrata_runs r LEFT JOIN ferrata_records c ON c.run = r.key AND c.seq = ? WHERE r.tenant = ? AND r.run = ?;"
    ));
    let at = number(cut.at);
    named(look.bind(at).bind(at).bind(at), run)
}

/// Counts the records, and reads the last header.
pub(crate) fn look_purge(run: &RunKey) -> Statement {
    named(
        Statement::new(&format!(
            "SELECT r.key, r.first_seq, {HEAD}, (SELECT count(*) FROM ferrata_records g WHERE g.run = r.key), \
             (SELECT coalesce(sum(length(g.body)), 0) FROM ferrata_records g WHERE g.run = r.key), {HEADER} \
             FROM ferrata_runs r {LAST} WHERE r.tenant = ? AND r.run = ?;"
        )),
        run,
    )
}

fn removed(row: &SqliteRow) -> Result<Removed> {
    let count = |at| get::<i64>(row, at).map(|count| u64::try_from(count).unwrap_or(0));
    Ok(Removed { records: count(3)?, bytes: count(4)? })
}

/// Decides what a prune removes, and how.
pub(crate) fn plan_prune(
    rows: &[SqliteRow],
    run: &RunKey,
    cut: &PruneCut,
) -> Result<(Removed, Vec<Statement>)> {
    let Some(row) = rows.first() else { return Err(refusal::no_run(PRUNE, run)) };
    let (key, first, head) = (get::<i64>(row, 0)?, seq_at(row, 1)?, seq_at(row, 2)?);
    if cut.at < first {
        return Ok((Removed::default(), Vec::new()));
    }
    if cut.at > head {
        return Err(refusal::no_record(PRUNE, run, At::Seq(cut.at)));
    }
    let header = row::header_at(row, 5, run, cut.at)?;
    let (base, at) = (check_prune(run, &header, cut)?, number(cut.at));
    let mut statement = Statement::default();
    if let Some(base) = base {
        let (text, sum) = header_text(&base.header)?;
        statement = statement
            .and("UPDATE ferrata_records SET base = 1, header = ?, sum = ?, body = ? WHERE run = ? AND seq = ?;")
            .bind(text)
            .bind(sum)
            .bind(Value::Bytes(base.body.to_vec()))
            .bind(key)
            .bind(at);
    }
    if cut.at > first {
        statement = statement
            .and("UPDATE ferrata_runs SET first_seq = ? WHERE key = ?;")
            .bind(at)
            .bind(key)
            .and("DELETE FROM ferrata_records WHERE run = ? AND seq < ?;")
            .bind(key)
            .bind(at)
            .and(VACUUM);
    }
    Ok((removed(row)?, vec![statement]))
}

/// Decides what a purge removes, and how. A run whose records cannot be read can be purged, if no head is expected.
pub(crate) fn plan_purge(
    rows: &[SqliteRow],
    run: &RunKey,
    expected: Option<HeadRef>,
) -> Result<(Removed, Vec<Statement>)> {
    let Some(row) = rows.first() else { return Ok(Default::default()) };
    if expected.is_some() {
        let head = row::header_at(row, 5, run, seq_at(row, 1)?)?.head();
        if expected != Some(head) {
            return Err(refusal::conflict(run, expected, Some(head)));
        }
    }
    let key = get::<i64>(row, 0)?;
    let statement = Statement::new("DELETE FROM ferrata_records WHERE run = ?;")
        .bind(key)
        .and("DELETE FROM ferrata_runs WHERE key = ?;")
        .bind(key)
        .and(VACUUM);
    Ok((removed(row)?, vec![statement]))
}
