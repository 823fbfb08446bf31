//! Reads one run: its head, a range of its headers, or the newest base with the records after it. Each read is one statement.

use std::sync::Arc;

use ferrata_store::{
    Anchor, At, Error, ErrorKind, HeadRef, HeaderRange, Headers, Record, RecordId, Result, RunHead, RunKey,
    Seq, Timestamp, check_asked, check_loaded, check_news, refusal,
};
use sqlx::sqlite::SqliteRow;

use crate::db::SqliteDb;
use crate::row::{self, get, number};
use crate::stored_run::{self, NAMED, StoredRun, named, with_records};

const HEAD_OF: &str = "store.head";
const LOAD: &str = "store.load";
const HEADERS: &str = "store.headers";

/// Returns the column that tells whether the owner of a run is alive at the time named `now`.
pub(crate) fn alive_column(now: &str) -> String {
    format!(
        "coalesce((SELECT b.until > {now} AND b.twin = -b.until FROM ferrata_heartbeats b WHERE b.executor = r.owner), 0)"
    )
}

/// Reads the head of a run.
pub(crate) async fn head(db: &Arc<SqliteDb>, run: &RunKey, now: Timestamp) -> Result<Option<RunHead>> {
    let (columns, alive, tables) = (stored_run::columns(), alive_column("?3"), stored_run::tables(NAMED));
    let look = named(run).bind(now.unix_ms()).and(&format!("SELECT {columns}, {alive} FROM {tables}"));
    let rows = db.read(look).await.map_err(|failed| failed.of_run(HEAD_OF, run))?;
    let read = |row: &SqliteRow| match StoredRun::read(row, 0)? {
        Some(stored) => stored.head(get(row, stored_run::LEN)?).map(Some),
        None => Ok(None),
    };
    let head = rows.first().map_or(Ok(None), read);
    head.map_err(|error| error.with_operation(HEAD_OF).with_run(run))
}

/// Loads the records up to a position.
pub(crate) async fn load(db: &Arc<SqliteDb>, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
    let (values, end) = match at {
        At::Latest => (named(run), "h.seq"),
        At::Seq(seq) => (named(run).bind(number(seq)), "?3"),
        At::Record(id) => (
            named(run).bind(id.to_string()),
            // Search only within the run: an index of all record ids would cost each append more than it saves.
            "(SELECT max(i.seq) FROM ferrata_records i WHERE i.run = h.key \
              AND CASE WHEN json_valid(i.header) THEN i.header ->> '$.id' END = ?3)",
        ),
    };
    let range = "c.seq <= found.at AND c.seq >= (SELECT b.seq FROM ferrata_records b \
        WHERE b.run = found.head_key AND b.seq <= found.at AND b.base ORDER BY b.seq DESC LIMIT 1)";
    let look = with_records(values, &format!("{end} AS at"), "c.body", range);
    let rows = db.read(look).await.map_err(|failed| failed.of_run(LOAD, run))?;
    let named = |error: Error| error.with_operation(LOAD).with_run(run);
    match records(run, at, &rows).map_err(named)? {
        LoadedRun::NoRun => Ok(None),
        LoadedRun::Records(records) => Ok(Some(records)),
        LoadedRun::NoRecord => {
            if let At::Record(id) = at
                && let Some(seq) = find(db, run, id).await?
            {
                return Box::pin(load(db, run, At::Seq(seq))).await;
            }
            Err(refusal::no_record(LOAD, run, at))
        }
    }
}

/// The result of a load.
enum LoadedRun {
    NoRun,
    NoRecord,
    Records(Vec<Record>),
}

fn records(run: &RunKey, at: At, rows: &[SqliteRow]) -> Result<LoadedRun> {
    let Some((first, rest)) = rows.split_first() else { return Ok(LoadedRun::NoRun) };
    let Some(stored) = StoredRun::read(first, 0)? else { return Ok(LoadedRun::NoRun) };
    let end = get::<Option<i64>>(first, stored_run::LEN)?.and_then(|end| u64::try_from(end).ok());
    let Some(end) = end.map(Seq::new).filter(|end| (stored.first..=stored.last.seq).contains(end)) else {
        return Ok(LoadedRun::NoRecord);
    };
    let records = sorted(run, rest)?;
    check_loaded(run, &records, end)?;
    check_asked(run, at, &records)?;
    Ok(LoadedRun::Records(records))
}

/// Parses records, in the order of their numbers.
fn sorted(run: &RunKey, rows: &[SqliteRow]) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = rows.iter().map(|row| row::record(row, 0, run)).collect::<Result<_>>()?;
    records.sort_by_key(|record| record.header.seq);
    Ok(records)
}

/// Searches for a record by its id in every header of a run. Unlike the search in the database, which skips damaged records, this search fails at a
/// damaged record.
async fn find(db: &Arc<SqliteDb>, run: &RunKey, id: RecordId) -> Result<Option<Seq>> {
    let mut range = Some(HeaderRange::oldest(HeaderRange::MAX));
    while let Some(asked) = range {
        match headers(db, run, asked).await {
            Ok(answer) => match answer.items.iter().find(|header| header.id == id) {
                Some(found) => return Ok(Some(found.seq)),
                None => range = asked.after(&answer),
            },
            // The run was purged meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.with_operation(LOAD)),
        }
    }
    Ok(None)
}

/// Loads the records after `known`. Loads from the newest base on if the run does not have `known` any more.
pub(crate) async fn load_since(
    db: &Arc<SqliteDb>,
    run: &RunKey,
    known: HeadRef,
) -> Result<Option<Vec<Record>>> {
    let look = with_records(
        named(run).bind(number(known.seq)),
        "NULL",
        "CASE WHEN c.seq > ?3 THEN c.body END",
        "c.seq >= ?3",
    );
    let rows = db.read(look).await.map_err(|failed| failed.of_run(LOAD, run))?;
    match records_after(run, known, &rows).map_err(|error| error.with_operation(LOAD).with_run(run))? {
        Some(news) => Ok(Some(news)),
        None => load(db, run, At::Latest).await,
    }
}

/// Parses the records after `known`. Returns `None` if `known` is gone or a record is unreadable; a load then reports the reason.
fn records_after(run: &RunKey, known: HeadRef, rows: &[SqliteRow]) -> Result<Option<Vec<Record>>> {
    let Some((first, rest)) = rows.split_first() else { return Ok(None) };
    let Some(stored) = StoredRun::read(first, 0)? else { return Ok(None) };
    let is_known = |row: &SqliteRow| row::header(row, 0, run).is_ok_and(|header| header.head() == known);
    let Some(at) = rest.iter().position(is_known) else { return Ok(None) };
    let after: Vec<&SqliteRow> = rest[..at].iter().chain(&rest[at + 1..]).collect();
    let mut records: Vec<Record> =
        after.into_iter().map(|row| row::record(row, 0, run)).collect::<Result<_>>()?;
    records.sort_by_key(|record| record.header.seq);
    check_news(run, known, &records)?;
    let last = records.last().map_or(known.seq, |record| record.header.seq);
    match last == stored.last.seq {
        true => Ok(Some(records)),
        false => Err(refusal::gone(run, last.next())),
    }
}

/// Lists the headers of a range, by the key of the table, without reading bodies.
pub(crate) async fn headers(db: &Arc<SqliteDb>, run: &RunKey, range: HeaderRange) -> Result<Headers> {
    let (anchor, within) = match range.anchor() {
        Anchor::From(seq) => {
            (seq, "c.seq >= max(?3, found.first_seq) AND c.seq < max(?3, found.first_seq) + ?4")
        }
        Anchor::UpTo(seq) => (
            seq,
            "c.seq <= min(?3, found.head_seq) AND c.seq > min(?3, found.head_seq) - ?4 AND c.seq >= found.first_seq",
        ),
    };
    // No record has a number above the largest number minus a page.
    let anchor = number(anchor).min(i64::MAX - i64::from(HeaderRange::MAX));
    let values = named(run).bind(anchor).bind(i64::from(range.limit()));
    let rows = db.read(with_records(values, "NULL", "NULL", within)).await;
    let rows = rows.map_err(|failed| failed.of_run(HEADERS, run))?;
    let read = || {
        let (first, rest) = rows.split_first().ok_or_else(|| refusal::no_run(HEADERS, run))?;
        let stored = StoredRun::read(first, 0)?.ok_or_else(|| refusal::no_run(HEADERS, run))?;
        let mut items = rest.iter().map(|row| row::header(row, 0, run)).collect::<Result<Vec<_>>>()?;
        items.sort_by_key(|header| header.seq);
        Headers::whole(run, range, (stored.first, stored.last.seq), items)
    };
    read().map_err(|error: Error| error.with_operation(HEADERS).with_run(run))
}
