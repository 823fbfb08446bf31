//! Appends one record to one run without arrays. A run with sequential nodes sends its records this way.
//!
//! The statement takes a third of the server's time for the batch statement. It locks one head, so it needs no lock order. The insert is the main
//! statement and not a part next to a query, because a query would be one more scan.

use ferrata_store::RunAppend;
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use crate::batch::{ENTRY_BYTES, RECORD_BYTES, number};
use crate::db::{Sql, roomy};
use crate::row::code;
use crate::row_write_mode::RowWriteMode;

/// Moves the head if it is the expected head and leads to the expected record. The second check prevents an append to another run's log.
const MOVE: &str = "\
    UPDATE {heads} h SET seq = $5, id = $6, format = $7, kind = $8, status = $9, epoch = $10, owner = $11, wake_at = $12, at = $13 \
    WHERE h.run = $2 AND h.tenant = $1 AND h.seq = $3 AND h.id = $4 \
    AND EXISTS (SELECT FROM {records} l WHERE l.run = h.key AND l.seq = $3 AND l.id = $4)";

/// The condition that the run's row needs no change.
const AS_SHOWN: &str =
    " AND h.status = $9 AND h.owner IS NOT DISTINCT FROM $11 AND h.wake_at IS NOT DISTINCT FROM $12";

/// Updates the run's row, so that listings find the run by its new head.
const SHOW: &str = "\
    shown AS (UPDATE {runs} r SET status = $9, owner = $11, wake_at = $12 FROM moved WHERE r.key = moved.key) ";

/// Inserts the record if and only if the head moved.
const INSERT: &str = "\
    INSERT INTO {records} (run, seq, at, wake_at, id, prev, owner, epoch, visit, crc, format, kind, status, base, node, body) \
    SELECT key, $5, $13, $12, $6, $4, $11, $10, $14, $15, $7, $8, $9, $16, $17, $18 FROM moved \
    RETURNING ARRAY[0]";

/// The statements, by whether the run's row changes, too.
#[derive(Clone, Debug)]
pub(crate) struct Single {
    pub(crate) plain: Sql,
    pub(crate) moves: Sql,
}

/// Returns the statement that does not change the run's row.
pub(crate) fn plain() -> String {
    format!("WITH moved AS ({MOVE}{AS_SHOWN} RETURNING key) {INSERT}")
}

/// Returns the statement that changes the run's row.
pub(crate) fn moves() -> String {
    format!("WITH moved AS ({MOVE} RETURNING key), {SHOW}{INSERT}")
}

/// The number of values that the statement binds.
const VALUES: usize = 18;

impl Single {
    /// Binds an entry to the statement. Returns `None` unless the entry has an expected head and exactly one record.
    pub(crate) fn bind(
        &self,
        append: &RunAppend,
        shown: RowWriteMode,
    ) -> Option<Query<'static, Postgres, PgArguments>> {
        let (Some(expected), [record]) = (&append.expected, append.records.as_slice()) else { return None };
        let header = &record.header;
        let texts = append.run.tenant.as_str().len() + append.run.run.as_str().len();
        let sql = if shown.may_change(header) { &self.moves } else { &self.plain };
        let query = roomy(sql, VALUES, ENTRY_BYTES + RECORD_BYTES + texts + record.body.len())
            .bind(append.run.tenant.as_str())
            .bind(append.run.run.as_str())
            .bind(number(expected.seq))
            .bind(*expected.id.as_uuid())
            .bind(number(header.seq))
            .bind(*header.id.as_uuid())
            .bind(header.format.cast_signed())
            .bind(code(header.kind.letter()))
            .bind(code(header.status.letter()))
            .bind(header.epoch.get().cast_signed())
            .bind(header.owner.map(|owner| *owner.as_uuid()))
            .bind(header.wake_at.map(|wake| wake.unix_ms()))
            .bind(header.at.unix_ms())
            .bind(header.visit.map(|visit| visit.get().cast_signed()))
            .bind(header.body_crc.cast_signed())
            .bind(header.base)
            .bind(header.node.as_ref().map(|node| node.as_str()))
            .bind(&*record.body);
        Some(query)
    }
}
