//! Appends. One statement writes a batch in one round trip. A second statement reads the runs of refused entries only.

use std::collections::HashSet;
use std::sync::Arc;

use ferrata_store::{Error, ErrorKind, HeadRef, Result, RunAppend, RunKey, check_append, refusal};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row as _};

use crate::batch::{StatementBatch, check};
use crate::db::{PostgresDb, Sql};
use crate::error::{PostgresCallEffect, PostgresStoreError, fault};
use crate::row_write_mode::RowWriteMode;
use crate::run_key_cache::RunKeyCache;
use crate::single::Single;
use crate::statement::{LockMode, Statements};
use crate::tail;

const OPERATION: &str = "store.append";

/// The maximum size of the bodies in one statement, in bytes, unless one entry has more.
///
/// The runtime's batches have at most 4 MiB. The limit is for other callers, so that the server never holds much more at once.
const MAX_STATEMENT: usize = 32 << 20;

/// The statements for appends.
#[derive(Clone, Debug)]
pub(crate) struct AppendStatements {
    pub(crate) statements: Statements,
    pub(crate) single: Single,
    pub(crate) look: Sql,
    pub(crate) keys: Arc<RunKeyCache>,
}

/// The route of an append: through the pool, or into a caller's transaction.
pub(crate) enum AppendRoute<'c> {
    Pool(&'c PostgresDb),
    Transaction { connection: &'c mut PgConnection, prepared: bool },
}

impl AppendRoute<'_> {
    async fn write(
        &mut self,
        query: Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, PostgresStoreError> {
        match self {
            Self::Pool(db) => db.write(query).await,
            Self::Transaction { connection, prepared } => {
                let query = query.persistent(*prepared);
                query
                    .fetch_all(&mut **connection)
                    .await
                    .map_err(|error| fault(&error, PostgresCallEffect::Write))
            }
        }
    }

    async fn read(
        &mut self,
        make: impl Fn() -> Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, PostgresStoreError> {
        match self {
            Self::Pool(db) => db.read(make).await,
            Self::Transaction { connection, prepared } => {
                let query = make().persistent(*prepared);
                query
                    .fetch_all(&mut **connection)
                    .await
                    .map_err(|error| fault(&error, PostgresCallEffect::Write))
            }
        }
    }
}

/// One result for each entry; `None` until the result is known.
struct EntryResults(Vec<Option<Result<HeadRef>>>);

impl EntryResults {
    /// Returns the indexes among `places` that have no result yet.
    fn open(&self, places: &[usize]) -> Vec<usize> {
        places.iter().copied().filter(|place| self.0[*place].is_none()).collect()
    }
}

impl AppendStatements {
    /// Appends each entry, and returns the result of each.
    pub(crate) async fn run(&self, mut via: AppendRoute<'_>, batch: &[RunAppend]) -> Vec<Result<HeadRef>> {
        let mut results = EntryResults(vec![None; batch.len()]);
        let mut seen = HashSet::new();
        let mut waiting = Vec::with_capacity(batch.len());
        for (place, append) in batch.iter().enumerate() {
            let is_doubled = batch.len() > 1 && !seen.insert(&append.run);
            match admit(append, is_doubled) {
                Ok(()) => waiting.push(place),
                Err(error) => results.0[place] = Some(Err(error)),
            }
        }
        for chunk in chunks(batch, &waiting) {
            self.write(&mut via, batch, chunk, &mut results).await;
        }
        let unanswered = |run: &RunKey| {
            // Every entry has a result by now; this error replaces a panic if one is missing.
            let message = "the entry got no result; retry with the same records";
            Error::new(ErrorKind::Indeterminate, message).with_operation(OPERATION).with_run(run)
        };
        results
            .0
            .into_iter()
            .zip(batch)
            .map(|(result, append)| result.unwrap_or_else(|| Err(unanswered(&append.run))))
            .collect()
    }

    /// Writes the entries at these indexes with one statement. If the server refuses a value of an entry, writes each entry with its own statement.
    async fn write(
        &self,
        via: &mut AppendRoute<'_>,
        batch: &[RunAppend],
        places: &[usize],
        results: &mut EntryResults,
    ) {
        // In a caller's transaction, a failed attempt would fail the transaction.
        let is_pooled = matches!(via, AppendRoute::Pool(_));
        let waits = if is_pooled { LockMode::Briefly } else { LockMode::InOrder };
        let mut sent = self.write_together(via, batch, places, waits, results).await;
        // The results of earlier statements stay valid if a later one fails.
        let mut open = results.open(places);
        if waits == LockMode::Briefly && sent.as_ref().is_err_and(PostgresStoreError::is_of_other_writers) {
            sent = self.write_together(via, batch, &open, LockMode::InOrder, results).await;
            open = results.open(&open);
        }
        let Err(refused) = sent else { return };
        // In a caller's transaction, no further statement can run after a failed one.
        if refused.is_of_values() && open.len() > 1 && is_pooled {
            for place in &open {
                let alone = self.write_together(via, batch, &[*place], LockMode::InOrder, results).await;
                if let Err(refused) = alone {
                    results.0[*place] = Some(Err(refused.of_run(OPERATION, &batch[*place].run)));
                }
            }
            return;
        }
        for place in &open {
            results.0[*place] = Some(Err(refused.copy().of_run(OPERATION, &batch[*place].run)));
        }
    }

    /// Creates the statement, and returns the indexes of its entries; `None` if there are no entries.
    fn query(
        &self,
        batch: &[RunAppend],
        places: &[usize],
        (waits, shown): (LockMode, RowWriteMode),
        results: &mut EntryResults,
    ) -> Option<(Query<'static, Postgres, PgArguments>, Vec<usize>)> {
        if let [place] = places
            && let append = &batch[*place]
            && let Some(query) = self.single.bind(append, self.keys.get(&append.run), (waits, shown))
        {
            return Some((query, vec![*place]));
        }
        let mut columns = StatementBatch::new(shown);
        let mut sent = Vec::with_capacity(places.len());
        for place in places {
            let append = &batch[*place];
            let Some(last) = append.records.last() else { continue };
            let key = append.expected.and_then(|_| self.keys.get(&append.run));
            match columns.push(append, key, &last.header) {
                Ok(()) => sent.push(*place),
                Err(error) => results.0[*place] = Some(Err(error.with_run(&append.run))),
            }
        }
        (!sent.is_empty()).then(|| (columns.query(&self.statements, waits), sent))
    }

    async fn write_together(
        &self,
        via: &mut AppendRoute<'_>,
        batch: &[RunAppend],
        places: &[usize],
        waits: LockMode,
        results: &mut EntryResults,
    ) -> Result<(), PostgresStoreError> {
        let again = self.write_as(via, batch, places, (waits, RowWriteMode::AsItSeems), results).await?;
        if again.is_empty() {
            return Ok(());
        }
        // Their heads are the expected heads. So their runs' rows had to change, although that did not seem so, or the cache had outdated keys.
        let left = self.write_as(via, batch, &again, (waits, RowWriteMode::Written), results).await?;
        for place in left {
            results.0[place] = Some(Err(tail::changed_back_error(&batch[place].run)));
        }
        Ok(())
    }

    /// Writes the entries, reads the unwritten ones again, and returns the indexes of those with the expected head.
    async fn write_as(
        &self,
        via: &mut AppendRoute<'_>,
        batch: &[RunAppend],
        places: &[usize],
        how: (LockMode, RowWriteMode),
        results: &mut EntryResults,
    ) -> Result<Vec<usize>, PostgresStoreError> {
        let mut again = Vec::new();
        let Some((query, sent)) = self.query(batch, places, how, results) else { return Ok(again) };
        let rows = via.write(query).await?;
        let written =
            written_entries(&rows, &sent).map_err(|error| fault(&error, PostgresCallEffect::Write))?;
        for (place, key) in written {
            self.keys.set(&batch[place].run, key);
            let last = batch[place].records.last().map(|record| record.header.head());
            results.0[place] = last.map(Ok);
        }
        let refused: Vec<_> = (0..).zip(&sent).filter(|(_, place)| results.0[**place].is_none()).collect();
        let entries: Vec<(i32, &RunAppend)> =
            refused.iter().map(|(n, place)| (*n, &batch[**place])).collect();
        if !entries.is_empty() {
            let looked = via.read(|| tail::bind_entries(&self.look, &entries)).await;
            for ((n, append), (_, place)) in entries.iter().zip(&refused) {
                let decided = match &looked {
                    Ok(rows) => {
                        let its = |row: &&PgRow| row.try_get::<i32, _>(0).is_ok_and(|of| of == *n);
                        let rows: Vec<_> = rows.iter().filter(its).collect();
                        if let Some(key) = rows.first().and_then(|row| tail::key(row)) {
                            self.keys.set(&append.run, key);
                        }
                        tail::decide(append, &rows)
                    }
                    Err(failed) => Err(unknown_outcome_error(failed, &append.run)),
                };
                results.0[**place] = decided.transpose();
                if results.0[**place].is_none() {
                    again.push(**place);
                }
            }
        }
        Ok(again)
    }
}

/// Makes the checks before anything is sent.
fn admit(append: &RunAppend, is_doubled: bool) -> Result<()> {
    if is_doubled {
        return Err(refusal::doubled(&append.run));
    }
    check_append(append)?;
    check(append).map_err(|refused| refused.of_run(OPERATION, &append.run))
}

/// Splits a batch so that no statement holds too many bytes.
fn chunks<'p>(batch: &[RunAppend], places: &'p [usize]) -> Vec<&'p [usize]> {
    let size = |place: &usize| batch[*place].records.iter().map(|record| record.body.len()).sum::<usize>();
    let (mut chunks, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, place) in places.iter().enumerate() {
        let more = size(place);
        if at > from && bytes + more > MAX_STATEMENT {
            chunks.push(&places[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += more;
    }
    if from < places.len() {
        chunks.push(&places[from..]);
    }
    chunks
}

/// Parses the answer: the indexes of the written entries, and the keys of their runs.
fn written_entries(rows: &[PgRow], sent: &[usize]) -> Result<Vec<(usize, i64)>, sqlx::Error> {
    let mut written = Vec::with_capacity(sent.len());
    for row in rows {
        let (entries, keys): (Vec<i32>, Vec<i64>) = (row.try_get(0)?, row.try_get(1)?);
        for (n, key) in entries.into_iter().zip(keys) {
            let place = usize::try_from(n).ok().and_then(|n| sent.get(n)).copied();
            let place = place.ok_or_else(|| sqlx::Error::Protocol("an answer to no entry".to_owned()))?;
            written.push((place, key));
        }
    }
    Ok(written)
}

/// Returns the error for an entry that this attempt did not write, although an earlier attempt with a lost reply may have.
fn unknown_outcome_error(failed: &PostgresStoreError, run: &RunKey) -> Error {
    let message = "could not check whether the records exist; retry with the same records";
    Error::new(ErrorKind::Indeterminate, message)
        .with_operation(OPERATION)
        .with_run(run)
        .with_source(failed.copy().into_error(OPERATION))
}
