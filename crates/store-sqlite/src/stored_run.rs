//! A stored run: finds it by its name, and checks that its parts agree before any use.
//!
//! Three tables store a run, each in its own tree. The head maps the name to the key and marks the end of the log, the row has the facts, and the
//! records are the log. If one of them lost or changed data, it contradicts the others, and the read fails with `Corrupt`. The table of rows has an
//! index of names. It is read only if the head is missing, to distinguish a run that lost its head from a run that does not exist.

use ferrata_store::index::RunStanding;
use ferrata_store::{RecordHeader, Result, RunFacts, RunHead, RunKey, Seq, Timestamp, refusal};
use sqlx::sqlite::SqliteRow;

use crate::row::{self, HEADER_LEN, corrupt, get, header_columns, seq_at};
use crate::statement::{SqlStatement, SqlValue};

/// The columns of a run, in order.
#[derive(Clone, Copy)]
enum RunColumn {
    Tenant,
    Run,
    HeadKey,
    HeadSeq,
    RowKey,
    RowTenant,
    RowRun,
    FirstSeq,
    Status,
    Owner,
    WakeAt,
    Created,
    Workflow,
    UserName,
    Parent,
    Facts,
    RowSum,
    LastSeq,
}

/// The columns of the tables that [`tables`] joins, with their names in the surrounding statement.
const COLUMNS: [(RunColumn, &str); 18] = [
    (RunColumn::Tenant, "v.tenant AS tenant"),
    (RunColumn::Run, "v.run AS run"),
    (RunColumn::HeadKey, "h.key AS head_key"),
    (RunColumn::HeadSeq, "h.seq AS head_seq"),
    (RunColumn::RowKey, "r.key AS row_key"),
    (RunColumn::RowTenant, "r.tenant AS row_tenant"),
    (RunColumn::RowRun, "r.run AS row_run"),
    (RunColumn::FirstSeq, "r.first_seq AS first_seq"),
    (RunColumn::Status, "r.status AS status"),
    (RunColumn::Owner, "r.owner AS owner"),
    (RunColumn::WakeAt, "r.wake_at AS wake_at"),
    (RunColumn::Created, "r.created AS created"),
    (RunColumn::Workflow, "r.workflow AS workflow"),
    (RunColumn::UserName, "r.user_name AS user_name"),
    (RunColumn::Parent, "r.parent AS parent"),
    (RunColumn::Facts, "r.facts AS facts"),
    (RunColumn::RowSum, "r.sum AS row_sum"),
    (RunColumn::LastSeq, "(SELECT max(m.seq) FROM ferrata_records m WHERE m.run = h.key) AS last_seq"),
];

/// The number of columns of a run, including the columns of its last record.
pub(crate) const LEN: usize = COLUMNS.len() + HEADER_LEN;

/// Returns the columns of a run.
pub(crate) fn columns() -> String {
    format!("{}, {}", COLUMNS.map(|(_, column)| column).join(", "), header_columns("c"))
}

/// Returns the join of the tables for the runs whose names are in the columns `tenant` and `run` of `names`.
pub(crate) fn tables(names: &str) -> String {
    format!(
        "{names} v LEFT JOIN ferrata_heads h ON h.tenant = v.tenant AND h.run = v.run \
         LEFT JOIN ferrata_runs r ON r.key = coalesce(h.key, \
             (SELECT n.key FROM ferrata_runs n WHERE n.tenant = v.tenant AND n.run = v.run)) \
         LEFT JOIN ferrata_records c ON c.run = h.key AND c.seq = h.seq"
    )
}

/// A table with the name of one run, which the first two values of the statement give.
pub(crate) const NAMED: &str = "(SELECT ?1 AS tenant, ?2 AS run)";

/// Begins a statement about one run, with the run's name as the first two values.
pub(crate) fn named(run: &RunKey) -> SqlStatement {
    SqlStatement::default().bind(run.tenant.as_str()).bind(run.run.as_str())
}

/// Builds a statement that returns the columns of a run with one more column, and after it records of the run. The records are those of table `c`
/// in `range`, with the body as a fifth column. `range` refers to the run's columns as columns of `found`. The statement reads one consistent state
/// of the database.
pub(crate) fn with_records(values: SqlStatement, more: &str, body: &str, range: &str) -> SqlStatement {
    let (columns, tables, header) = (columns(), tables(NAMED), header_columns("c"));
    // Both parts must have the same number of columns.
    let rest = ", NULL".repeat(LEN - HEADER_LEN);
    values.and(&format!(
        "WITH found AS MATERIALIZED (SELECT {columns}, {more} FROM {tables}) SELECT * FROM found \
         UNION ALL SELECT {header}, {body}{rest} FROM found JOIN ferrata_records c ON c.run = found.head_key AND {range}"
    ))
}

/// Returns whether the name has a head.
pub(crate) fn has_head(row: &SqliteRow) -> Result<bool> {
    Ok(get::<Option<i64>>(row, RunColumn::HeadKey as usize)?.is_some())
}

/// A stored run whose parts agree.
#[derive(Debug)]
pub(crate) struct StoredRun {
    pub(crate) name: RunKey,
    pub(crate) key: i64,
    pub(crate) first: Seq,
    pub(crate) last: RecordHeader,
    /// The run's facts, as the text of the row.
    pub(crate) facts_text: String,
    listed: ListedFacts,
}

/// The columns of a run's row that repeat its facts for listings.
#[derive(Debug, PartialEq)]
struct ListedFacts {
    created: i64,
    workflow: String,
    user: Option<String>,
    parent: Option<String>,
}

impl ListedFacts {
    fn of(facts: &RunFacts) -> Self {
        Self {
            created: facts.created.unix_ms(),
            workflow: facts.workflow.as_str().to_owned(),
            user: facts.user.clone(),
            parent: facts.parent.as_ref().map(|parent| parent.run.to_string()),
        }
    }
}

impl StoredRun {
    /// Reads a run from its columns, which begin at column `at`. Returns `None` if no run has this name.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Corrupt`](ferrata_store::ErrorKind::Corrupt): the parts of the run contradict each other.
    /// - [`ErrorKind::Unsupported`](ferrata_store::ErrorKind::Unsupported): a newer version wrote the last record.
    ///
    /// Both name the run.
    pub(crate) fn read(row: &SqliteRow, at: usize) -> Result<Option<Self>> {
        let name = row::key(row, at)?;
        Self::read_named(row, at, &name).map_err(|error| error.with_run(&name))
    }

    fn read_named(row: &SqliteRow, at: usize, name: &RunKey) -> Result<Option<Self>> {
        let column = |column: RunColumn| at + column as usize;
        let row_key = get::<Option<i64>>(row, column(RunColumn::RowKey))?;
        let key = match (get::<Option<i64>>(row, column(RunColumn::HeadKey))?, row_key) {
            (None, None) => return Ok(None),
            (Some(key), Some(of_row)) if key == of_row => key,
            (None, _) => return Err(corrupt("the head of the run is missing")),
            _ => return Err(corrupt("the head of the run points to no run")),
        };
        if row::key(row, column(RunColumn::RowTenant))? != *name {
            return Err(corrupt("the head of the run points to another run"));
        }
        let first = seq_at(row, column(RunColumn::FirstSeq))?;
        let facts_text = get::<String>(row, column(RunColumn::Facts))?;
        if row::run_sum(name, first, &facts_text) != get::<i64>(row, column(RunColumn::RowSum))? {
            return Err(corrupt("the row of the run does not match its checksum"));
        }
        let last = seq_at(row, column(RunColumn::HeadSeq))?;
        if get::<Option<i64>>(row, column(RunColumn::LastSeq))? != Some(row::number(last)) {
            return Err(refusal::gone(name, last));
        }
        let last = row::header_at(row, at + COLUMNS.len(), name, last)?;
        if last.seq < first {
            return Err(corrupt("the first record of the run is after its last record"));
        }
        let status = get::<&str>(row, column(RunColumn::Status))?;
        let owner = get::<&str>(row, column(RunColumn::Owner))?;
        let standing = [status.into(), owner.into(), SqlValue::Number(get(row, column(RunColumn::WakeAt))?)];
        if standing != standing_values(&RunStanding::after(&last)) {
            return Err(corrupt(
                "the status, owner or time in the row of the run differs from its last record",
            ));
        }
        let listed = ListedFacts {
            created: get(row, column(RunColumn::Created))?,
            workflow: get(row, column(RunColumn::Workflow))?,
            user: get(row, column(RunColumn::UserName))?,
            parent: get(row, column(RunColumn::Parent))?,
        };
        Ok(Some(Self { name: name.clone(), key, first, last, facts_text, listed }))
    }

    /// Parses the run's facts.
    pub(crate) fn facts(&self) -> Result<RunFacts> {
        let odd = |error| corrupt("the facts of the run are invalid").with_source(error);
        let facts: RunFacts = serde_json::from_str(&self.facts_text).map_err(odd)?;
        if self.listed != ListedFacts::of(&facts) {
            let what = "the creation, workflow, user or parent in the row of the run differs from its facts";
            return Err(corrupt(what).with_run(&self.name));
        }
        Ok(facts)
    }

    pub(crate) fn head(&self, owner_alive: bool) -> Result<RunHead> {
        let facts = self.facts()?;
        Ok(RunHead::after(self.name.clone(), self.first, &self.last, owner_alive, facts))
    }
}

/// Returns the values for the columns status, owner and wake-up time of a run's row.
pub(crate) fn standing_values(standing: &RunStanding) -> [SqlValue; 3] {
    let RunStanding { status, owner, wake_at } = *standing;
    let owner = owner.map(|owner| owner.to_string()).unwrap_or_default();
    [status.as_str().into(), owner.into(), SqlValue::Number(wake_at.map(Timestamp::unix_ms))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_in_their_order() {
        let places: Vec<usize> = COLUMNS.iter().map(|(column, _)| *column as usize).collect();
        assert_eq!(places, (0..COLUMNS.len()).collect::<Vec<_>>());
    }
}
