//! Listing the headers of a run: a page in one statement, by the key of the table, without a body.

use ferrata_store::{Cursor, Error, ErrorKind, Order, Page, Paged, RecordHeader, Result, RunKey, Seq};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::batch::number;
use crate::db::{Db, Sql, query};
use crate::row::{Columns, HEADER, header, seq};

const OPERATION: &str = "store.history";

/// The number of columns before those of the headers.
const BEFORE: usize = 2;

/// The statements: by order.
#[derive(Clone, Debug)]
pub(crate) struct Histories {
    pub(crate) newest_first: Sql,
    pub(crate) oldest_first: Sql,
}

/// Writes a statement that lists at most `$4` headers after the record `$3`, if one is given.
///
/// The numbers of a run are dense, so a page is a range of the key: the server has no way to read more than it returns. A
/// `LIMIT` would let it sort the whole run. `first_seq` leaves out what a prune that has not ended is about to remove.
pub(crate) fn statement(order: Order) -> String {
    let (range, direction) = match order {
        Order::NewestFirst => {
            let before = "coalesce($3::int8, r.seq + 1)";
            (format!("c.seq < {before} AND c.seq >= {before} - $4"), "DESC")
        }
        Order::OldestFirst => {
            // A cursor from before a prune goes on at what is kept; `greatest` passes over a cursor that is none.
            let after = "greatest($3::int8, r.first_seq - 1)";
            (format!("c.seq > {after} AND c.seq <= {after} + $4"), "ASC")
        }
    };
    format!(
        "SELECT r.first_seq, r.seq, {HEADER} FROM {{runs}} r \
         LEFT JOIN {{records}} c ON c.run = r.key AND {range} AND c.seq >= r.first_seq \
         WHERE r.tenant = $1 AND r.run = $2 ORDER BY c.seq {direction}"
    )
}

impl Histories {
    pub(crate) async fn run(&self, db: &Db, run: &RunKey, page: &Page) -> Result<Paged<RecordHeader>> {
        let after = page.cursor.as_ref().map(parse_cursor).transpose()?;
        let sql = match page.order {
            Order::NewestFirst => &self.newest_first,
            Order::OldestFirst => &self.oldest_first,
        };
        let limit = i64::try_from(page.len()).unwrap_or(i64::MAX);
        let make = || {
            let query = query(sql).bind(run.tenant.as_str()).bind(run.run.as_str());
            query.bind(after.map(number)).bind(limit)
        };
        let rows = db.read(make).await.map_err(|failed| failed.of_run(OPERATION, run))?;
        if rows.is_empty() {
            let message = "there is no such run; it was purged, or never started";
            return Err(Error::new(ErrorKind::NotFound, message).with_operation(OPERATION).with_run(run));
        }
        listed(&rows, run, page, after).map_err(|error| error.with_operation(OPERATION).with_run(run))
    }
}

fn listed(rows: &[PgRow], run: &RunKey, page: &Page, after: Option<Seq>) -> Result<Paged<RecordHeader>> {
    let mut columns = Columns::new(&rows[0], 0);
    let (first, head) = (seq(columns.next()?)?, seq(columns.next()?)?);
    // Where the page begins and the listing ends, if nothing is missing.
    let (start, end) = match page.order {
        Order::NewestFirst => {
            (after.map_or(Some(head), |after| after.get().checked_sub(1).map(Seq::new)), first)
        }
        Order::OldestFirst => (Some(after.map_or(first, |after| after.next().max(first))), head),
    };
    let is_over = start.is_none_or(|start| start < first || start > head);
    let has_record = rows[0].try_get::<Option<i64>, _>(BEFORE).is_ok_and(|seq| seq.is_some());
    if is_over || !has_record {
        return match start.filter(|_| !is_over) {
            Some(start) => Err(gone(start)),
            None => Ok(Paged { items: Vec::new(), next: None }),
        };
    }
    let items: Vec<RecordHeader> = rows.iter().map(|row| header(row, BEFORE, run)).collect::<Result<_>>()?;
    let mut expected = start;
    for item in &items {
        if let Some(expected) = expected.filter(|expected| item.seq != *expected) {
            return Err(gone(expected));
        }
        expected = match page.order {
            Order::NewestFirst => item.seq.get().checked_sub(1).map(Seq::new),
            Order::OldestFirst => Some(item.seq.next()),
        };
    }
    let last = items.last().map(|item| item.seq).filter(|last| *last != end);
    if items.len() < page.len()
        && let (Some(_), Some(expected)) = (last, expected)
    {
        return Err(gone(expected));
    }
    Ok(Paged { items, next: last.map(|last| Cursor::new(format!("seq/{last}"))) })
}

fn gone(seq: Seq) -> Error {
    Error::new(ErrorKind::Corrupt, "the record is gone; restore the run from a backup").with_seq(seq)
}

fn parse_cursor(cursor: &Cursor) -> Result<Seq> {
    let number: Option<u64> = cursor.as_str().strip_prefix("seq/").and_then(|text| text.parse().ok());
    number.filter(|seq| i64::try_from(*seq).is_ok()).map(Seq::new).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "the cursor is not of this listing; start at its first page")
            .with_operation(OPERATION)
    })
}
