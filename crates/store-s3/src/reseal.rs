//! Reseals records: rewrites the object that contains them, if it is unchanged since it was read.

use ferrata_store::{Record, RunKey, has_place};

use crate::error::S3StoreError;
use crate::inner::{READS, S3Inner};
use crate::view::OpenedLog;

impl S3Inner {
    /// Replaces those given records that the log has, and returns their number.
    pub(crate) async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64, S3StoreError> {
        let (mut replaced, mut at) = (0, 0);
        while at < records.len() {
            let (done, count) = self.reseal_object(run, &records[at..]).await?;
            replaced += count;
            at += done;
        }
        Ok(replaced)
    }

    /// Replaces the first given records that are in one object. Returns how many of the given records it processed, and how many of them it
    /// replaced.
    async fn reseal_object(&self, run: &RunKey, records: &[Record]) -> Result<(usize, u64), S3StoreError> {
        for attempt in 0..READS {
            let log = self.open(run).await?.ok_or(S3StoreError::NoRun)?;
            match self.reseal_in(run, &log, records).await {
                Err(fault) if fault.is_damage() && self.has_changed(run, &log).await? => {}
                Ok(None) => self.pause(attempt).await,
                Ok(Some(done)) => return Ok(done),
                Err(fault) => return Err(fault),
            }
        }
        Err(S3StoreError::Restless { what: self.layout.run(run) })
    }

    /// Returns `None` if another caller wrote the object meanwhile.
    async fn reseal_in(
        &self,
        run: &RunKey,
        log: &OpenedLog,
        records: &[Record],
    ) -> Result<Option<(usize, u64)>, S3StoreError> {
        let Some(first) = records.first().map(|record| record.header.seq.get()) else {
            return Ok(Some((0, 0)));
        };
        if !(log.first()..=log.last()).contains(&first) {
            return Ok(Some((1, 0)));
        }
        let mut chunk = self.chunk_with(run, log, first).await?;
        let (begin, end) = (chunk.head.first(), chunk.head.end());
        let here = records.iter().take_while(|record| (begin..end).contains(&record.header.seq.get()));
        let (mut done, mut replaced) = (0, 0);
        for record in here {
            let place = usize::try_from(record.header.seq.get() - begin).unwrap_or(usize::MAX);
            if let Some(kept) =
                chunk.records.get_mut(place).filter(|kept| has_place(&kept.header, &record.header))
            {
                *kept = record.clone();
                replaced += 1;
            }
            done += 1;
        }
        let is_done = replaced == 0 || self.rewrite(&mut chunk, 0).await?;
        Ok(is_done.then_some((done, replaced)))
    }
}
