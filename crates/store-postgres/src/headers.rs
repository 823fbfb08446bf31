//! Lists the headers of a run. One statement reads a range by the key of the table, without bodies.

use ferrata_store::{Anchor, Error, HeaderRange, Headers, RecordHeader, Result, RunKey, Seq, refusal};
use sqlx::Row as _;

use crate::db::{PostgresDb, Sql, query};
use crate::row::{Columns, header, header_columns, seq};
use crate::stored_run::{self, HEAD, IS_SOUND, NAMED};

const OPERATION: &str = "store.headers";

/// The number of columns before those of the headers.
const BEFORE: usize = 3;

/// The statements, by the anchor of the range.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    pub(crate) from: Sql,
    pub(crate) up_to: Sql,
}

/// Selects at most `$4` headers from record `$3` on.
pub(crate) const FROM: &str = "c.seq >= greatest($3, r.first_seq) AND c.seq < greatest($3, r.first_seq) + $4";

/// Selects at most `$4` headers up to record `$3`.
pub(crate) const UP_TO: &str = "c.seq <= least($3, h.seq) AND c.seq > least($3, h.seq) - $4";

/// Returns the statement that lists the headers of a range.
///
/// The numbers of a run are dense, so the statement selects a range of the key, and the server cannot read more than it returns. With a `LIMIT`,
/// the server might sort the whole run. The condition on `first_seq` omits records that an unfinished prune is about to remove.
pub(crate) fn statement(range: &str) -> String {
    let header = header_columns();
    format!(
        "SELECT a.is_sound, r.first_seq, h.seq, {header} FROM {NAMED} {HEAD} \
         LEFT JOIN LATERAL (SELECT {IS_SOUND} AS is_sound) a ON true \
         LEFT JOIN {{records}} c ON c.run = r.key AND {range} AND c.seq >= r.first_seq \
         ORDER BY c.seq"
    )
}

impl Ranges {
    pub(crate) async fn list(&self, db: &PostgresDb, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let (sql, anchor) = match range.anchor() {
            Anchor::From(seq) => (&self.from, seq),
            Anchor::UpTo(seq) => (&self.up_to, seq),
        };
        // No record has a number above the largest bigint minus a page.
        let anchor =
            i64::try_from(anchor.get()).unwrap_or(i64::MAX).min(i64::MAX - i64::from(HeaderRange::MAX));
        let make = || {
            let query = query(sql).bind(run.tenant.as_str()).bind(run.run.as_str());
            query.bind(anchor).bind(i64::from(range.limit()))
        };
        let rows = db.read(make).await.map_err(|failed| failed.of_run(OPERATION, run))?;
        let Some(row) = rows.first() else {
            return Err(refusal::no_run(OPERATION, run));
        };
        let of_run = |error: Error| error.with_operation(OPERATION).with_run(run);
        let mut columns = Columns::new(row, 0);
        stored_run::check(&mut columns).map_err(of_run)?;
        let kept: (Seq, Seq) = (seq(columns.next().map_err(of_run)?)?, seq(columns.next().map_err(of_run)?)?);
        let has_record = row.try_get::<Option<i64>, _>(BEFORE).is_ok_and(|seq| seq.is_some());
        let rows = if has_record { rows.as_slice() } else { &[] };
        let items: Result<Vec<RecordHeader>> =
            rows.iter().map(|row| header(&mut Columns::new(row, BEFORE), run)).collect();
        Headers::whole(run, range, kept, items.map_err(of_run)?)
    }
}
