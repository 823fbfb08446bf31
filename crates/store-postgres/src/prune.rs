//! Prunes and purges: the removal of records.
//!
//! # Order of locks
//!
//! A purge locks the run's row, then the head. An append that changes the row locks the row; every other append locks the head. So a purge waits for
//! each append that began earlier, and sees its records. An append that waits for a purge finds no head, and writes nothing: a purged key gets no
//! records. Prunes and reseals lock the row, then records, with locks that do not block appends after the head.

use ferrata_store::{
    At, Error, ErrorKind, FORMAT, HeadRef, PruneCut, Record, RecordId, Removed, Result, RunKey, Seq,
    check_prune, refusal,
};
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection, Row as _};
use uuid::Uuid;

use crate::batch::{ENTRY_BYTES, RECORD_BYTES, number};
use crate::db::{PostgresDb, Sql, query, roomy};
use crate::error::{PostgresCallEffect, PostgresStoreError, fault};
use crate::row::{Columns, code, header, header_columns, seq};
use crate::stored_run::{self, HEAD, IS_SOUND, NAMED};
use crate::tasks::to_its_end;

const PRUNE: &str = "store.prune";
const PURGE: &str = "store.purge";

/// The maximum number of attempts of a purge. A new attempt is needed if the run changed between its read and its removal.
const ATTEMPTS: usize = 16;

/// The minimum number of records that the server removes within one response timeout.
const RECORDS_PER_ANSWER: i64 = 20_000;

/// The number of columns before those of the header.
const BEFORE: usize = 4;

/// The number of values that a prune binds.
const VALUES: usize = 18;

/// The statements of pruning and purging.
#[derive(Clone, Debug)]
pub(crate) struct PurgeStatements {
    pub(crate) cut: Sql,
    pub(crate) prune: Sql,
    pub(crate) find: Sql,
    pub(crate) hold: Sql,
    pub(crate) purge: Sql,
}

/// Reads the record at the cut, after a prune did not find a matching record.
pub(crate) fn cut() -> String {
    let header = header_columns();
    format!(
        "SELECT {IS_SOUND}, r.key, r.first_seq, h.seq, {header} FROM {NAMED} {HEAD} \
         LEFT JOIN {{records}} c ON c.run = r.key AND c.seq = $3"
    )
}

/// Inserts the base and removes the records before it. Does so only if the record at the cut is the expected one and the number of records to
/// remove is within the limit. Returns no row if the record is missing, or if it belongs to another generation of the run than the given one.
///
/// The statement is atomic. It removes only records before a record that it sees from its start. So its snapshot of the table, from before the wait
/// for the run's row, contains all of them. If the run is purged during the wait, the next run with its id loses nothing, because that run has
/// another key. If another caller prunes the run further during the wait, nothing is lost either.
pub(crate) fn prune() -> String {
    format!(
        "WITH found AS MATERIALIZED (SELECT r.key, c.id FROM {NAMED} {HEAD} JOIN {{records}} c ON c.run = r.key AND c.seq = $3 \
         WHERE {IS_SOUND} AND r.first_seq BETWEEN $3 - $4 AND $3 \
         AND ($5 IS NULL OR r.key = $5) \
         AND c.format BETWEEN 0 AND {FORMAT} AND CASE WHEN $6 IS NULL THEN c.base ELSE c.id = $6 AND {SAME} END), \
         moved AS (UPDATE {{runs}} r SET first_seq = $3, seq = greatest(r.seq, $3), id = CASE WHEN r.seq < $3 THEN found.id ELSE r.id END \
             FROM found WHERE r.key = found.key AND r.first_seq <= $3 RETURNING r.key), \
         based AS (UPDATE {{records}} c SET base = true, format = $16, crc = $17, body = $18 \
             FROM moved WHERE c.run = moved.key AND c.seq = $3 AND NOT c.base AND $6 IS NOT NULL), \
         gone AS (DELETE FROM {{records}} c USING moved WHERE c.run = moved.key AND c.seq < $3 \
             RETURNING octet_length(c.body) AS bytes) \
         SELECT count(*), coalesce(sum(bytes), 0)::int8 FROM gone HAVING EXISTS (SELECT FROM found)"
    )
}

/// Whether the record at the cut equals the given record, except for the fields that a base changes.
const SAME: &str = "\
    c.prev IS NOT DISTINCT FROM $7 AND c.kind = $8 AND c.status = $9 AND c.node IS NOT DISTINCT FROM $10 \
    AND c.visit IS NOT DISTINCT FROM $11 AND c.epoch = $12 AND c.owner IS NOT DISTINCT FROM $13 \
    AND c.wake_at IS NOT DISTINCT FROM $14 AND c.at = $15";

/// Reads the key and the head of a run to purge. An unreadable run can be purged, too.
pub(crate) fn find() -> String {
    format!("SELECT {IS_SOUND}, r.key, h.seq, h.id FROM {NAMED} {HEAD}")
}

/// Locks the row and the head of a run. Waits until every append that has locked one of them has ended.
///
/// An append that this statement waits for may add a newer head. So the next statement compares the head.
pub(crate) const HOLD_RUN: &str = "\
    WITH held AS MATERIALIZED (SELECT r.key FROM {runs} r WHERE r.key = $1 AND r.tenant = $2 AND r.run = $3 FOR UPDATE) \
    SELECT h.seq, h.id FROM held CROSS JOIN LATERAL \
    (SELECT l.seq, l.id FROM {records} l WHERE l.run = held.key ORDER BY l.seq DESC LIMIT 1 FOR UPDATE) h";

/// Removes a run by its key, if its head is the locked one. No other generation of the run has the key. So if a purge reaches the server late, after
/// its caller gave up, it never removes a newer run.
pub(crate) const PURGE_RUN: &str = "\
    WITH head AS MATERIALIZED (SELECT l.seq, l.id FROM {records} l WHERE l.run = $1 ORDER BY l.seq DESC LIMIT 1), \
    gone AS (DELETE FROM {runs} r WHERE r.key = $1 AND r.tenant = $2 AND r.run = $3 \
        AND (SELECT seq FROM head) IS NOT DISTINCT FROM $4 AND (SELECT id FROM head) IS NOT DISTINCT FROM $5 RETURNING r.key), \
    removed AS (DELETE FROM {records} c USING gone WHERE c.run = gone.key RETURNING octet_length(c.body) AS bytes) \
    SELECT count(*), coalesce(sum(bytes), 0)::int8 FROM removed HAVING EXISTS (SELECT FROM gone)";

/// A run to purge.
#[derive(Clone, Copy)]
struct PurgeTarget {
    key: i64,
    last: Option<i64>,
}

impl PurgeTarget {
    /// Parses the answer to [`find`].
    fn read(row: &PgRow) -> Result<Self> {
        let mut columns = Columns::new(row, 1);
        Ok(Self { key: columns.next()?, last: columns.next()? })
    }

    /// Reads the head, if the parts of the run agree.
    fn sound_head(row: &PgRow) -> Result<HeadRef> {
        stored_run::check(&mut Columns::new(row, 0))?;
        let mut columns = Columns::new(row, 2);
        Ok(HeadRef { seq: seq(columns.next()?)?, id: RecordId::from_uuid(columns.next()?) })
    }
}

impl PurgeStatements {
    pub(crate) async fn prune(&self, db: &PostgresDb, run: &RunKey, cut: &PruneCut) -> Result<Removed> {
        // Do not send an invalid base. The read below reports what is wrong, or that there is nothing to prune.
        let is_sound =
            |base: &Record| base.header.base && base.header.seq == cut.at && base.verify(run).is_ok();
        if cut.base.as_ref().is_none_or(is_sound)
            && let Some(removed) = self.prune_of(db, run, cut, None, RECORDS_PER_ANSWER - 1).await?
        {
            return Ok(removed);
        }
        let make = || query(&self.cut).bind(run.tenant.as_str()).bind(run.run.as_str()).bind(number(cut.at));
        let rows = db.read(make).await.map_err(|failed| failed.of_run(PRUNE, run))?;
        let planned = plan(&rows, run, cut).map_err(|error| error.with_operation(PRUNE).with_run(run))?;
        let Some((key, before)) = planned else { return Ok(Removed::default()) };
        // The cut record was missing, or more records precede it than one response timeout allows.
        let removed = self.prune_of(db, run, cut, Some(key), before).await?;
        Ok(removed.unwrap_or_default())
    }

    /// Prunes if the record at the cut matches, if at most `most` records precede it, and if the run has the given key (if one is given). Returns
    /// `None` otherwise.
    async fn prune_of(
        &self,
        db: &PostgresDb,
        run: &RunKey,
        cut: &PruneCut,
        key: Option<i64>,
        most: i64,
    ) -> Result<Option<Removed>> {
        let header = cut.base.as_ref().map(|base| &base.header);
        let bytes = cut.base.as_ref().map_or(0, |base| base.body.len());
        let query = roomy(&self.prune, VALUES, ENTRY_BYTES + RECORD_BYTES + bytes)
            .bind(run.tenant.as_str())
            .bind(run.run.as_str())
            .bind(number(cut.at))
            .bind(most)
            .bind(key)
            .bind(header.map(|header| *header.id.as_uuid()))
            .bind(header.and_then(|header| header.prev).map(|prev| *prev.as_uuid()))
            .bind(header.map(|header| code(header.kind.letter())))
            .bind(header.map(|header| code(header.status.letter())))
            .bind(header.and_then(|header| header.node.as_ref()).map(|node| node.as_str()))
            .bind(header.and_then(|header| header.visit).map(|visit| visit.get().cast_signed()))
            .bind(header.map(|header| header.epoch.get().cast_signed()))
            .bind(header.and_then(|header| header.owner).map(|owner| *owner.as_uuid()))
            .bind(header.and_then(|header| header.wake_at).map(|wake| wake.unix_ms()))
            .bind(header.map(|header| header.at.unix_ms()))
            .bind(header.map(|header| header.format.cast_signed()))
            .bind(header.map(|header| header.body_crc.cast_signed()))
            .bind(cut.base.as_ref().map(|base| &*base.body));
        let answers = answers_for(most).saturating_add(1);
        let rows = db.write_in_time(answers, query).await.map_err(|failed| failed.of_run(PRUNE, run))?;
        if rows.is_empty() {
            return Ok(None);
        }
        let (records, bytes) = sums(&rows).map_err(|failed| failed.of_run(PRUNE, run))?;
        Ok(Some(Removed { records, bytes }))
    }

    pub(crate) async fn purge(
        &self,
        db: &PostgresDb,
        run: &RunKey,
        expected: Option<HeadRef>,
    ) -> Result<Removed> {
        for _ in 0..ATTEMPTS {
            let find = || query(&self.find).bind(run.tenant.as_str()).bind(run.run.as_str());
            let rows = db.read(find).await.map_err(|failed| failed.of_run(PURGE, run))?;
            let Some(row) = rows.first() else { return Ok(Removed::default()) };
            let found = PurgeTarget::read(row).map_err(|error| error.with_operation(PURGE).with_run(run))?;
            if expected.is_some() {
                let head = PurgeTarget::sound_head(row)
                    .map_err(|error| error.with_operation(PURGE).with_run(run))?;
                if expected != Some(head) {
                    return Err(refusal::conflict(run, expected, Some(head)).with_operation(PURGE));
                }
            }
            // It is one transaction, so a refused purge removes nothing. The whole transaction must finish in time.
            let answers = answers_for(found.last.unwrap_or_default()).saturating_add(2);
            let (this, db, named) = (self.clone(), db.clone(), run.clone());
            let work = async move {
                let mut held = db.acquire().await?;
                held.send();
                let purging = this.purge_on(&mut held, (&named, found), expected, db.options().prepared);
                let sent = db.in_time(answers, purging).await;
                // The caller can repeat the purge, with any outcome of this one.
                let rows = PostgresDb::return_to_pool(held, sent)
                    .map_err(|error| fault(&error, PostgresCallEffect::Read))?;
                rows.map(|rows| sums(&rows)).transpose()
            };
            let purged = to_its_end(work).await.map_err(|failed| failed.of_run(PURGE, run))?;
            if let Some((records, bytes)) = purged {
                return Ok(Removed { records, bytes });
            }
        }
        let message = "other processes kept changing the run; retry";
        Err(Error::new(ErrorKind::Unavailable, message).with_operation(PURGE).with_run(run))
    }

    /// Returns `None`, and removes nothing, if the run was changed or purged since it was read.
    async fn purge_on(
        &self,
        connection: &mut PgConnection,
        (named, found): (&RunKey, PurgeTarget),
        expected: Option<HeadRef>,
        prepared: bool,
    ) -> Result<Option<Vec<PgRow>>, sqlx::Error> {
        // The second statement must see what the first one waited for, whatever the default isolation level is.
        let mut transaction = connection.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let bind = |sql| {
            let query = query(sql).bind(found.key).bind(named.tenant.as_str()).bind(named.run.as_str());
            query.persistent(prepared)
        };
        let held = bind(&self.hold).fetch_optional(&mut *transaction).await?;
        let read = |row: PgRow| Ok::<(i64, Uuid), sqlx::Error>((row.try_get(0)?, row.try_get(1)?));
        let held = held.map(read).transpose()?;
        let is_expected = |head: HeadRef| held == Some((number(head.seq), *head.id.as_uuid()));
        if expected.is_none_or(is_expected) {
            let (seq, id) = held.unzip();
            let rows = bind(&self.purge).bind(seq).bind(id).fetch_all(&mut *transaction).await?;
            if !rows.is_empty() {
                transaction.commit().await?;
                return Ok(Some(rows));
            }
        }
        transaction.rollback().await?;
        Ok(None)
    }
}

/// Returns how many more response timeouts the server may need to remove this number of records.
fn answers_for(records: i64) -> u32 {
    u32::try_from(records / RECORDS_PER_ANSWER).unwrap_or(0)
}

/// Decides from the record at the cut whether there is something to prune. If so, returns the run's key, and the number of records before the cut.
fn plan(rows: &[PgRow], run: &RunKey, cut: &PruneCut) -> Result<Option<(i64, i64)>> {
    let Some(row) = rows.first() else {
        return Err(Error::new(
            ErrorKind::NotFound,
            "the run does not exist; it was purged, or never started",
        ));
    };
    let mut columns = Columns::new(row, 0);
    stored_run::check(&mut columns)?;
    let (key, first, head): (i64, Seq, Seq) = (columns.next()?, seq(columns.next()?)?, seq(columns.next()?)?);
    if cut.at < first {
        return Ok(None);
    }
    if cut.at > head {
        let message = format!("the run has no {}; it was never written", At::Seq(cut.at));
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    if row.try_get::<Option<i64>, _>(BEFORE).is_ok_and(|seq| seq.is_none()) {
        let message = "the record is missing; restore the run from a backup";
        return Err(Error::new(ErrorKind::Corrupt, message).with_seq(cut.at));
    }
    check_prune(run, &header(&mut Columns::new(row, BEFORE), run)?, cut)?;
    Ok(Some((key, number(cut.at).saturating_sub(number(first)))))
}

fn sums(rows: &[PgRow]) -> Result<(u64, u64), PostgresStoreError> {
    let row = rows
        .first()
        .ok_or_else(|| PostgresStoreError::new(ErrorKind::Corrupt, "the server counted nothing"))?;
    let sum = |at: usize| -> Result<u64, PostgresStoreError> {
        let sum: i64 = row.try_get(at).map_err(|error| fault(&error, PostgresCallEffect::Read))?;
        Ok(u64::try_from(sum).unwrap_or(0))
    };
    Ok((sum(0)?, sum(1)?))
}
