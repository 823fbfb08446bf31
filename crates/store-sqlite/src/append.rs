//! Appends: the reads under the lock, the decision about each entry, and the rows to write.

use ferrata_store::index::RunStanding;
use ferrata_store::{Error, HeadRef, Record, Result, RunAppend, RunKey, Seq, is_repeat, refusal};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::error::{SqliteCallEffect, SqliteStoreError, classify_error};
use crate::row::{self, facts_text, get, header_columns, header_text, number, run_sum};
use crate::statement::{SqlStatement, SqlValue};
use crate::stored_run::{self, StoredRun, standing_values};

const OPERATION: &str = "store.append";

/// The maximum number of rows of values in one statement: SQLite limits the number of values and the length of a text.
const MAX_ROWS: usize = 2_000;

/// The number of columns before the columns of a run: the index of the entry, and the greatest keys of the tables of runs and of records.
const BEFORE: usize = 3;

/// Reads the run of each entry, and the greatest key in use. A key of a damaged run's remaining rows also counts as in use.
pub(crate) fn find_runs(entries: &[RunAppend]) -> SqlStatement {
    let columns = stored_run::columns();
    let before = format!(
        "SELECT v.place, (SELECT max(key) FROM ferrata_runs), (SELECT max(run) FROM ferrata_records), {columns} FROM {}",
        stored_run::tables("(SELECT column1 AS place, column2 AS tenant, column3 AS run FROM (VALUES |))")
    );
    let Some((before, after)) = before.split_once('|') else { return SqlStatement::default() };
    let after = format!("{after};");
    let rows = (0_i64..).zip(entries).map(|(place, entry)| {
        let RunKey { tenant, run } = &entry.run;
        [place.into(), tenant.as_str().into(), run.as_str().into()]
    });
    let mut rows = rows.peekable();
    let mut look = SqlStatement::default();
    while rows.peek().is_some() {
        look.rows(before, rows.by_ref().take(MAX_ROWS), &after);
    }
    look
}

/// Appends to a run if its head is the expected head and the run stays in the same listings. Writes all rows or none. Returns `None` if the entry
/// needs more work than this statement can do.
pub(crate) fn step(entry: &RunAppend) -> Option<(SqlStatement, HeadRef)> {
    let (expected, last) = (entry.expected?, &entry.records.last()?.header);
    let mut rows = Vec::with_capacity(entry.records.len());
    for record in &entry.records {
        let [_, rest @ ..] = row_of(&entry.run, 0, record).ok()?;
        rows.push(rest);
    }
    let mut step = SqlStatement::default();
    // The plus signs matter. Without them, SQLite takes these values for a hint that a partial index might fit, and prepares the text again for
    // each value.
    let after = ") v JOIN ferrata_heads h JOIN ferrata_runs r ON r.key = h.key JOIN ferrata_records c ON c.run = h.key AND c.seq = h.seq \
         WHERE h.tenant = ? AND h.run = ? AND h.seq = ? AND +r.tenant = h.tenant AND +r.run = h.run \
         AND CASE WHEN json_valid(c.header) THEN c.header ->> '$.id' END = ? \
         AND +r.status = ? AND +r.owner = ? AND +r.wake_at IS ?";
    let before = "INSERT INTO ferrata_records (run, seq, base, header, sum, body) \
         SELECT h.key, v.column1, v.column2, v.column3, v.column4, v.column5 FROM (VALUES ";
    if rows.len() > MAX_ROWS {
        return None;
    }
    step.rows(before, rows, after);
    let (RunKey { tenant, run }, standing) = (&entry.run, RunStanding::after(last));
    let [status, owner, wake_at] = standing_values(&standing);
    let step = step
        .bind(tenant.as_str())
        .bind(run.as_str())
        .bind(number(expected.seq))
        .bind(expected.id.to_string());
    Some((step.bind(status).bind(owner).bind(wake_at), last.head()))
}

/// Converts a record to a row of the run with this key.
fn row_of(run: &RunKey, key: i64, record: &Record) -> Result<[SqlValue; 6]> {
    let (text, sum) = header_text(run, &record.header)?;
    let (seq, base) = (number(record.header.seq), i64::from(record.header.base));
    Ok([key.into(), seq.into(), base.into(), text.into(), sum.into(), SqlValue::Bytes(record.body.to_vec())])
}

/// Decides about each entry from the rows of [`find_runs`]. Returns the rows to write. Skips a start whose caller has stopped waiting: a later run
/// with the same id may already have ended.
pub(crate) async fn decide(
    connection: &mut SqliteConnection,
    entries: &[RunAppend],
    rows: &[SqliteRow],
    is_awaited: impl Fn(usize) -> bool,
) -> Result<(Vec<Result<HeadRef>>, Vec<SqlStatement>), SqliteStoreError> {
    let mut results: Vec<_> = entries.iter().map(|entry| Err(missing_row_error(&entry.run))).collect();
    let mut writes = RowWrites::default();
    for row in rows {
        let place = get::<i64>(row, 0).ok().and_then(|place| usize::try_from(place).ok());
        let Some((place, entry)) = place.and_then(|place| Some((place, entries.get(place)?))) else {
            continue;
        };
        let run = &entry.run;
        results[place] = match StoredRun::read(row, BEFORE) {
            Ok(found) => match found.as_ref().map(|found| found.last.head()) {
                None if entry.expected.is_none() && !is_awaited(place) => {
                    Err(SqliteStoreError::abandoned_error().of_run(OPERATION, run))
                }
                actual if actual == entry.expected => {
                    let greatest = |at| get::<Option<i64>>(row, at).ok().flatten().unwrap_or(0);
                    writes.add(entry, found.as_ref(), greatest(1).max(greatest(2)))
                }
                actual => match found.filter(|found| is_end(entry, found)) {
                    Some(found) => match is_written(connection, entry, &found).await? {
                        Ok(true) => Ok(found.last.head()),
                        Ok(false) => Err(refusal::conflict(run, entry.expected, actual)),
                        Err(error) => Err(error),
                    },
                    None => Err(refusal::conflict(run, entry.expected, actual)),
                },
            },
            Err(error) => Err(error),
        }
        .map_err(|error: Error| error.with_operation(OPERATION).with_run(run));
    }
    Ok((results, writes.statements()))
}

/// Every entry has a row; this error replaces a panic if one is missing.
fn missing_row_error(run: &RunKey) -> Error {
    let failed = SqliteStoreError::new(
        ferrata_store::ErrorKind::Indeterminate,
        "the entry got no result; retry with the same records",
    );
    failed.of_run(OPERATION, run)
}

/// Returns whether the last record of the entry is the head of the run.
fn is_end(entry: &RunAppend, found: &StoredRun) -> bool {
    entry.records.last().is_some_and(|last| last.header.id == found.last.id)
}

/// Returns whether the log already ends with the entry, as in a retry after a lost reply.
async fn is_written(
    connection: &mut SqliteConnection,
    entry: &RunAppend,
    found: &StoredRun,
) -> Result<Result<bool>, SqliteStoreError> {
    let count = i64::try_from(entry.records.len()).unwrap_or(i64::MAX);
    let header = header_columns("c");
    let look = SqlStatement::new(&format!(
        "SELECT {header} FROM ferrata_records c WHERE c.run = ? ORDER BY c.seq DESC LIMIT ?"
    ));
    let rows = look.bind(found.key).bind(count).query().fetch_all(connection).await;
    let rows = rows.map_err(|error| classify_error(&error, SqliteCallEffect::Read))?;
    let decide = || {
        let kept: Vec<_> = rows.iter().map(|row| row::header(row, 0, &entry.run)).collect::<Result<_>>()?;
        let is_of_facts = match &entry.facts {
            Some(given) => *given == found.facts()?,
            None => true,
        };
        Ok(is_of_facts && is_repeat(&kept, entry))
    };
    Ok(decide())
}

/// The rows that a transaction writes.
#[derive(Default)]
struct RowWrites {
    new: Vec<[SqlValue; 12]>,
    heads: Vec<[SqlValue; 4]>,
    moved: Vec<[SqlValue; 4]>,
    records: Vec<[SqlValue; 6]>,
}

impl RowWrites {
    fn add(&mut self, entry: &RunAppend, found: Option<&StoredRun>, greatest: i64) -> Result<HeadRef> {
        let last =
            entry.records.last().map(|record| &record.header).ok_or_else(|| missing_row_error(&entry.run))?;
        let key = match found {
            Some(found) => found.key,
            None => greatest.saturating_add(1 + i64::try_from(self.new.len()).unwrap_or(0)),
        };
        let mut records = Vec::with_capacity(entry.records.len());
        for record in &entry.records {
            records.push(row_of(&entry.run, key, record)?);
        }
        let standing = RunStanding::after(last);
        let [status, owner, wake_at] = standing_values(&standing);
        match (found, &entry.facts) {
            // Most records move no run between listings. Then only the records and the head are written.
            (Some(found), _) if RunStanding::after(&found.last) == standing => {}
            (Some(_), _) => self.moved.push([key.into(), status, owner, wake_at]),
            (None, Some(facts)) => {
                let text = facts_text(facts)?;
                let sum = run_sum(&entry.run, Seq::new(0), &text);
                let RunKey { tenant, run } = &entry.run;
                let head = [tenant.as_str().into(), run.as_str().into(), key.into(), number(last.seq).into()];
                self.heads.push(head);
                let user = SqlValue::Text(facts.user.clone());
                let parent = SqlValue::Text(facts.parent.as_ref().map(|parent| parent.run.to_string()));
                let (created, workflow) = (facts.created.unix_ms().into(), facts.workflow.as_str().into());
                let names = [key.into(), tenant.as_str().into(), run.as_str().into()];
                let [key, tenant, run] = names;
                let row = [
                    key,
                    tenant,
                    run,
                    status,
                    owner,
                    wake_at,
                    created,
                    workflow,
                    user,
                    parent,
                    text.into(),
                    sum.into(),
                ];
                self.new.push(row);
            }
            (None, None) => return Err(missing_row_error(&entry.run)),
        }
        self.records.extend(records);
        Ok(last.head())
    }

    fn statements(self) -> Vec<SqlStatement> {
        let mut all: Vec<SqlStatement> = Vec::new();
        let new = "INSERT INTO ferrata_runs (key, tenant, run, status, owner, wake_at, created, workflow, user_name, parent, \
             facts, sum, first_seq) SELECT *, 0 FROM (VALUES ";
        add(&mut all, new, self.new, ");");
        let heads = "INSERT INTO ferrata_heads (tenant, run, key, seq) VALUES ";
        add(&mut all, heads, self.heads, ";");
        let moved = "UPDATE ferrata_runs SET status = v.column2, owner = v.column3, wake_at = v.column4 FROM (VALUES ";
        add(&mut all, moved, self.moved, ") v WHERE key = v.column1;");
        add(
            &mut all,
            "INSERT INTO ferrata_records (run, seq, base, header, sum, body) VALUES ",
            self.records,
            ";",
        );
        all
    }
}

/// Adds the rows to the last statement, or to further statements if there are many rows.
fn add<const N: usize>(all: &mut Vec<SqlStatement>, before: &str, rows: Vec<[SqlValue; N]>, after: &str) {
    let mut rows = rows.into_iter().peekable();
    while rows.peek().is_some() {
        let mut next = SqlStatement::default();
        next.rows(before, rows.by_ref().take(MAX_ROWS), after);
        match all.pop() {
            Some(last) if last.len() + next.len() <= MAX_ROWS => all.push(last.join(next)),
            last => all.extend(last.into_iter().chain([next])),
        }
    }
}
