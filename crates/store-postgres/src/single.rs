//! Appends one record to one run without arrays. A run with sequential nodes sends its records this way.
//!
//! The statement is an insert that selects the head: the last record of the run, if it is the expected one. The primary key lets one writer insert
//! the next record. A lock on the head makes a purge wait, see [`prune`](crate::prune).
//!
//! The insert is the main statement and not a part next to a query, because a query would be one more scan.

use ferrata_store::RunAppend;
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use crate::batch::{ENTRY_BYTES, RECORD_BYTES, number};
use crate::db::{Sql, roomy};
use crate::names::Names;
use crate::row::code;
use crate::row_write_mode::RowWriteMode;
use crate::statement::LockMode;

/// The run's key: the given one, or that of the run with this name.
const KEY: &str = "coalesce($3, (SELECT n.key FROM {runs} n WHERE n.run = $2 AND n.tenant = $1))";

const INSERT: &str = "\
    INSERT INTO {records} (run, seq, at, wake_at, id, prev, owner, epoch, visit, crc, format, kind, status, base, node, body) \
    SELECT h.run, $6, $14, $13, $7, $5, $12, $11, $15, $16, $8, $9, $10, $17, $18, $19 FROM ";

/// The condition that the head is the expected one.
const EXPECTED: &str = "h.seq = $4 AND h.id = $5";

/// The condition that the run's row needs no change.
const AS_SHOWN: &str =
    " AND h.status = $10 AND h.owner IS NOT DISTINCT FROM $12 AND h.wake_at IS NOT DISTINCT FROM $13";

/// The statements, by whether the run's row changes, too, and by how a race ends.
#[derive(Clone, Debug)]
pub(crate) struct Single {
    plain: [Sql; 2],
    moves: [Sql; 2],
}

/// Returns the head of the run with this key. The search ends at the expected record. It locks the head against a purge.
fn head(key: &str) -> String {
    format!(
        "(SELECT l.run, l.seq, l.id, l.status, l.owner, l.wake_at FROM {{records}} l WHERE l.run = {key} AND l.seq >= $4 \
         ORDER BY l.seq DESC LIMIT 1 FOR KEY SHARE) h WHERE {EXPECTED}"
    )
}

/// Returns what the insert does if another writer inserts a record with this number at the same time.
///
/// An insert that skips the record writes an entry more to the server's log for each record. So the usual statement fails instead.
fn in_a_race(waits: LockMode) -> &'static str {
    match waits {
        LockMode::Briefly => "",
        LockMode::InOrder => " ON CONFLICT (run, seq) DO NOTHING",
    }
}

/// Returns the statement that does not change the run's row.
fn plain(waits: LockMode) -> String {
    format!("{INSERT}{}{AS_SHOWN}{} RETURNING ARRAY[0], ARRAY[run]", head(KEY), in_a_race(waits))
}

/// Returns the statement that changes the run's row, so that listings find the run by its new head. It locks the row first, as a purge does.
fn moves(waits: LockMode) -> String {
    format!(
        "WITH held AS MATERIALIZED (SELECT r.key FROM {{runs}} r WHERE r.key = {KEY} FOR NO KEY UPDATE), \
         written AS ({INSERT}held, LATERAL {}{} RETURNING run) \
         UPDATE {{runs}} r SET seq = $6, id = $7, status = $10, owner = $12, wake_at = $13 FROM written w WHERE r.key = w.run \
         RETURNING ARRAY[0], ARRAY[r.key]",
        head("held.key"),
        in_a_race(waits),
    )
}

/// The number of values that the statement binds.
const VALUES: usize = 19;

impl Single {
    pub(crate) fn new(names: &Names) -> Self {
        let each = |statement: fn(LockMode) -> String| {
            [LockMode::Briefly, LockMode::InOrder].map(|waits| names.fill(&statement(waits)).into())
        };
        Self { plain: each(plain), moves: each(moves) }
    }

    /// Binds an entry to the statement. Returns `None` unless the entry has an expected head and exactly one record.
    pub(crate) fn bind(
        &self,
        append: &RunAppend,
        key: Option<i64>,
        (waits, shown): (LockMode, RowWriteMode),
    ) -> Option<Query<'static, Postgres, PgArguments>> {
        let (Some(expected), [record]) = (&append.expected, append.records.as_slice()) else { return None };
        let header = &record.header;
        let texts = append.run.tenant.as_str().len() + append.run.run.as_str().len();
        let [briefly, in_order] = if shown.may_change(header) { &self.moves } else { &self.plain };
        let sql = match waits {
            LockMode::Briefly => briefly,
            LockMode::InOrder => in_order,
        };
        let query = roomy(sql, VALUES, ENTRY_BYTES + RECORD_BYTES + texts + record.body.len())
            .bind(append.run.tenant.as_str())
            .bind(append.run.run.as_str())
            .bind(key)
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
