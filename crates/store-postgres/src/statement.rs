//! The one statement that writes a batch of any runs, and how it waits for other transactions.

use std::fmt::Write as _;

use crate::columns::{Column, Rows, each, names, shared};
use crate::db::Sql;
use crate::names::Names;

/// Which entry of a batch, and of which run.
const ENTRY: &[Column] = &[each("n", "int4"), shared("tenant", "text"), each("run", "text")];

/// What a record and a head have in common.
const HEADERS: &[Column] = &[
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

/// The head that a run must have, and whether the run's row is to change, too.
const EXPECTED: &[Column] =
    &[shared("expected_seq", "int8"), each("expected_id", "uuid"), shared("shows", "bool")];

/// What is said of a new run.
const FACTS: &[Column] = &[
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

/// What a record has beside.
const BODIES: &[Column] = &[
    each("prev", "uuid"),
    shared("visit", "int4"),
    each("crc", "int4"),
    shared("base", "bool"),
    shared("node", "text"),
    each("body", "bytea"),
];

/// Of which entry a record is.
const OF_ENTRY: &[Column] = &[shared("n", "int4")];

/// What listings look for in the run's row.
const SHOWN: &[Column] = &[shared("status", "\"char\""), shared("owner", "uuid"), shared("wake_at", "int8")];

/// The longest time that a batch waits for another transaction out of order, in milliseconds: above what a commit takes on a
/// healthy disk, and far below the second after which the server looks for deadlocks.
const PATIENCE_MS: u32 = 100;

/// How a batch waits for other transactions that hold what it needs.
///
/// A batch that waits in order may hold what an impatient one waits for, and the other way round; but the impatient one gives
/// up, so no two batches ever wait for each other longer than [`PATIENCE_MS`], whatever runs they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// In the order in which the server comes to the rows, and not for long: then nothing is written.
    Briefly,
    /// As long as it takes, in one order that all share: first the heads of the runs that grow are locked, by key; then new runs
    /// are inserted, by name; what follows waits for no other transaction.
    InOrder,
}

/// The statements that append: by whether runs grow and whether runs start, and by how they wait.
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
        // New runs alone are inserted in order anyway.
        Self { start: sql(false, true, LockMode::InOrder), grow: each(false), both: each(true) }
    }

    /// Returns the statement for entries some of which grow or start.
    pub(crate) fn of(&self, grows: bool, starts: bool, waits: LockMode) -> &Sql {
        let place = usize::from(waits == LockMode::InOrder);
        match (grows, starts) {
            (true, true) => &self.both[place],
            (true, false) => &self.grow[place],
            (false, _) => &self.start,
        }
    }
}

/// Writes the statement. It returns the numbers of the entries that were written, as one array.
///
/// The head is compared as it is when its row is locked, not as it was when the statement began: the server looks at the
/// condition of an update again for a row that changed meanwhile. So the comparison is right under READ COMMITTED. The run's row
/// is changed under the lock of its head alone, so that it is as the statement sees it, or was changed by the one that it waited for.
///
/// Where a part is to come after another, its `gate` counts the rows of the other. The gate is passed before the rows are
/// matched, which keeps it out of what the server evaluates again.
///
/// The names of the tables stand early in it: the server shows the beginning of what it does, by which an operator finds it.
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
    // The rows of the runs that were started.
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
            .map(|Column { name, .. }| format!("h.{name} IS NOT DISTINCT FROM {}", g.of(name)))
            .collect();
        let show: Vec<_> = SHOWN.iter().map(|Column { name, .. }| format!("{name} = m.{name}")).collect();
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
