//! Replaces the envelopes of records.

use ferrata_store::{Record, Result, RunKey, has_place, refusal};
use sqlx::sqlite::SqliteRow;

use crate::row::{self, header_text, number};
use crate::statement::{SqlStatement, SqlValue};
use crate::stored_run::{StoredRun, named, with_records};

pub(crate) const RESEAL: &str = "store.reseal";

/// Reads the headers of the records to replace, and of the records between them.
pub(crate) fn reseal_lookup(run: &RunKey, records: &[Record]) -> SqlStatement {
    let seq = |record: Option<&Record>| record.map_or(0, |record| number(record.header.seq));
    let values = named(run).bind(seq(records.first())).bind(seq(records.last()));
    with_records(values, "NULL", "NULL", "c.seq BETWEEN ?3 AND ?4").and(";")
}

/// Decides which of the given records replace stored records. Returns their number and the statements.
pub(crate) fn plan(rows: &[SqliteRow], run: &RunKey, records: &[Record]) -> Result<(u64, Vec<SqlStatement>)> {
    let no_run = || refusal::no_run(RESEAL, run);
    let (first, rest) = rows.split_first().ok_or_else(no_run)?;
    let StoredRun { key, .. } = StoredRun::read(first, 0)?.ok_or_else(no_run)?;
    let mut kept = rest.iter().map(|row| row::header(row, 0, run)).collect::<Result<Vec<_>>>()?;
    kept.sort_by_key(|header| header.seq);
    let mut given = records.iter().peekable();
    let mut statements = Vec::new();
    for header in kept {
        while given.next_if(|record| record.header.seq < header.seq).is_some() {}
        let Some(record) = given.next_if(|record| record.header.seq == header.seq) else { continue };
        if has_place(&header, &record.header) {
            let (text, sum) = header_text(run, &record.header)?;
            let replace = SqlStatement::new(
                "UPDATE ferrata_records SET header = ?, sum = ?, body = ? WHERE run = ? AND seq = ?;",
            );
            let replace = replace.bind(text).bind(sum).bind(SqlValue::Bytes(record.body.to_vec()));
            statements.push(replace.bind(key).bind(number(header.seq)));
        }
    }
    Ok((statements.len() as u64, statements))
}
