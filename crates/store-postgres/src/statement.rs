//! The statement that writes a batch for any runs, and how it waits for other transactions.

use std::fmt::Write as _;

use crate::columns::{Rows, ValueColumn, each, names, shared};
use crate::db::Sql;
use crate::names::Names;

/// The entry's index in the batch, and its run.
const ENTRY: &[ValueColumn] = &[each("n", "int4"), shared("tenant", "text"), each("run", "text")];

/// The columns that a record and a head share.
const HEADERS: &[ValueColumn] = &[
    shared("seq", "int8"),
    each("id", "uuid"),
    shared("format", "int2"),
    shared("kind", "\"char\""),
    shared("status", "\"char\""),
    shared("epoch", "int4"),
    shared("owner", "uuid"),
    shared("wake_at", "int8"),
    shared("at", "int8"),
];

/// The head that a run must have, and whether the run's row changes, too.
const EXPECTED: &[ValueColumn] =
    &[shared("expected_seq", "int8"), each("expected_id", "uuid"), shared("shows", "bool")];

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

/// The additional columns of a record.
const BODIES: &[ValueColumn] = &[
    each("prev", "uuid"),
    shared("visit", "int4"),
    each("crc", "int4"),
    shared("base", "bool"),
    shared("node", "text"),
    each("body", "bytea"),
];

/// The index of a record's entry.
const OF_ENTRY: &[ValueColumn] = &[shared("n", "int4")];

/// The columns of the run's row that listings search.
const SHOWN: &[ValueColumn] =
    &[shared("status", "\"char\""), shared("owner", "uuid"), shared("wake_at", "int8")];

/// The longest time that a batch waits for another transaction out of order, in milliseconds. It is longer than a commit on a healthy disk, and
/// much shorter than the second after which the server searches for deadlocks.
const PATIENCE_MS: u32 = 100;

/// How a batch waits for other transactions that hold a lock that it needs.
///
/// A batch in order and a brief batch may block each other. The brief batch then gives up. So no two batches wait for each other longer than
/// [`PATIENCE_MS`], whatever runs they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// Locks rows in the server's order, and waits only for a short time. At the timeout, nothing is written.
    Briefly,
    /// Waits without a limit, in one order for all batches. First it locks the heads of existing runs, by key. Then it inserts new runs, by name.
    /// The other parts of the statement wait for no other transaction.
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

/// Returns the text of the statement. The statement returns the indexes of the written entries, as one array.
///
/// The server compares the head after it has locked the head's row, not at the start of the statement: it evaluates the condition of an update
/// again for a row that changed meanwhile. So the comparison is right under READ COMMITTED. Only a transaction with the lock on the head changes
/// the run's row. So either the row is as the statement sees it, or the transaction that the statement waited for changed it.
///
/// A part that must follow another part has a `gate` that counts the rows of the other part. The server evaluates the gate before it matches the
/// rows, so the second evaluation does not include it.
///
/// The table names come early in the text: the server shows only the beginning of an active statement, and operators recognize a statement by its
/// tables.
fn statement(grows: bool, starts: bool, waits: LockMode) -> String {
    let mut sql = String::from("WITH ");
    let mut parameter = 0;
    // Writing into a string cannot fail.
    let patience = format!("(SELECT set_config('lock_timeout', '{PATIENCE_MS}', true)) IS NOT NULL");
    let after = |part: &str| match waits {
        LockMode::Briefly => patience.clone(),
        LockMode::InOrder => format!("(SELECT count(*) FROM {part}) >= 0"),
    };
    let grow = grows.then(|| Rows::new(&mut parameter, "g", &[ENTRY, HEADERS, EXPECTED]));
    if let Some(g) = &grow {
        let _ = write!(sql, "given AS (SELECT * FROM {}), ", g.from);
        if waits == LockMode::InOrder {
            let _ = write!(
                sql,
                "locked AS MATERIALIZED (SELECT h.key FROM given g JOIN {{heads}} h ON h.run = g.run AND h.tenant = {} \
                 ORDER BY h.key FOR NO KEY UPDATE OF h), ",
                g.of("tenant"),
            );
        }
    }
    let start = starts.then(|| Rows::new(&mut parameter, "s", &[ENTRY, HEADERS, FACTS]));
    // The rows of the started runs.
    let mut started = String::new();
    if let Some(s) = &start {
        let gate = if grows { after("locked") } else { "true".to_owned() };
        let tenant = s.of("tenant");
        started = format!("FROM started t JOIN start s ON s.run = t.run AND {tenant} = t.tenant");
        let _ = write!(
            sql,
            "start AS (SELECT * FROM {}), \
             started AS (INSERT INTO {{runs}} (tenant, run, {}, labels) \
             SELECT {tenant}, s.run, {}, {}::jsonb FROM start s WHERE {gate} \
             ORDER BY {tenant}, s.run ON CONFLICT (tenant, run) DO NOTHING RETURNING key, tenant, run), \
             headed AS (INSERT INTO {{heads}} (key, tenant, run, {}) SELECT t.key, t.tenant, t.run, {} {started}), ",
            s.from,
            names(&[SHOWN, &FACTS[..FACTS.len() - 1]]),
            s.values(&[SHOWN, &FACTS[..FACTS.len() - 1]]),
            s.of("labels"),
            names(&[HEADERS]),
            s.values(&[HEADERS]),
        );
    }
    if let Some(g) = &grow {
        let gate = after(if starts { "started" } else { "locked" });
        let same: Vec<_> = SHOWN
            .iter()
            .map(|ValueColumn { name, .. }| format!("h.{name} IS NOT DISTINCT FROM {}", g.of(name)))
            .collect();
        let show: Vec<_> =
            SHOWN.iter().map(|ValueColumn { name, .. }| format!("{name} = m.{name}")).collect();
        let _ = write!(
            sql,
            "passed AS MATERIALIZED (SELECT * FROM given WHERE {gate}), \
             moved AS (UPDATE {{heads}} h SET {} FROM passed g \
             WHERE h.run = g.run AND h.tenant = {} AND h.seq = {} AND h.id = g.expected_id \
             AND EXISTS (SELECT FROM {{records}} l WHERE l.run = h.key AND l.seq = h.seq AND l.id = h.id) \
             AND ({} OR {}) RETURNING h.key, g.n, {} AS shows, h.status, h.owner, h.wake_at), \
             shown AS (UPDATE {{runs}} r SET {} FROM moved m WHERE m.shows AND r.key = m.key), ",
            g.set(HEADERS),
            g.of("tenant"),
            g.of("expected_seq"),
            g.of("shows"),
            same.join(" AND "),
            g.of("shows"),
            show.join(", "),
        );
    }
    let moved = "SELECT key, n FROM moved";
    let changed = match (grows, starts) {
        (true, true) => format!("{moved} UNION ALL SELECT t.key, s.n {started}"),
        (true, false) => moved.to_owned(),
        (false, _) => format!("SELECT t.key, s.n {started}"),
    };
    let record = Rows::new(&mut parameter, "c", &[OF_ENTRY, HEADERS, BODIES]);
    let _ = write!(
        sql,
        "changed AS MATERIALIZED ({changed}), \
         written AS (INSERT INTO {{records}} (run, {}) SELECT w.key, {} FROM {} JOIN changed w ON w.n = {}) \
         SELECT coalesce(array_agg(n), '{{}}') FROM changed",
        names(&[HEADERS, BODIES]),
        record.values(&[HEADERS, BODIES]),
        record.from,
        record.of("n"),
    );
    sql
}
