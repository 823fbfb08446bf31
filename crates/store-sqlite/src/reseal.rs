//! Putting records in other envelopes.

use ferrata_store::{Record, Result, RunKey, has_place, refusal};
use sqlx::sqlite::SqliteRow;

use crate::row::{self, HEADER, get, header_text, number};
use crate::statement::{Statement, Value};

pub(crate) const RESEAL: &str = "store.reseal";

/// Reads the headers of the records that are to be replaced, and those between them.
pub(crate) fn look(run: &RunKey, records: &[Record]) -> Statement {
    let seq = |record: Option<&Record>| record.map_or(0, |record| number(record.header.seq));
    Statement::new(&format!(
        "SELECT r.key, {HEADER} FROM ferrata_runs r LEFT JOIN ferrata_records c ON c.run = r.key AND c.seq BETWEEN ? AND ? \
         WHERE r.tenant = ? AND r.run = ? ORDER BY c.seq;"
    ))
    .bind(seq(records.first()))
    .bind(seq(records.last()))
    .bind(run.tenant.as_str())
    .bind(run.run.as_str())
}

/// Decides which records take the place of those that are there, and how.
pub(crate) fn plan(rows: &[SqliteRow], run: &RunKey, records: &[Record]) -> Result<(u64, Vec<Statement>)> {
    let Some(first) = rows.first() else { return Err(refusal::no_run(RESEAL, run)) };
    let key = get::<i64>(first, 0)?;
    let mut given = records.iter().peekable();
    let mut statements = Vec::new();
    for row in rows {
        let Some(seq) = get::<Option<i64>>(row, 1)? else { continue };
        while given.next_if(|record| number(record.header.seq) < seq).is_some() {}
        let Some(record) = given.next_if(|record| number(record.header.seq) == seq) else { continue };
        if has_place(&row::header_at(row, 1, run, record.header.seq)?, &record.header) {
            let (text, sum) = header_text(&record.header)?;
            let replace = Statement::new(
                "UPDATE ferrata_records SET header = ?, sum = ?, body = ? WHERE run = ? AND seq = ?;",
            );
            let replace = replace.bind(text).bind(sum).bind(Value::Bytes(record.body.to_vec()));
            statements.push(replace.bind(key).bind(seq));
        }
    }
    Ok((statements.len() as u64, statements))
}
