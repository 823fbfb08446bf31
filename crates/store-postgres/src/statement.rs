//! The one statement that writes a batch of any runs, and how it waits for other transactions.

use std::fmt::Write as _;

use crate::db::Sql;
use crate::names::Names;

/// The columns of a head after an append, and their types.
const HEADS: &[(&str, &str)] = &[
    ("n", "int4"),
    ("tenant", "text"),
    ("run", "text"),
    ("seq", "int8"),
    ("id", "uuid"),
    ("format", "int2"),
    ("kind", "\"char\""),
    ("status", "\"char\""),
    ("epoch", "int4"),
    ("owner", "uuid"),
    ("wake_at", "int8"),
    ("updated", "int8"),
];

/// The head that a run must have.
const EXPECTED: &[(&str, &str)] = &[("expected_seq", "int8"), ("expected_id", "uuid")];

/// What is said of a new run.
const FACTS: &[(&str, &str)] = &[
    ("workflow", "text"),
    ("version", "text"),
    ("graph", "uuid"),
    ("input", "uuid"),
    ("created", "int8"),
    ("parent_tenant", "text"),
    ("parent_run", "text"),
    ("parent_seq", "int8"),
    ("parent_id", "uuid"),
    ("user_name", "text"),
    ("labels", "text"),
];

/// The columns of a record, after the number of its entry.
const RECORDS: &[(&str, &str)] = &[
    ("n", "int4"),
    ("seq", "int8"),
    ("at", "int8"),
    ("wake_at", "int8"),
    ("id", "uuid"),
    ("prev", "uuid"),
    ("owner", "uuid"),
    ("epoch", "int4"),
    ("visit", "int4"),
    ("crc", "int4"),
    ("format", "int2"),
    ("kind", "\"char\""),
    ("status", "\"char\""),
    ("base", "bool"),
    ("node", "text"),
    ("body", "bytea"),
];

/// The longest time that a batch waits for another transaction out of order, in milliseconds: above what a commit takes on a
/// healthy disk, and far below the second after which the server looks for deadlocks.
const PATIENCE_MS: u32 = 100;

/// How a batch waits for other transactions that hold what it needs.
///
/// A batch that waits in order may hold what an impatient one waits for, and the other way round; but the impatient one gives
/// up, so no two batches ever wait for each other longer than [`PATIENCE_MS`], whatever runs they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// In the order in which the server comes to the rows, and not for long: then nothing is written.
    Briefly,
    /// As long as it takes, in one order that all share: first the rows of the runs that grow are locked, by key; then new runs
    /// are inserted, by name; what follows waits for no other transaction.
    InOrder,
}

/// The columns of a record that mostly are as those of its entry's head; then none of a batch is sent.
const AS_IN_HEAD: &[(&str, &str)] = &[
    ("seq", "seq"),
    ("at", "updated"),
    ("wake_at", "wake_at"),
    ("id", "id"),
    ("owner", "owner"),
    ("epoch", "epoch"),
    ("format", "format"),
    ("kind", "kind"),
    ("status", "status"),
];

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
        let each = |starts| [Waits::Briefly, Waits::InOrder].map(|waits| sql(true, starts, waits));
        // New runs alone are inserted in order anyway.
        Self { start: sql(false, true, Waits::InOrder), grow: each(false), both: each(true) }
    }

    /// Returns the statement for entries some of which grow or start.
    pub(crate) fn of(&self, grows: bool, starts: bool, waits: Waits) -> &Sql {
        let place = usize::from(waits == Waits::InOrder);
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
/// condition of an update again for a row that changed meanwhile. So the comparison is right under READ COMMITTED.
///
/// Where a part is to come after another, its `gate` counts the rows of the other. The gate is passed before the rows are
/// matched, which keeps it out of what the server evaluates again.
fn statement(grows: bool, starts: bool, waits: Waits) -> String {
    let mut sql = String::from("WITH ");
    let mut parameter = 0;
    // Writing into a string cannot fail.
    let patience = format!("(SELECT set_config('lock_timeout', '{PATIENCE_MS}', true)) IS NOT NULL");
    let after = |part: &str| match waits {
        Waits::Briefly => patience.clone(),
        Waits::InOrder => format!("(SELECT count(*) FROM {part}) >= 0"),
    };
    if grows {
        let given = unnest(&mut parameter, "g", &[HEADS, EXPECTED]);
        let _ = write!(sql, "given AS (SELECT * FROM {given}), ");
        if waits == Waits::InOrder {
            sql.push_str(
                "locked AS MATERIALIZED (SELECT r.key FROM given g JOIN {runs} r ON r.tenant = g.tenant AND r.run = g.run \
                 ORDER BY r.key FOR NO KEY UPDATE OF r), ",
            );
        }
    }
    if starts {
        let given = unnest(&mut parameter, "s", &[HEADS, FACTS]);
        let gate = if grows { after("locked") } else { "true".to_owned() };
        let columns = names(&[&HEADS[1..], FACTS], "");
        let values = names(&[&HEADS[1..], &FACTS[..FACTS.len() - 1]], "s.");
        let _ = write!(
            sql,
            "start AS (SELECT * FROM {given}), \
             started AS (INSERT INTO {{runs}} ({columns}) SELECT {values}, s.labels::jsonb FROM start s WHERE {gate} \
             ORDER BY s.tenant, s.run ON CONFLICT (tenant, run) DO NOTHING RETURNING key, tenant, run), "
        );
    }
    if grows {
        let gate = after(if starts { "started" } else { "locked" });
        let set: Vec<_> = HEADS[3..].iter().map(|(name, _)| format!("{name} = g.{name}")).collect();
        let _ = write!(
            sql,
            "passed AS MATERIALIZED (SELECT * FROM given WHERE {gate}), \
             moved AS (UPDATE {{runs}} r SET {} FROM passed g \
             WHERE r.tenant = g.tenant AND r.run = g.run AND r.seq = g.expected_seq AND r.id = g.expected_id \
             RETURNING r.key, g.n, {}), ",
            set.join(", "),
            names(&[&HEADS[3..]], "g."),
        );
    }
    let moved = "SELECT * FROM moved";
    let started = format!(
        "SELECT t.key, s.n, {} FROM started t JOIN start s ON s.tenant = t.tenant AND s.run = t.run",
        names(&[&HEADS[3..]], "s.")
    );
    let changed = match (grows, starts) {
        (true, true) => format!("{moved} UNION ALL {started}"),
        (true, false) => moved.to_owned(),
        (false, _) => started,
    };
    let values: Vec<_> =
        RECORDS.iter().zip(parameter + 1..).skip(1).map(|((name, _), n)| value(name, n)).collect();
    let given = unnest(&mut parameter, "c", &[RECORDS]);
    let _ = write!(
        sql,
        "changed AS MATERIALIZED ({changed}), \
         written AS (INSERT INTO {{records}} (run, {}) SELECT w.key, {} FROM {given} JOIN changed w ON w.n = c.n) \
         SELECT coalesce(array_agg(n), '{{}}') FROM changed",
        names(&[&RECORDS[1..]], ""),
        values.join(", "),
    );
    sql
}

/// The value of a record's column: of its array, which is the parameter `n`, unless that is empty.
fn value(name: &str, n: usize) -> String {
    match AS_IN_HEAD.iter().find(|(column, _)| *column == name) {
        Some((_, of_head)) => format!("CASE WHEN cardinality(${n}) = 0 THEN w.{of_head} ELSE c.{name} END"),
        None if name == "base" => "coalesce(c.base, false)".to_owned(),
        None => format!("c.{name}"),
    }
}

fn names(columns: &[&[(&str, &str)]], of: &str) -> String {
    let names: Vec<_> = columns.concat().iter().map(|(name, _)| format!("{of}{name}")).collect();
    names.join(", ")
}

fn unnest(parameter: &mut usize, alias: &str, columns: &[&[(&str, &str)]]) -> String {
    let arrays: Vec<_> = columns
        .concat()
        .iter()
        .map(|(_, kind)| {
            *parameter += 1;
            format!("${parameter}::{kind}[]")
        })
        .collect();
    format!("unnest({}) AS {alias}({})", arrays.join(", "), names(columns, ""))
}
