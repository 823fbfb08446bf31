//! Lists runs: builds an SQL query that an index answers, and reads a page with one statement.

use std::sync::Arc;

use ferrata_store::{
    Error, Listing, Order, Page, Paged, Result, RunFilter, RunHead, RunPlace, RunQuery, RunStatus, Timestamp,
};
use sqlx::sqlite::SqliteRow;

use crate::db::SqliteDb;
use crate::load::{self, alive_column};
use crate::row::{self, corrupt, get};
use crate::statement::{SqlStatement, SqlValue};
use crate::stored_run::{self, StoredRun};

const OPERATION: &str = "store.runs";

/// The columns that a listing reads of a run's row. The matching index has them, too.
const PLACE: &str = "r.key, r.created, r.tenant, r.run";

/// The condition of the index `ferrata_runs_to_adopt`, with exactly the same text.
const TO_ADOPT: &str = "r.status = 'in_progress' AND r.wake_at IS NULL";

/// The condition of the index `ferrata_runs_by_wake`, with exactly the same text.
const TO_WAKE: &str = "r.wake_at IS NOT NULL";

/// Lists a page of the runs that match the query.
pub(crate) async fn run(
    db: &Arc<SqliteDb>,
    asked: &RunQuery,
    page: &Page,
    now: Timestamp,
) -> Result<Paged<RunHead>> {
    let listing = Listing::of_runs(asked, page.order);
    let after = listing.after(page).map_err(|error| error.with_operation(OPERATION))?;
    let wanted = page.max_items();
    let statement = |columns: ListColumns| {
        statement(columns, asked, page.order, after.as_ref(), wanted + 1, now.unix_ms())
    };
    let whole = db.read(statement(ListColumns::Heads)).await;
    // A damaged page of one run must not hide other runs. Take the keys from the index, and read each run by itself.
    let (rows, is_whole) = match whole {
        Err(failed) if failed.is_damage() => (db.read(statement(ListColumns::Names)).await, false),
        whole => (whole, true),
    };
    let rows = rows.map_err(|failed| failed.into_error(OPERATION))?;
    let more = rows.len() > wanted;
    let mut items = Vec::with_capacity(rows.len().min(wanted));
    let mut last = None;
    for row in rows.iter().take(wanted) {
        // Take the position from the index, so that the next page continues after a skipped run.
        last = Some((get::<i64>(row, 1)?, get::<String>(row, 2)?, get::<String>(row, 3)?));
        let head = match is_whole {
            true => listed(row).map(Some),
            false => head_of(db, row, now).await,
        };
        let head = head.and_then(|head| match head {
            Some(head) if !asked.matches(&head, now) => {
                Err(corrupt("an index lists a run that does not match the query, run `REINDEX`")
                    .with_run(&head.run))
            }
            head => Ok(head),
        });
        match head {
            Ok(head) => items.extend(head),
            Err(error) if asked.complete => return Err(error.with_operation(OPERATION)),
            Err(error) => tracing::warn!(%error, "skipped an unreadable run in a listing"),
        }
    }
    // Write the cursor from the columns of the index and not from a parsed run. If a name in the index is invalid, the listing can still continue
    // after it.
    let next = last.filter(|_| more);
    let next = next.map(|(created, tenant, run)| listing.cursor(format_args!("{created}.{tenant}/{run}")));
    Ok(Paged { items, next })
}

/// The columns that a listing reads.
#[derive(Clone, Copy)]
enum ListColumns {
    /// The columns of the index: key, time of creation and name.
    Names,
    /// The columns of the index, then the columns of a run, and whether its owner is alive.
    Heads,
}

/// The columns of [`ListColumns::Names`].
const NAMES: &str = "v.key, v.created, v.tenant, v.run";
const BEFORE: usize = 4;

/// Reads the head of a run that an index lists.
fn listed(row: &SqliteRow) -> Result<RunHead> {
    let name = row::key(row, 2)?;
    let read = || {
        let stored = StoredRun::read(row, BEFORE)?;
        let stored = stored.filter(|stored| get::<i64>(row, 0).is_ok_and(|key| key == stored.key));
        let stored = stored.ok_or_else(|| corrupt("an index entry points to another run, run `REINDEX`"))?;
        let head = stored.head(get(row, BEFORE + stored_run::LEN)?)?;
        match get::<i64>(row, 1)? == head.facts.created.unix_ms() {
            true => Ok(head),
            false => Err(corrupt("an index entry has another creation time than the run, run `REINDEX`")),
        }
    };
    read().map_err(|error: Error| error.with_run(&name))
}

async fn head_of(db: &Arc<SqliteDb>, row: &SqliteRow, now: Timestamp) -> Result<Option<RunHead>> {
    load::head(db, &row::key(row, 2)?, now).await
}

fn statement(
    columns: ListColumns,
    asked: &RunQuery,
    order: Order,
    after: Option<&RunPlace>,
    limit: usize,
    now: i64,
) -> SqlStatement {
    // The time is always the first value.
    let mut values = SqlStatement::default().bind(now);
    let mut conditions = conditions(asked, &mut values);
    let (comparison, direction) = match order {
        Order::NewestFirst => ("<", "DESC"),
        Order::OldestFirst | Order::Any => (">", "ASC"),
    };
    if let Some(RunPlace { created, run }) = after {
        let created = values.name(created.unix_ms());
        let (tenant, run) = (values.name(run.tenant.as_str()), values.name(run.run.as_str()));
        conditions.push(format!("(r.created, r.tenant, r.run) {comparison} ({created}, {tenant}, {run})"));
    }
    let order =
        format!("ORDER BY r.created {direction}, r.tenant {direction}, r.run {direction} LIMIT {limit}");
    let mut statuses: Vec<String> = Vec::new();
    if asked.statuses.len() < RunStatus::ALL.len() {
        let named = RunStatus::ALL.into_iter().filter(|status| asked.statuses.contains(status));
        statuses.extend(named.map(|status| format!("r.status = '{status}'")));
    }
    let alive = "SELECT h.executor FROM ferrata_heartbeats h WHERE h.until > ?1 AND h.twin = -h.until";
    // SQLite would also consider the index of statuses, which includes the runs with live owners.
    let (mut before, mut index) = (String::new(), "");
    match asked.filter {
        RunFilter::Any => {}
        RunFilter::Orphaned => {
            // The query steps from owner to owner in the index. So its cost depends on the number of executors and of orphaned runs, and not on the
            // number of runs in progress.
            index = "INDEXED BY ferrata_runs_to_adopt";
            let next = |than: &str| {
                format!("SELECT min(r.owner) FROM ferrata_runs r {index} WHERE {TO_ADOPT}{than}")
            };
            before = format!(
                "WITH RECURSIVE owners(owner) AS ({} UNION ALL SELECT ({}) FROM owners o WHERE o.owner IS NOT NULL) ",
                next(""),
                next(" AND r.owner > o.owner"),
            );
            let dead = format!(
                "SELECT o.owner FROM owners o WHERE o.owner IS NOT NULL AND o.owner NOT IN ({alive})"
            );
            conditions.push(format!("{TO_ADOPT} AND r.owner IN ({dead})"));
        }
        RunFilter::Due => {
            index = "INDEXED BY ferrata_runs_by_wake";
            conditions.push(format!("{TO_WAKE} AND r.wake_at <= ?1 AND r.owner NOT IN ({alive})"));
        }
        // If a later version adds a condition, select nothing rather than everything.
        _ => conditions.push("0".to_owned()),
    }
    let from = match statuses.as_slice() {
        // Select the first runs of each status, so that an index can return them in order.
        [_, _, ..] if asked.filter == RunFilter::Any => {
            let each = statuses.iter().map(|status| {
                let all = conditions.iter().chain([status]).cloned().collect::<Vec<_>>().join(" AND ");
                format!("SELECT * FROM (SELECT {PLACE} FROM ferrata_runs r WHERE {all} {order})")
            });
            each.collect::<Vec<_>>().join(" UNION ALL ")
        }
        _ => {
            if !statuses.is_empty() {
                conditions.push(format!("({})", statuses.join(" OR ")));
            }
            let all = if conditions.is_empty() { "1".to_owned() } else { conditions.join(" AND ") };
            format!("SELECT {PLACE} FROM ferrata_runs r {index} WHERE {all} {order}")
        }
    };
    let order = order.replace("r.", "v.");
    values.and(&match columns {
        ListColumns::Names => format!("{before}SELECT {NAMES} FROM ({from}) v {order}"),
        ListColumns::Heads => {
            let (columns, alive) = (stored_run::columns(), alive_column("?1"));
            let tables = stored_run::tables(&format!("({from})"));
            format!("{before}SELECT {NAMES}, {columns}, {alive} FROM {tables} {order}")
        }
    })
}

/// The labels that have an index. They find the run tree of a run among all runs.
const INDEXED: [&str; 2] = ["ferrata.parent", "ferrata.root"];

/// Returns the conditions of a query, except for those of statuses and of the filter.
fn conditions(asked: &RunQuery, values: &mut SqlStatement) -> Vec<String> {
    let mut conditions = Vec::new();
    let mut compare = |column: &str, how: &str, value: Option<SqlValue>| {
        if let Some(value) = value {
            let named = values.name(value);
            conditions.push(format!("{column} {how} {named}"));
        }
    };
    compare("r.tenant", "=", asked.tenant.as_ref().map(|tenant| tenant.as_str().into()));
    compare("r.workflow", "=", asked.workflow.as_ref().map(|workflow| workflow.as_str().into()));
    compare("r.user_name", "=", asked.user.as_deref().map(Into::into));
    compare("r.created", ">=", asked.created_from.map(|from| from.unix_ms().into()));
    compare("r.created", "<", asked.created_before.map(|before| before.unix_ms().into()));
    compare("r.parent", "=", asked.parent.as_ref().map(|parent| parent.to_string().into()));
    compare("r.owner <> '' AND r.owner", "=", asked.owner.map(|owner| owner.to_string().into()));
    for (key, value) in &asked.labels {
        if INDEXED.contains(&&**key) {
            // The same expression as in the index.
            let label = format!("CASE WHEN json_valid(r.facts) THEN r.facts ->> '$.labels.\"{key}\"' END");
            let value = values.name(value.as_str());
            conditions.push(format!("{label} IS NOT NULL AND {label} = {value}"));
            continue;
        }
        let (key, value) = (values.name(key.as_str()), values.name(value.as_str()));
        conditions.push(format!(
            "EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(r.facts) THEN r.facts ELSE '{{}}' END, '$.labels') l \
             WHERE l.key = {key} AND l.value = {value})"
        ));
    }
    conditions
}

#[cfg(test)]
mod tests;
