//! A stored run: checks that its parts agree before any use.
//!
//! Two tables store a run, each with its own indexes. The row maps the name to the key and has the facts, and the records are the log. The last
//! record is the head. The server does not compare an index with its row. So each statement that reads a run by its name compares the two tables. If
//! they contradict each other, the read fails with `Corrupt`.

use ferrata_store::{Error, ErrorKind, Result};

use crate::row::Columns;

/// A join of a run's name with its row `r` and its head `h`. The first two parameters of the statement are the name, with the alias `v`.
pub(crate) const NAMED: &str = "\
    (VALUES ($1::text, $2::text)) AS v(tenant, run) JOIN {runs} r ON r.run = v.run AND r.tenant = v.tenant";

/// A join of a run's row `r` with its head: the last record, with the alias `h`.
pub(crate) const HEAD: &str = "\
    LEFT JOIN LATERAL (SELECT l.* FROM {records} l WHERE l.run = r.key ORDER BY l.seq DESC LIMIT 1) h ON true";

/// The condition that row and log of a run agree. The name is in `v`, the row in `r`, and the head in `h`.
pub(crate) const IS_SOUND: &str = "\
    coalesce(r.tenant = v.tenant AND r.run = v.run AND h.status = r.status \
    AND h.owner IS NOT DISTINCT FROM r.owner AND h.wake_at IS NOT DISTINCT FROM r.wake_at \
    AND EXISTS (SELECT FROM {records} m WHERE m.run = r.key AND m.seq = r.seq AND m.id = r.id) \
    AND r.first_seq = (SELECT min(f.seq) FROM {records} f WHERE f.run = r.key), false)";

/// The condition that head and row of a listed run agree. Both are joined, as `h` and `r`.
pub(crate) const IS_LISTED: &str = "\
    coalesce(h.status = r.status AND h.owner IS NOT DISTINCT FROM r.owner AND h.wake_at IS NOT DISTINCT FROM r.wake_at \
    AND (h.seq > r.seq OR (h.seq = r.seq AND h.id = r.id)), false)";

/// Reads the column of [`IS_SOUND`] or [`IS_LISTED`].
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if the column is false.
pub(crate) fn check(columns: &mut Columns<'_>) -> Result<()> {
    match columns.next::<bool>()? {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Corrupt,
            "the row and the records of the run contradict each other; restore the run from a backup, or purge it",
        )),
    }
}
