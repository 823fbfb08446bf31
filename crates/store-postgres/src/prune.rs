//! Prunes and purges: the removal of records.

use ferrata_store::{
    At, Error, ErrorKind, FORMAT, HeadRef, PruneCut, Record, RecordId, Removed, Result, RunKey, Seq,
    check_prune, refusal,
};
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection, Row as _};

use crate::batch::{ENTRY_BYTES, RECORD_BYTES, number};
use crate::db::{PostgresDb, Sql, query, roomy};
use crate::error::{PostgresCallEffect, PostgresStoreError, fault};
use crate::row::{Columns, code, header, header_columns, seq};
use crate::stored_run::{self, is_sound, is_there, named};
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
    pub(crate) purge_run: Sql,
    pub(crate) purge_records: Sql,
}

/// Reads the record at the cut, after a prune did not find a matching record.
pub(crate) fn cut() -> String {
    let header = header_columns();
    format!(
        "SELECT {}, r.key, r.first_seq, r.seq, {header} FROM {} \
         LEFT JOIN {{records}} c ON c.run = r.key AND c.seq = $3 WHERE {}",
        is_sound("r"),
        named("r"),
        is_there("r"),
    )
}

/// Inserts the base and removes the records before it. Does so only if the record at the cut is the expected one and the number of records to
/// remove is within the limit. Returns no row if the record is missing, or if it belongs to another generation of the run than the given one.
///
/// The statement is atomic. It removes only records before a record that it sees from its start. So its snapshot of the table, from before the wait
/// for the run's head, contains all of them. If the run is purged during the wait, the next run with its id loses nothing, because that run has
/// another key. If another caller prunes the run further during the wait, nothing is lost either.
pub(crate) fn prune() -> String {
    format!(
        "WITH found AS MATERIALIZED (SELECT h.key FROM {} JOIN {{records}} c ON c.run = h.key AND c.seq = $3 \
         WHERE {} AND h.first_seq BETWEEN $3 - $4 AND $3 AND h.seq >= $3 \
         AND ($5 IS NULL OR h.key = $5) \
         AND c.format BETWEEN 0 AND {FORMAT} AND CASE WHEN $6 IS NULL THEN c.base ELSE c.id = $6 AND {SAME} END), \
         moved AS (UPDATE {{heads}} h SET first_seq = $3 FROM found \
             WHERE h.tenant = $1 AND h.run = $2 AND h.key = found.key AND h.first_seq <= $3 RETURNING h.key), \
         based AS (UPDATE {{records}} c SET base = true, format = $16, crc = $17, body = $18 \
             FROM moved WHERE c.run = moved.key AND c.seq = $3 AND NOT c.base AND $6 IS NOT NULL), \
         gone AS (DELETE FROM {{records}} c USING moved WHERE c.run = moved.key AND c.seq < $3 \
             RETURNING octet_length(c.body) AS bytes) \
         SELECT count(*), coalesce(sum(bytes), 0)::int8 FROM gone HAVING EXISTS (SELECT FROM found)",
        named("h"),
        is_sound("h"),
    )
}

/// Whether the record at the cut equals the given record, except for the fields that a base changes.
const SAME: &str = "\
    c.prev IS NOT DISTINCT FROM $7 AND c.kind = $8 AND c.status = $9 AND c.node IS NOT DISTINCT FROM $10 \
    AND c.visit IS NOT DISTINCT FROM $11 AND c.epoch = $12 AND c.owner IS NOT DISTINCT FROM $13 \
    AND c.wake_at IS NOT DISTINCT FROM $14 AND c.at = $15";

/// Reads the key and the head of a run to purge. An unreadable run can be purged, too. So the statement takes the run's key from the row that has
/// its name, because a damaged head may lead to another run.
pub(crate) fn find() -> String {
    format!(
        "SELECT {}, coalesce(u.key, CASE WHEN NOT EXISTS (SELECT FROM {{runs}} o WHERE o.key = h.key) THEN h.key END), h.key, h.seq, h.id \
         FROM {} LEFT JOIN {{runs}} u ON u.tenant = v.tenant AND u.run = v.run WHERE {}",
        is_sound("h"),
        named("h"),
        is_there("h"),
    )
}

/// Removes a run by its key, which no other generation of the run has. So if a purge reaches the server late, after its caller gave up, it never
/// removes a newer run. The two keys differ only if the head leads to another run. The comparison with the expected head waits until every append
/// that has locked the row has ended.
pub(crate) const PURGE_RUN: &str = "\
    WITH gone AS (DELETE FROM {heads} WHERE tenant = $4 AND run = $5 AND key = $6 \
        AND ($2::bigint IS NULL OR (seq = $2 AND id = $3)) RETURNING key) \
    DELETE FROM {runs} r WHERE r.key = $1 AND r.tenant = $4 AND r.run = $5 AND ($6::bigint IS NULL OR EXISTS (SELECT FROM gone))";

/// Removes the records of a run. It is a separate statement so that it also sees records of an append that the previous statement waited for.
pub(crate) const PURGE_RECORDS: &str = "\
    WITH gone AS (DELETE FROM {records} WHERE run = $1 RETURNING octet_length(body) AS bytes) \
    SELECT count(*), coalesce(sum(bytes), 0)::int8 FROM gone";

/// A run to purge.
#[derive(Clone, Copy)]
struct PurgeTarget {
    /// The key of the run's row and of its records.
    key: i64,
    /// The key in the run's head.
    head_key: Option<i64>,
    last: Option<i64>,
}

impl PurgeTarget {
    /// Parses the answer to [`find`].
    fn read(row: &PgRow) -> Result<Self> {
        let mut columns = Columns::new(row, 1);
        let key = columns.next::<Option<i64>>()?.ok_or_else(|| {
            let message = "the head of the run points to another run, and no row names the run; restore the run from a backup";
            Error::new(ErrorKind::Corrupt, message)
        })?;
        Ok(Self { key, head_key: columns.next()?, last: columns.next()? })
    }

    /// Reads the head, if the parts of the run agree.
    fn sound_head(&self, row: &PgRow) -> Result<HeadRef> {
        stored_run::check(&mut Columns::new(row, 0))?;
        let mut columns = Columns::new(row, 3);
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
                let head =
                    found.sound_head(row).map_err(|error| error.with_operation(PURGE).with_run(run))?;
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
        let mut transaction = connection.begin().await?;
        let run = query(&self.purge_run)
            .bind(found.key)
            .bind(expected.map(|head| number(head.seq)))
            .bind(expected.map(|head| *head.id.as_uuid()))
            .bind(named.tenant.as_str())
            .bind(named.run.as_str())
            .bind(found.head_key);
        let gone = run.persistent(prepared).execute(&mut *transaction).await?.rows_affected();
        if gone == 0 && expected.is_some() {
            transaction.rollback().await?;
            return Ok(None);
        }
        let records = query(&self.purge_records).bind(found.key).persistent(prepared);
        let rows = records.fetch_all(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Some(rows))
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
