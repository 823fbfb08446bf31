//! Reseals records: one statement reads them, and one statement replaces those that did not change meanwhile.

use async_trait::async_trait;
use ferrata_store::{Record, RecordHeader, Resealing, Result, RunKey, check_reseal, has_place, refusal};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::batch::number;
use crate::db::{Sql, query};
use crate::row::{Columns, header, header_columns};
use crate::store::PostgresStore;
use crate::stored_run::{self, HEAD, IS_SOUND, NAMED};

const OPERATION: &str = "store.reseal";

/// The number of columns before those of the header.
const BEFORE: usize = 2;

/// The statements of a reseal.
#[derive(Clone, Debug)]
pub(crate) struct ResealStatements {
    pub(crate) look: Sql,
    pub(crate) replace: Sql,
}

/// Writes the statement that reads the headers of a range.
pub(crate) fn headers_statement() -> String {
    let header = header_columns();
    format!(
        "SELECT a.is_sound, r.key, {header} FROM {NAMED} {HEAD} LEFT JOIN LATERAL (SELECT {IS_SOUND} AS is_sound) a ON true \
         LEFT JOIN {{records}} c ON c.run = r.key AND c.seq BETWEEN $3 AND $4 ORDER BY c.seq"
    )
}

/// Replaces the bodies of records that are unchanged since they were read, by the key of the run.
///
/// The statement locks the run's row first, as a prune does, so that the two cannot deadlock. If a prune came in between, it turned its record into a
/// base with another checksum. The server compares that checksum in the row as the prune left it.
pub(crate) const REPLACE: &str = "\
    WITH locked AS MATERIALIZED (SELECT key FROM {runs} WHERE tenant = $1 AND run = $2 AND key = $3 FOR NO KEY UPDATE) \
    UPDATE {records} c SET crc = g.crc, body = g.body \
    FROM locked, unnest($4::int8[], $5::uuid[], $6::bool[], $7::int4[], $8::int4[], $9::bytea[]) AS g(seq, id, base, was, crc, body) \
    WHERE c.run = locked.key AND c.seq = g.seq AND c.id = g.id AND c.base = g.base AND c.crc = g.was RETURNING c.seq";

/// The records that replace stored records, with the stored headers and the run's key.
struct ResealPlan<'r> {
    key: i64,
    replaced: Vec<(RecordHeader, &'r Record)>,
}

fn plan<'r>(rows: &[PgRow], run: &RunKey, records: &'r [Record]) -> Result<ResealPlan<'r>> {
    let Some(first) = rows.first() else { return Err(refusal::no_run(OPERATION, run)) };
    let mut columns = Columns::new(first, 0);
    stored_run::check(&mut columns)?;
    let key = columns.next()?;
    let mut given = records.iter().peekable();
    let mut replaced = Vec::new();
    for row in rows {
        // A row of nulls means that the run has none of these records.
        if !row.try_get::<Option<i64>, _>(BEFORE).is_ok_and(|seq| seq.is_some()) {
            continue;
        }
        let kept = header(&mut Columns::new(row, BEFORE), run)?;
        while given.next_if(|record| record.header.seq < kept.seq).is_some() {}
        let Some(record) = given.next_if(|record| record.header.seq == kept.seq) else { continue };
        if has_place(&kept, &record.header) {
            replaced.push((kept, record));
        }
    }
    Ok(ResealPlan { key, replaced })
}

#[async_trait]
impl Resealing for PostgresStore {
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        check_reseal(run, records)?;
        let [from, to] = [records.first(), records.last()]
            .map(|record| record.map_or(0, |record| number(record.header.seq)));
        let (tenant, name) = (run.tenant.as_str(), run.run.as_str());
        let replacing = self.replacing();
        let make = || query(&replacing.look).bind(tenant).bind(name).bind(from).bind(to);
        let rows = self.db().read(make).await.map_err(|failed| failed.of_run(OPERATION, run))?;
        let planned =
            plan(&rows, run, records).map_err(|error| error.with_operation(OPERATION).with_run(run))?;
        if planned.replaced.is_empty() {
            return Ok(0);
        }
        let each = planned.replaced.iter();
        let (seqs, ids): (Vec<_>, Vec<_>) =
            each.clone().map(|(kept, _)| (number(kept.seq), *kept.id.as_uuid())).unzip();
        let bases: Vec<_> = each.clone().map(|(kept, _)| kept.base).collect();
        let (were, sums): (Vec<_>, Vec<_>) = each
            .clone()
            .map(|(kept, given)| (kept.body_crc.cast_signed(), given.header.body_crc.cast_signed()))
            .unzip();
        let bodies: Vec<&[u8]> = each.map(|(_, given)| &*given.body).collect();
        let replace = query(&replacing.replace).bind(tenant).bind(name).bind(planned.key);
        let replace = replace.bind(seqs).bind(ids).bind(bases).bind(were).bind(sums).bind(bodies);
        let replaced = self.db().write(replace).await.map_err(|failed| failed.of_run(OPERATION, run))?;
        Ok(replaced.len() as u64)
    }
}
