//! Prunes and purges. Both first store a message that changes what the log contains, and then remove the messages that are not needed any more.

use ferrata_store::{At, HeadRef, PruneCut, Record, Removed, Result, RunKey, check_prune, refusal};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::error::{NatsCallEffect, NatsStoreError};
use crate::message::{self, OutgoingMessage};
use crate::read::{ATTEMPTS, LogEntry, SubjectLog};
use crate::store::NatsInner;
use crate::stream::{BodyDelivery, DeliveredMessage};

/// The number of messages to remove at once.
const AT_ONCE: usize = 64;

impl NatsInner {
    pub(crate) async fn prune(&self, run: &RunKey, cut: &PruneCut) -> Result<Removed> {
        const OPERATION: &str = "store.prune";
        let fail = |doubt| move |fault: NatsStoreError| fault.of_run(OPERATION, run, doubt);
        let subject = self.subject(run).await.map_err(fail(NatsCallEffect::None))?;
        for _ in 0..ATTEMPTS {
            let connection = self.link.connection().await.map_err(fail(NatsCallEffect::None))?;
            let log = self
                .log(&subject, |_, _| 1, BodyDelivery::Without)
                .await
                .map_err(fail(NatsCallEffect::None))?;
            let Some(mut log) = log else { return Err(refusal::no_run(OPERATION, run)) };
            let (first, head) = (log.last.first, log.last.head.seq);
            if cut.at < first {
                return Ok(Removed::default());
            }
            if cut.at > head {
                return Err(refusal::no_record(OPERATION, run, At::Seq(cut.at)));
            }
            let Some(place) = log.place(cut.at) else {
                return Err(refusal::gone(run, cut.at).with_operation(OPERATION));
            };
            let base = check_prune(run, &log.entries[place].record.header, cut)?;
            if cut.at > first || base.is_some() {
                let base: Vec<Record> = base.cloned().into_iter().collect();
                let sent = log.change(place, &base).map_err(fail(NatsCallEffect::None))?;
                match self.link.publish(Some(connection), &subject, sent).await {
                    Ok(at) => {
                        log.changed(at);
                        self.notice(run, None);
                    }
                    Err(fault) => {
                        self.check_retry(fault).await.map_err(fail(NatsCallEffect::Written))?;
                        continue;
                    }
                }
            }
            // From here on, readers skip the messages to remove: those before the cut, and cuts that a later cut replaced.
            let unneeded = log.take_unneeded(place);
            self.delete_all(unneeded).await.map_err(fail(NatsCallEffect::Written))?;
            return Ok(size(&log.entries[..place]));
        }
        Err(fail(NatsCallEffect::None)(NatsStoreError::CHANGES))
    }

    /// Removes messages of logs, each with its own call. Purging a whole subject instead would make servers of version 2.9 skip messages of other
    /// subjects that a consumer has not delivered yet.
    pub(crate) async fn delete_all(&self, places: Vec<u64>) -> Result<(), NatsStoreError> {
        for some in places.chunks(AT_ONCE) {
            try_join_all(some.iter().map(|at| self.delete(*at))).await?;
        }
        Ok(())
    }

    /// Removes one message of the logs, if it exists.
    pub(crate) async fn delete(&self, at: u64) -> Result<(), NatsStoreError> {
        let call = format!("STREAM.MSG.DELETE.{}", self.layout.logs());
        let deleted = self.link.api::<Value>(&call, &json!({ "seq": at, "no_erase": true })).await;
        match deleted {
            Err(fault) if matches!(fault, NatsStoreError::Refused { .. }) => {
                let is_there = self.get(&self.layout.logs(), json!({ "seq": at })).await?.is_some();
                if is_there { Err(fault) } else { Ok(()) }
            }
            other => other.map(drop),
        }
    }

    pub(crate) async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        const OPERATION: &str = "store.purge";
        let fail = |fault: NatsStoreError| fault.of_run(OPERATION, run, NatsCallEffect::None);
        let subject = self.subject(run).await.map_err(fail)?;
        for _ in 0..ATTEMPTS {
            let connection = self.link.connection().await.map_err(fail)?;
            let got = self.last(&self.layout.logs(), &subject).await.map_err(fail)?;
            let Some(got) = got else {
                self.check_missing(&subject).await.map_err(fail)?;
                return Ok(Removed::default());
            };
            let found = message::read(got.at, got.said.as_deref(), &got.payload);
            if matches!(found, Ok(None)) {
                // The run is purged already, but some of its messages may remain.
                self.clear(&subject, got.at).await.map_err(fail)?;
                return Ok(Removed::default());
            }
            if let Some(expected) = expected {
                let actual = found.map_err(fail)?.map(|stored| stored.said.head.head());
                if actual != Some(expected) {
                    return Err(refusal::conflict(run, Some(expected), actual).with_operation(OPERATION));
                }
            }
            let sent = OutgoingMessage::end(expected.map(|_| got.at)).map_err(fail)?;
            match self.link.publish(Some(connection), &subject, sent).await {
                Ok(end) => {
                    self.known.remove(&subject);
                    self.notice(run, None);
                    return self.clear(&subject, end).await.map_err(fail);
                }
                Err(fault) => self.check_retry(fault).await.map_err(fail)?,
            }
        }
        Err(fail(NatsStoreError::CHANGES))
    }

    /// Removes the messages before an end, and counts the readable records.
    pub(crate) async fn clear(&self, subject: &str, end: u64) -> Result<Removed, NatsStoreError> {
        let Some(walked) = self.walk(subject, (1, end), BodyDelivery::Without).await? else {
            return Ok(Removed::default());
        };
        let places = walked.iter().map(|message| message.at).filter(|at| *at < end).collect();
        let mut found = Vec::new();
        for DeliveredMessage { at, said, payload, .. } in
            walked.into_iter().filter(|message| message.at < end)
        {
            match self.stored(at, said, payload).await {
                Ok(Some(stored)) => found.push(stored),
                Ok(None) => found.clear(),
                Err(fault) if fault.kind(NatsCallEffect::None).is_retryable() => return Err(fault),
                Err(fault) => tracing::debug!(%fault, "removing an unreadable message"),
            }
        }
        self.delete_all(places).await?;
        // Remove the messages that the replica lacked, too.
        let first = json!({ "seq": 1, "next_by_subj": subject });
        while let Some(left) =
            self.get(&self.layout.logs(), first.clone()).await?.filter(|left| left.at < end)
        {
            self.delete(left.at).await?;
        }
        Ok(SubjectLog::of(found).map(|log| size(&log.entries)).unwrap_or_default())
    }
}

fn size(entries: &[LogEntry]) -> Removed {
    let bytes = entries.iter().map(|entry| u64::from(entry.record.header.body_len)).sum();
    Removed { records: entries.len() as u64, bytes }
}
