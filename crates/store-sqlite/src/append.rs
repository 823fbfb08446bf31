//! Appending: what is looked at under the lock, what is decided of each entry, and the rows that are written.

use ferrata_store::{Error, HeadRef, Record, RecordHeader, Result, RunAppend, RunKey, is_repeat, refusal};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::error::{Call, StoreError, fault};
use crate::row::{self, HEADER, LAST, facts_text, get, header_text, number};
use crate::statement::{Statement, Value};

const OPERATION: &str = "store.append";

/// How many rows of values one text has at most: SQLite bounds the values and the length of a text.
const MAX_ROWS: usize = 2_000;

/// Reads where the run of each entry stands, and the greatest key in use.
pub(crate) fn look(entries: &[RunAppend]) -> Statement {
    let before = format!(
        "SELECT v.column1, r.key, r.first_seq, (SELECT max(key) FROM ferrata_runs), {HEADER} FROM (VALUES "
    );
    let after = format!(") v LEFT JOIN ferrata_runs r ON r.tenant = v.column2 AND r.run = v.column3 {LAST};");
    let rows = (0_i64..).zip(entries).map(|(place, entry)| {
        let RunKey { tenant, run } = &entry.run;
        [place.into(), tenant.as_str().into(), run.as_str().into()]
    });
    let mut rows = rows.peekable();
    let mut look = Statement::default();
    while rows.peek().is_some() {
        look.rows(&before, rows.by_ref().take(MAX_ROWS), &after);
    }
    look
}

/// Appends to a run whose head is the expected one and which these records move between no listings: it writes all rows or none. `None`
/// for an entry for which more than this is to be done.
pub(crate) fn step(entry: &RunAppend) -> Option<(Statement, HeadRef)> {
    let (expected, last) = (entry.expected?, &entry.records.last()?.header);
    let mut rows = Vec::with_capacity(entry.records.len());
    for record in &entry.records {
        let [_, rest @ ..] = row_of(0, record).ok()?;
        rows.push(rest);
    }
    let mut step = Statement::default();
    // Without the plus, SQLite takes these values for a hint that a partial index might do, and prepares the text anew for each of them.
    let after = format!(
        ") v JOIN ferrata_runs r {LAST} WHERE r.tenant = ? AND r.run = ? AND c.seq = ? \
         AND CASE WHEN json_valid(c.header) THEN c.header ->> '$.id' END = ? \
         AND +r.status = ? AND +r.owner = ? AND +r.wake_at IS ?"
    );
    let before = "INSERT INTO ferrata_records (run, seq, base, header, sum, body) \
         SELECT r.key, v.column1, v.column2, v.column3, v.column4, v.column5 FROM (VALUES ";
    if rows.len() > MAX_ROWS {
        return None;
    }
    step.rows(before, rows, &after);
    let (RunKey { tenant, run }, [status, owner, wake_at]) = (&entry.run, standing(last));
    let step = step
        .bind(tenant.as_str())
        .bind(run.as_str())
        .bind(number(expected.seq))
        .bind(expected.id.to_string());
    Some((step.bind(status).bind(owner).bind(wake_at), last.head()))
}

/// Returns a record as a row of the run with this key.
fn row_of(key: i64, record: &Record) -> Result<[Value; 6]> {
    let (text, sum) = header_text(&record.header)?;
    let (seq, base) = (number(record.header.seq), i64::from(record.header.base));
    Ok([key.into(), seq.into(), base.into(), text.into(), sum.into(), Value::Bytes(record.body.to_vec())])
}

/// The columns before those of the last header.
const BEFORE: usize = 4;

/// A run as it stands: its key, its last header, and what its row holds of it.
struct Found {
    key: i64,
    last: RecordHeader,
    standing: [Value; 3],
}

fn found(row: &SqliteRow, run: &RunKey) -> Result<Option<Found>> {
    let Some(key) = get::<Option<i64>>(row, 1)? else { return Ok(None) };
    let last = row::header_at(row, BEFORE, run, row::seq_at(row, 2)?)?;
    let standing = standing(&last);
    Ok(Some(Found { key, last, standing }))
}

/// What the row of a run says of its last record.
fn standing(header: &RecordHeader) -> [Value; 3] {
    let owner = header.owner.map(|owner| owner.to_string()).unwrap_or_default();
    [header.status.as_str().into(), owner.into(), Value::Number(header.wake_at.map(|at| at.unix_ms()))]
}

/// Decides on each entry by the rows of [`look`], and returns what is to be written. A start that no caller awaits any more is not: the next life
/// of the run may have come and gone meanwhile.
pub(crate) async fn decide(
    connection: &mut SqliteConnection,
    entries: &[RunAppend],
    rows: &[SqliteRow],
    is_awaited: impl Fn(usize) -> bool,
) -> Result<(Vec<Result<HeadRef>>, Vec<Statement>), StoreError> {
    let mut results: Vec<_> = entries.iter().map(|entry| Err(unanswered(&entry.run))).collect();
    let mut writes = Writes::default();
    for row in rows {
        let place = get::<i64>(row, 0).ok().and_then(|place| usize::try_from(place).ok());
        let Some((place, entry)) = place.and_then(|place| Some((place, entries.get(place)?))) else {
            continue;
        };
        let run = &entry.run;
        results[place] = match found(row, run) {
            Ok(found) => match found.as_ref().map(|found| found.last.head()) {
                None if entry.expected.is_none() && !is_awaited(place) => {
                    Err(StoreError::given_up().of_run(OPERATION, run))
                }
                actual if actual == entry.expected => {
                    let greatest = get::<Option<i64>>(row, 3).ok().flatten();
                    writes.add(entry, found.as_ref(), greatest.unwrap_or(0))
                }
                Some(head) if entry.records.last().is_some_and(|last| last.header.id == head.id) => {
                    let key = found.map(|found| found.key).unwrap_or_default();
                    match is_written(connection, entry, key).await? {
                        Ok(true) => Ok(head),
                        Ok(false) => Err(refusal::conflict(run, entry.expected, Some(head))),
                        Err(error) => Err(error),
                    }
                }
                actual => Err(refusal::conflict(run, entry.expected, actual)),
            },
            Err(error) => Err(error),
        }
        .map_err(|error: Error| error.with_operation(OPERATION).with_run(run));
    }
    Ok((results, writes.statements()))
}

/// Every entry has its row; this says so instead of a panic.
fn unanswered(run: &RunKey) -> Error {
    let failed = StoreError::new(
        ferrata_store::ErrorKind::Indeterminate,
        "no answer to the entry; retry the same records",
    );
    failed.of_run(OPERATION, run)
}

/// Tells whether the entry is the end of the log already, so that it is a repeat after a lost reply.
async fn is_written(
    connection: &mut SqliteConnection,
    entry: &RunAppend,
    key: i64,
) -> Result<Result<bool>, StoreError> {
    let count = i64::try_from(entry.records.len()).unwrap_or(i64::MAX);
    let look = Statement::new(&format!(
        "SELECT r.facts, r.sum, {HEADER} FROM ferrata_runs r JOIN ferrata_records c ON c.run = r.key \
         WHERE r.key = ? ORDER BY c.seq DESC LIMIT ?"
    ));
    let rows = look.bind(key).bind(count).query().fetch_all(connection).await;
    let rows = rows.map_err(|error| fault(&error, Call::Read))?;
    let decide = || {
        let kept: Vec<_> = rows.iter().map(|row| row::header(row, 2, &entry.run)).collect::<Result<_>>()?;
        let is_of_facts = match (&entry.facts, rows.first()) {
            (Some(given), Some(row)) => *given == row::facts(&entry.run, row, 0)?,
            (given, _) => given.is_none(),
        };
        Ok(is_of_facts && is_repeat(&kept, entry))
    };
    Ok(decide())
}

/// The rows that a transaction writes.
#[derive(Default)]
struct Writes {
    new: Vec<[Value; 12]>,
    moved: Vec<[Value; 4]>,
    records: Vec<[Value; 6]>,
}

impl Writes {
    fn add(&mut self, entry: &RunAppend, found: Option<&Found>, greatest: i64) -> Result<HeadRef> {
        let last = entry.records.last().map(|record| &record.header).ok_or_else(|| unanswered(&entry.run))?;
        let key = match found {
            Some(found) => found.key,
            None => greatest + 1 + i64::try_from(self.new.len()).unwrap_or(0),
        };
        let mut records = Vec::with_capacity(entry.records.len());
        for record in &entry.records {
            records.push(row_of(key, record)?);
        }
        let [status, owner, wake_at] = standing(last);
        match (found, &entry.facts) {
            // Most records move no run between listings, and write nothing but themselves.
            (Some(found), _) if found.standing == [status.clone(), owner.clone(), wake_at.clone()] => {}
            (Some(_), _) => self.moved.push([key.into(), status, owner, wake_at]),
            (None, Some(facts)) => {
                let (text, sum) = facts_text(&entry.run, facts)?;
                let RunKey { tenant, run } = &entry.run;
                let user = Value::Text(facts.user.clone());
                let parent = Value::Text(facts.parent.as_ref().map(|parent| parent.run.to_string()));
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
            (None, None) => return Err(unanswered(&entry.run)),
        }
        self.records.extend(records);
        Ok(last.head())
    }

    fn statements(self) -> Vec<Statement> {
        let mut all: Vec<Statement> = Vec::new();
        let new = "INSERT INTO ferrata_runs (key, tenant, run, status, owner, wake_at, created, workflow, user_name, parent, \
             facts, sum, first_seq) SELECT *, 0 FROM (VALUES ";
        add(&mut all, new, self.new, ");");
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

/// Adds the rows to the last text, or to further ones where they are many.
fn add<const N: usize>(all: &mut Vec<Statement>, before: &str, rows: Vec<[Value; N]>, after: &str) {
    let mut rows = rows.into_iter().peekable();
    while rows.peek().is_some() {
        let mut next = Statement::default();
        next.rows(before, rows.by_ref().take(MAX_ROWS), after);
        match all.pop() {
            Some(last) if last.len() + next.len() <= MAX_ROWS => all.push(last.join(next)),
            last => all.extend(last.into_iter().chain([next])),
        }
    }
}
