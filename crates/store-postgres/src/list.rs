//! Lists runs: builds an SQL query that an index answers, and reads a page with one statement.

use std::sync::Arc;

use ferrata_store::{
    Error, ErrorKind, Listing, Order, Page, Paged, Result, RunFilter, RunHead, RunQuery, RunStatus, Timestamp,
};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row as _};
use uuid::Uuid;

use crate::db::{PostgresDb, Sql, query};
use crate::error::{PostgresCallEffect, fault};
use crate::names::Names;
use crate::row::{self, code};
use crate::stored_run::{HEAD, IS_LISTED};

const OPERATION: &str = "store.runs";

/// The condition of the indexes `runs_to_adopt` and `runs_of_nobody`, without their condition on the owner.
const TO_ADOPT: &str = "r.status = 'p' AND r.wake_at IS NULL";

/// The condition of the index `runs_to_wake`, with exactly the same text.
const TO_WAKE: &str = "r.wake_at IS NOT NULL";

/// A value that a query compares with a column.
#[derive(Clone, Debug)]
enum BoundValue {
    Text(String),
    Number(i64),
    Id(Uuid),
    Codes(Vec<i8>),
}

/// The conditions of a query, and the values to which they refer by number.
#[derive(Debug, Default)]
struct Conditions {
    sql: String,
    values: Vec<BoundValue>,
}

impl Conditions {
    /// Adds a value. Returns the name by which the statement refers to it.
    fn value(&mut self, value: BoundValue) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    fn and(&mut self, condition: &str) {
        self.sql.push_str(if self.sql.is_empty() { "" } else { " AND " });
        self.sql.push_str(condition);
    }

    /// Adds the condition that a run has one of these statuses. Adds nothing if there are none.
    fn one_of(&mut self, codes: Vec<i8>) {
        if let [code] = *codes {
            // A constant lets the server use partial indexes with this condition.
            self.and(&format!("r.status = '{}'", char::from(code.cast_unsigned())));
        } else if !codes.is_empty() {
            let named = self.value(BoundValue::Codes(codes));
            self.and(&format!("r.status = ANY({named}::\"char\"[])"));
        }
    }

    fn compare(&mut self, column: &str, how: &str, value: BoundValue) {
        let named = self.value(value);
        self.and(&format!("{column} {how} {named}"));
    }
}

/// Lists a page of the runs that match the query.
pub(crate) async fn run(
    db: &PostgresDb,
    names: &Names,
    asked: &RunQuery,
    page: &Page,
) -> Result<Paged<RunHead>> {
    let listing = Listing::of_runs(asked, page.order);
    let after = listing.after(page).map_err(|error| error.with_operation(OPERATION))?;
    let after =
        after.map(|place| (place.created.unix_ms(), place.run.tenant.to_string(), place.run.run.to_string()));
    let wanted = page.max_items();
    let Some((sql, values)) = statement(asked, page.order, after, wanted + 1) else {
        return Ok(Paged { items: Vec::new(), next: None });
    };
    let sql: Sql = Arc::from(names.fill(&sql));
    let make = || values.iter().cloned().fold(query(&sql), bind);
    let rows = db.read(make).await.map_err(|failed| failed.into_error(OPERATION))?;
    let more = rows.len() > wanted;
    let mut items = Vec::with_capacity(rows.len().min(wanted));
    let mut last = None;
    for row in rows.iter().take(wanted) {
        // Take the position from the row, so that the next page continues after a skipped run.
        last = Some(place(row).map_err(|error| error.with_operation(OPERATION))?);
        // The server has already compared the times.
        let head =
            row::head(row).and_then(|head| match asked.matches(&head, Timestamp::from_unix_ms(i64::MAX)) {
                true => Ok(head),
                false => Err(unasked(&head)),
            });
        match head {
            Ok(head) => items.push(head),
            Err(error) if asked.complete => return Err(error.with_operation(OPERATION)),
            Err(error) => tracing::warn!(%error, "skipped an unreadable run in a listing"),
        }
    }
    // Write the cursor from the columns of the row and not from a parsed run. If a name is invalid, the listing can still continue after it.
    let next = last.filter(|_| more);
    let next = next.map(|(created, tenant, run)| listing.cursor(format_args!("{created}.{tenant}/{run}")));
    Ok(Paged { items, next })
}

/// Returns the error for an index that leads to a run which does not match the query.
fn unasked(head: &RunHead) -> Error {
    let message = "an index entry does not match the run; run `REINDEX`";
    Error::new(ErrorKind::Corrupt, message).with_run(&head.run)
}

fn bind<'q>(query: Query<'q, Postgres, PgArguments>, value: BoundValue) -> Query<'q, Postgres, PgArguments> {
    match value {
        BoundValue::Text(text) => query.bind(text),
        BoundValue::Number(number) => query.bind(number),
        BoundValue::Id(id) => query.bind(id),
        BoundValue::Codes(codes) => query.bind(codes),
    }
}

/// Returns the statement; `None` if no run can match the query.
fn statement(
    asked: &RunQuery,
    order: Order,
    after: Option<ListPlace>,
    limit: usize,
) -> Option<(String, Vec<BoundValue>)> {
    let mut conditions = conditions(asked)?;
    let (comparison, direction) = match order {
        Order::NewestFirst => ("<", "DESC"),
        Order::OldestFirst | Order::Any => (">", "ASC"),
    };
    if let Some((created, tenant, run)) = after {
        let created = conditions.value(BoundValue::Number(created));
        let tenant = conditions.value(BoundValue::Text(tenant));
        let run = conditions.value(BoundValue::Text(run));
        conditions.and(&format!("(r.created, r.tenant, r.run) {comparison} ({created}, {tenant}, {run})"));
    }
    let codes: Vec<i8> = RunStatus::ALL
        .into_iter()
        .filter(|status| asked.statuses.contains(status))
        .map(|status| code(status.letter()))
        .collect();
    let codes = if codes.len() == RunStatus::ALL.len() { Vec::new() } else { codes };
    let order =
        format!("ORDER BY r.created {direction}, r.tenant {direction}, r.run {direction} LIMIT {limit}");
    let from = match asked.filter {
        RunFilter::Orphaned => {
            conditions.one_of(codes);
            conditions.and(TO_ADOPT);
            orphans(&conditions.sql, &order)
        }
        RunFilter::Due => {
            conditions.one_of(codes);
            conditions.and(TO_WAKE);
            conditions.and("r.wake_at <= {now}");
            conditions.and(
                "NOT EXISTS (SELECT FROM {heartbeats} b WHERE b.executor = r.owner AND b.until > {now})",
            );
            plain(&conditions.sql, &order)
        }
        _ if codes.len() > 1 => {
            // Select the first runs of each status. The status is a constant, so that the server knows which statuses are rare.
            let each = codes.into_iter().map(|code| {
                let and = if conditions.sql.is_empty() { "" } else { " AND " };
                let conditions =
                    format!("{}{and}r.status = '{}'", conditions.sql, char::from(code.cast_unsigned()));
                format!("({})", plain(&conditions, &order))
            });
            let each: Vec<_> = each.collect();
            format!("SELECT r.* FROM ({}) r {order}", each.join(" UNION ALL "))
        }
        _ => {
            conditions.one_of(codes);
            plain(&conditions.sql, &order)
        }
    };
    // Include a run without records: without its row, the page would seem to be the last page.
    let sql = format!("SELECT {} FROM ({from}) r {HEAD} {order}", row::head_columns(IS_LISTED));
    Some((sql, conditions.values))
}

fn plain(conditions: &str, order: &str) -> String {
    let clause = if conditions.is_empty() { "" } else { "WHERE " };
    format!("SELECT r.* FROM {{runs}} r {clause}{conditions} {order}")
}

/// Returns the query for the runs without an owner, and for the runs of each owner without a heartbeat.
///
/// The query steps from owner to owner in the index. So its cost depends on the number of executors and of orphaned runs, and not on the number of
/// runs in progress.
fn orphans(conditions: &str, order: &str) -> String {
    let next = |than: &str| {
        format!(
            "(SELECT r.owner FROM {{runs}} r WHERE {TO_ADOPT} AND r.owner {than} ORDER BY r.owner LIMIT 1)"
        )
    };
    let unowned = plain(&format!("r.owner IS NULL AND {conditions}"), order);
    let of_each = plain(&format!("r.owner = d.owner AND {conditions}"), order);
    format!(
        "WITH RECURSIVE owners(owner) AS ({first} UNION ALL SELECT {next} FROM owners o WHERE o.owner IS NOT NULL), \
         dead AS (SELECT o.owner FROM owners o WHERE o.owner IS NOT NULL \
             AND NOT EXISTS (SELECT FROM {{heartbeats}} b WHERE b.executor = o.owner AND b.until > {{now}})) \
         SELECT r.* FROM (({unowned}) UNION ALL (SELECT r.* FROM dead d CROSS JOIN LATERAL ({of_each}) r)) r {order}",
        first = next("IS NOT NULL"),
        next = next("> o.owner"),
    )
}

/// Returns the conditions of a query, except for those of statuses and of the filter; `None` if no run can meet them.
fn conditions(asked: &RunQuery) -> Option<Conditions> {
    let mut conditions = Conditions::default();
    if let Some(tenant) = &asked.tenant {
        conditions.compare("r.tenant", "=", BoundValue::Text(tenant.as_str().to_owned()));
    }
    if let Some(workflow) = &asked.workflow {
        conditions.compare("r.workflow", "=", BoundValue::Text(workflow.as_str().to_owned()));
    }
    if let Some(user) = &asked.user {
        // No run contains a zero character, and the server would refuse it.
        if user.contains('\0') {
            return None;
        }
        conditions.compare("r.user_name", "=", BoundValue::Text(user.clone()));
    }
    if let Some(from) = asked.created_from {
        conditions.compare("r.created", ">=", BoundValue::Number(from.unix_ms()));
    }
    if let Some(before) = asked.created_before {
        conditions.compare("r.created", "<", BoundValue::Number(before.unix_ms()));
    }
    if let Some(parent) = &asked.parent {
        conditions.compare("r.parent_run", "=", BoundValue::Text(parent.run.as_str().to_owned()));
        conditions.compare("r.parent_tenant", "=", BoundValue::Text(parent.tenant.as_str().to_owned()));
    }
    if let Some(owner) = asked.owner {
        conditions.compare("r.owner", "=", BoundValue::Id(*owner.as_uuid()));
    }
    if !asked.labels.is_empty() {
        let mut labels = serde_json::Map::new();
        for (key, value) in &asked.labels {
            // No run has two values for one label. No run contains a zero character either, and the server would refuse it.
            let before = labels.insert(key.clone(), value.as_str().into());
            let is_other = before.is_some_and(|before| before != value.as_str());
            if is_other || key.contains('\0') || value.contains('\0') {
                return None;
            }
        }
        let named = conditions.value(BoundValue::Text(serde_json::Value::Object(labels).to_string()));
        conditions.and(&format!("r.labels @> {named}::text::jsonb"));
    }
    Some(conditions)
}

/// The position of a run in listings.
type ListPlace = (i64, String, String);

fn place(row: &PgRow) -> Result<ListPlace> {
    let bad = |error| fault(&error, PostgresCallEffect::Read).into_error(OPERATION);
    Ok((
        row.try_get(row::CREATED).map_err(bad)?,
        row.try_get(row::NAME).map_err(bad)?,
        row.try_get(row::NAME + 1).map_err(bad)?,
    ))
}

#[cfg(test)]
mod tests;
