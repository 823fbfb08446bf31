//! Reseals records. A stored message never changes, so new messages contain the resealed records, and the old messages are removed.

use async_trait::async_trait;
use ferrata_store::{Record, Resealing, Result, RunKey, check_reseal, has_place, refusal};

use crate::error::{NatsCallEffect, NatsStoreError};
use crate::message;
use crate::read::{ATTEMPTS, SubjectLog};
use crate::store::{NatsInner, NatsStore};
use crate::stream::BodyDelivery;

const OPERATION: &str = "store.reseal";

#[async_trait]
impl Resealing for NatsStore {
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        check_reseal(run, records)?;
        Box::pin(self.inner.reseal(run, records)).await
    }
}

impl NatsInner {
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        let fail = |fault: NatsStoreError| fault.of_run(OPERATION, run, NatsCallEffect::Written);
        let subject = self.subject(run).await.map_err(fail)?;
        let most = self.link.client().await.map_err(fail)?.max_payload();
        let (mut left, mut replaced) = (records, 0);
        for _ in 0..ATTEMPTS {
            let connection = self.link.connection().await.map_err(fail)?;
            let log = self.log(&subject, |_, _| 1, BodyDelivery::Without).await.map_err(fail)?;
            let Some(log) = log else { return Err(refusal::no_run(OPERATION, run)) };
            // The next message names the first retained record, so an incomplete log would lose records here.
            if !log.holds((log.last.first, log.last.head.seq)) {
                return Err(fail(NatsStoreError::corrupt(
                    None,
                    "records are missing in the log; see `ferrata verify`",
                )));
            }
            match self.replace(connection, &subject, log, &mut left, most, &mut replaced).await {
                Ok(()) => return Ok(replaced),
                // The run was appended to or pruned.
                Err(fault) => self.check_retry(fault).await.map_err(fail)?,
            }
        }
        Err(fail(NatsStoreError::CHANGES))
    }

    /// Replaces the records that are `left`, message by message. If another caller writes to the run, the server refuses the next message.
    async fn replace(
        &self,
        connection: u64,
        subject: &str,
        mut log: SubjectLog,
        left: &mut &[Record],
        most: usize,
        replaced: &mut u64,
    ) -> Result<(), NatsStoreError> {
        while !left.is_empty() {
            let (given, rest) = left.split_at(count_fitting(left, most));
            let have_place: Vec<Record> =
                given.iter().filter(|given| has_place_in(&log, given)).cloned().collect();
            if !have_place.is_empty() {
                let sent = log.change(0, &have_place)?;
                let stored = self.link.publish(Some(connection), subject, sent).await?;
                log.changed(stored);
                // If a message is missing, a reader that started with the previous message reads again.
                self.delete_all(log.take_unneeded(0)).await?;
            }
            *left = rest;
            *replaced += have_place.len() as u64;
        }
        Ok(())
    }
}

fn has_place_in(log: &SubjectLog, given: &Record) -> bool {
    let place = log.place(given.header.seq);
    place.is_some_and(|place| has_place(&log.entries[place].record.header, &given.header))
}

/// Returns how many records go into one message. They may take half of the message; the other half is for the state of the run.
fn count_fitting(records: &[Record], most: usize) -> usize {
    let mut bytes = 0;
    let fit = records.iter().take_while(|record| {
        bytes += message::length(record);
        bytes <= most / 2
    });
    fit.count().max(1)
}
