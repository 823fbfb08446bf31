//! The statement that writes a batch for any runs, and how it waits for other transactions.

use std::fmt::Write as _;

use crate::columns::{Rows, ValueColumn, each, names, shared};
use crate::db::Sql;
use crate::names::Names;

/// The entry's index in the batch, and its run. A known key replaces the name.
const ENTRY: &[ValueColumn] = &[each("n", "int4"), shared("tenant", "text"), shared("run", "text")];

/// The columns of a record's header that a run's row has, too.
const SHOWN: &[ValueColumn] = &[
    shared("seq", "int8"),
    each("id", "uuid"),
    shared("status", "\"char\""),
    shared("owner", "uuid"),
    shared("wake_at", "int8"),
];

/// The columns of [`SHOWN`] that listings search.
fn searched() -> &'static [ValueColumn] {
    &SHOWN[2..]
}

/// The known key of the run, the head that it must have, and whether the run's row changes, too.
const EXPECTED: &[ValueColumn] = &[
    each("known", "int8"),
    shared("expected_seq", "int8"),
    each("expected_id", "uuid"),
    shared("shows", "bool"),
];

/// The facts of a new run.
const FACTS: &[ValueColumn] = &[
    shared("workflow", "text"),
    shared("version", "text"),
    shared("graph", "uuid"),
    shared("input", "uuid"),
    shared("created", "int8"),
    shared("parent_tenant", "text"),
    shared("parent_run", "text"),
    shared("parent_seq", "int8"),
    shared("parent_id", "uuid"),
    shared("user_name", "text"),
    shared("labels", "text"),
];

/// The columns of a record.
const RECORD: &[ValueColumn] = &[
    shared("seq", "int8"),
    each("id", "uuid"),
    shared("format", "int2"),
    shared("kind", "\"char\""),
    shared("status", "\"char\""),
    shared("epoch", "int4"),
    shared("owner", "uuid"),
    shared("wake_at", "int8"),
    shared("at", "int8"),
    each("prev", "uuid"),
    shared("visit", "int4"),
    each("crc", "int4"),
    shared("base", "bool"),
    shared("node", "text"),
    each("body", "bytea"),
];

/// The index of a record's entry.
const OF_ENTRY: &[ValueColumn] = &[shared("n", "int4")];

/// The longest time that a batch waits for another transaction out of order, in milliseconds. It is longer than a commit on a healthy disk, and
/// much shorter than the second after which the server searches for deadlocks.
const PATIENCE_MS: u32 = 100;

/// How an append waits for other transactions, and how it ends a race with another writer.
///
/// A batch in order and a brief batch may block each other. The brief batch then gives up. So no two batches wait for each other longer than
/// [`PATIENCE_MS`], whatever runs they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// Locks rows in the server's order, and waits only for a short time. At the timeout, or if another writer wins the race for one run, the statement
    /// writes nothing.
    Briefly,
    /// Waits without a limit, in one order for all batches: by key for the rows of runs that change, then for the heads, then for the inserts. Then
    /// it inserts new runs, by name. The other parts of the statement wait for no other transaction. If another writer wins the race for one run, the
    /// statement writes the others.
    InOrder,
}

/// The statements for appends, by whether runs grow or start, and by how they wait.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    start: Sql,
    grow: [Sql; 2],
    both: [Sql; 2],
}

impl Statements {
    pub(crate) fn new(names: &Names) -> Self {
        let sql = |grows, starts, waits| names.fill(&statement(grows, starts, waits)).into();
        let each = |starts| [LockMode::Briefly, LockMode::InOrder].map(|waits| sql(true, starts, waits));
        // New runs alone are always inserted in order.
        Self { start: sql(false, true, LockMode::InOrder), grow: each(false), both: each(true) }
    }

    /// Returns the statement for entries that append to runs (`grows`), start runs (`starts`), or both.
    pub(crate) fn of(&self, grows: bool, starts: bool, waits: LockMode) -> &Sql {
        let place = usize::from(waits == LockMode::InOrder);
        match (grows, starts) {
            (true, true) => &self.both[place],
            (true, false) => &self.grow[place],
            (false, _) => &self.start,
        }
    }
}

/// Returns the text of the statement. The statement returns the indexes of the written entries and the keys of their runs, as two arrays.
///
/// The statement writes an entry if the head of its run, the last record, is the expected one. The primary key of the records lets one writer insert the next
/// record. A lock on the head makes a purge wait, see [`prune`](crate::prune). The row of a run changes only together with its head. So if the head
/// has the values of the entry, the row has them, too.
///
/// A part that must follow another part has a `gate` that counts the rows of the other part.
///
/// The table names come early in the text: the server shows only the beginning of an active statement, and operators recognize a statement by its
/// tables.
fn statement(grows: bool, starts: bool, waits: LockMode) -> String {
    let mut sql = String::from("WITH ");
    let mut parameter = 0;
    let in_order = waits == LockMode::InOrder;
    let by_key = if in_order { " ORDER BY key" } else { "" };
    let after = |part: &str| format!("(SELECT count(*) FROM {part}) >= 0");
    let grow = grows.then(|| Rows::new(&mut parameter, "g", &[ENTRY, SHOWN, EXPECTED]));
    if let Some(g) = &grow {
        let patience = format!("(SELECT set_config('lock_timeout', '{PATIENCE_MS}', true)) IS NOT NULL");
        let same: Vec<_> = searched()
            .iter()
            .map(|ValueColumn { name, .. }| format!("h.{name} IS NOT DISTINCT FROM {}", g.of(name)))
            .collect();
        // Writing into a string cannot fail.
        let _ = write!(
            sql,
            "given AS MATERIALIZED (SELECT g.*, coalesce(g.known, (SELECT k.key FROM {{runs}} k WHERE k.run = {run} AND k.tenant = {tenant})) AS key \
             FROM {from} WHERE {patience}{by_key}), \
             held AS MATERIALIZED (SELECT r.key FROM given g CROSS JOIN LATERAL \
             (SELECT r.key FROM {{runs}} r WHERE r.key = g.key LIMIT 1 FOR NO KEY UPDATE) r WHERE {shows}), \
             grown AS MATERIALIZED (SELECT g.* FROM given g CROSS JOIN LATERAL \
             (SELECT l.seq, l.id, l.status, l.owner, l.wake_at FROM {{records}} l WHERE l.run = g.key AND l.seq >= {seq} \
             ORDER BY l.seq DESC LIMIT 1 FOR KEY SHARE) h \
             WHERE {gate} AND h.seq = {seq} AND h.id = g.expected_id AND ({shows} OR ({same}))), ",
            run = g.of("run"),
            tenant = g.of("tenant"),
            from = g.from,
            shows = g.of("shows"),
            patience = if in_order { "true" } else { &patience },
            seq = g.of("expected_seq"),
            gate = after("held"),
            same = same.join(" AND "),
        );
    }
    let start = starts.then(|| Rows::new(&mut parameter, "s", &[ENTRY, SHOWN, FACTS]));
    let record = Rows::new(&mut parameter, "c", &[OF_ENTRY, RECORD]);
    let insert = |into: &str, condition: &str| {
        format!(
            "INSERT INTO {{records}} (run, {}) SELECT w.key, {} FROM {} JOIN {into} w ON w.n = {} WHERE {condition}",
            names(&[RECORD]),
            record.values(&[RECORD]),
            record.from,
            record.of("n"),
        )
    };
    let mut changed = Vec::new();
    let (mut rest, mut shown) = ("true".to_owned(), "");
    if let Some(g) = &grow {
        let mut grown = "SELECT g.n, g.key, NULL::int8 AS first FROM grown g".to_owned();
        if in_order {
            // The first record of each entry decides whether the statement writes the entry.
            let seq = record.of("seq");
            let _ = write!(
                sql,
                "firsts AS (SELECT g.n, g.key, {} + 1 AS first FROM grown g), \
                 won AS MATERIALIZED ({} ORDER BY w.key ON CONFLICT (run, seq) DO NOTHING RETURNING run), ",
                g.of("expected_seq"),
                insert("firsts", &format!("{seq} = w.first")),
            );
            grown = "SELECT g.* FROM firsts g WHERE g.key IN (SELECT run FROM won)".to_owned();
            rest = format!("{seq} IS DISTINCT FROM w.first");
            shown = " AND g.key IN (SELECT run FROM won)";
        }
        changed.push(grown);
    }
    if let Some(s) = &start {
        let gate = match (grows, in_order) {
            (true, true) => after("won"),
            (true, false) => after("grown"),
            (false, _) => "true".to_owned(),
        };
        let tenant = s.of("tenant");
        let run = s.of("run");
        let facts = &FACTS[..FACTS.len() - 1];
        let _ = write!(
            sql,
            "start AS (SELECT * FROM {}), \
             started AS (INSERT INTO {{runs}} (tenant, run, {}, labels) \
             SELECT {tenant}, {run}, {}, {}::jsonb FROM start s WHERE {gate} \
             ORDER BY {tenant}, {run} ON CONFLICT (run, tenant) DO NOTHING RETURNING key, tenant, run), ",
            s.from,
            names(&[SHOWN, facts]),
            s.values(&[SHOWN, facts]),
            s.of("labels"),
        );
        changed.push(format!(
            "SELECT s.n, t.key, NULL::int8 AS first FROM started t JOIN start s ON {run} = t.run AND {tenant} = t.tenant"
        ));
    }
    let _ = write!(
        sql,
        "changed AS MATERIALIZED ({}), written AS ({})",
        changed.join(" UNION ALL "),
        insert("changed", &rest),
    );
    if let Some(g) = &grow {
        let _ = write!(
            sql,
            ", shown AS (UPDATE {{runs}} r SET {} FROM grown g WHERE {} AND r.key = g.key{shown})",
            g.set(SHOWN),
            g.of("shows"),
        );
    }
    sql.push_str(" SELECT coalesce(array_agg(n), '{}'), coalesce(array_agg(key), '{}') FROM changed");
    sql
}
