//! A stored run: checks that its parts agree before any use.
//!
//! Three tables store a run, each with its own indexes. The head maps the name to the key and marks the end of the log, the row has the facts, and
//! the records are the log. The server does not compare an index with its row. So each statement that reads a run by its name compares the three
//! tables. If they contradict each other, the read fails with `Corrupt`.

use ferrata_store::{Error, ErrorKind, Result};

use crate::row::Columns;

/// Returns a join of a run's name with its head. The first two parameters of the statement are the name, which gets the alias `v`. The alias of the
/// head is the argument `head`.
pub(crate) fn named(head: &str) -> String {
    format!(
        "(VALUES ($1::text, $2::text)) AS v(tenant, run) \
         LEFT JOIN {{heads}} {head} ON {head}.run = v.run AND {head}.tenant = v.tenant"
    )
}

/// Returns the condition that the run exists. A run that has lost its head still has its row.
pub(crate) fn is_there(head: &str) -> String {
    format!(
        "({head}.key IS NOT NULL OR EXISTS (SELECT FROM {{runs}} n WHERE n.tenant = v.tenant AND n.run = v.run))"
    )
}

/// Returns the condition that head, row and log of a run agree; it is false if one of them is missing. The names are in `v`.
pub(crate) fn is_sound(head: &str) -> String {
    let same = |table: &str| {
        format!(
            "{table}.status = {head}.status AND {table}.owner IS NOT DISTINCT FROM {head}.owner \
             AND {table}.wake_at IS NOT DISTINCT FROM {head}.wake_at"
        )
    };
    format!(
        "coalesce({head}.tenant = v.tenant AND {head}.run = v.run \
         AND EXISTS (SELECT FROM {{runs}} u WHERE u.key = {head}.key AND u.tenant = v.tenant AND u.run = v.run AND {row}) \
         AND EXISTS (SELECT FROM {{records}} l WHERE l.run = {head}.key AND l.seq = {head}.seq AND l.id = {head}.id \
             AND l.kind = {head}.kind AND l.epoch = {head}.epoch AND l.at = {head}.at AND {last}) \
         AND {head}.first_seq = (SELECT min(m.seq) FROM {{records}} m WHERE m.run = {head}.key), false)",
        row = same("u"),
        last = same("l"),
    )
}

/// The condition that head and row of a listed run agree. Both are joined, as `h` and `r`.
pub(crate) const IS_LISTED: &str = "\
    coalesce(h.key = r.key AND h.tenant = r.tenant AND h.run = r.run AND h.status = r.status \
    AND h.owner IS NOT DISTINCT FROM r.owner AND h.wake_at IS NOT DISTINCT FROM r.wake_at, false)";

/// Reads the column of [`is_sound`] or [`IS_LISTED`].
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if the column is false.
pub(crate) fn check(columns: &mut Columns<'_>) -> Result<()> {
    match columns.next::<bool>()? {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Corrupt,
            "head, row and records of the run contradict each other; restore the run from a backup, or purge it",
        )),
    }
}
