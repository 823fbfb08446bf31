//! Appends. An append is one message. The server stores it only if the run's last message is the one that the writer knows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata_store::{
    HeadRef, Notice, Result, RunAppend, RunFacts, RunKey, Seq, check_append, check_batch, is_repeat, refusal,
};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::task::unconstrained;

use crate::error::{IN_FLIGHT, NO_STREAM, NatsCallEffect, NatsStoreError, WRONG_LAST};
use crate::message::{BasePosition, MessageContent, OutgoingMessage};
use crate::notices;
use crate::read::{ATTEMPTS, SubjectEnd};
use crate::store::NatsInner;
use crate::stream::BodyDelivery;

const OPERATION: &str = "store.append";

/// The maximum number of cached runs. Each takes about 500 bytes. A run that was dropped from the cache costs its next append a read.
const MOST: usize = 10_000;

/// The pause before another read while a message is on its way to the replicas.
const LANDING: Duration = Duration::from_millis(20);

/// The state of a run after its last message. It is valid while that message is the last.
#[derive(Clone, Debug)]
pub(crate) struct NatsKnownHead {
    at: u64,
    /// The connection over which the message was read or written. A restarted server may lack its last messages.
    connection: u64,
    head: HeadRef,
    first: Seq,
    base: BasePosition,
    facts: Arc<RunFacts>,
}

impl NatsKnownHead {
    fn after(connection: u64, at: u64, said: &MessageContent) -> Self {
        let base = BasePosition { at: if said.base.at == 0 { at } else { said.base.at }, ..said.base };
        let (first, facts) = (said.first, Arc::new(said.facts.clone()));
        Self { at, connection, head: said.head.head(), first, base, facts }
    }
}

/// The runs that this process wrote last, by subject.
#[derive(Debug, Default)]
pub(crate) struct NatsKnownHeads(Mutex<HashMap<String, NatsKnownHead>>);

impl NatsKnownHeads {
    fn at(&self, subject: &str, connection: u64, head: HeadRef) -> Option<NatsKnownHead> {
        let is_so = |stood: &&NatsKnownHead| stood.head == head && stood.connection == connection;
        self.runs().get(subject).filter(is_so).cloned()
    }

    /// Returns the position of the last known message of a subject; 0 if none is known.
    pub(crate) fn last(&self, subject: &str) -> u64 {
        self.runs().get(subject).map_or(0, |stood| stood.at)
    }

    fn remember(&self, subject: &str, stood: NatsKnownHead) {
        let mut runs = self.runs();
        if runs.len() >= MOST && !runs.contains_key(subject) {
            // Remove all runs at once: to track the order of use would cost every append more than this costs one append in ten thousand.
            runs.clear();
        }
        runs.insert(subject.to_owned(), stood);
    }

    pub(crate) fn remove(&self, subject: &str) {
        self.runs().remove(subject);
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<String, NatsKnownHead>> {
        // The server checks every cached value when it is used.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NatsInner {
    pub(crate) async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let checks = check_batch(&batch, check_append);
        let each = batch.into_iter().zip(checks).map(async |(append, check)| {
            check?;
            Box::pin(self.append_one(&append)).await
        });
        join_all(each).await
    }

    async fn append_one(&self, append: &RunAppend) -> Result<HeadRef> {
        let run = &append.run;
        let fail = |doubt| move |fault: NatsStoreError| fault.of_run(OPERATION, run, doubt);
        let subject = self.subject(run).await.map_err(fail(NatsCallEffect::None))?;
        for attempt in 0..ATTEMPTS {
            let connection = self.link.connection().await.map_err(fail(NatsCallEffect::None))?;
            // First use the cached state, or assume that the run is missing. In later attempts, read the actual state.
            let known = append.expected.and_then(|head| self.known.at(&subject, connection, head));
            let (at, stood) = if attempt == 0 && (known.is_some() || append.expected.is_none()) {
                (known.as_ref().map_or(0, |known| known.at), known)
            } else {
                let end = self.end(&subject).await.map_err(fail(NatsCallEffect::None))?;
                let found =
                    end.stored.as_ref().map(|stored| NatsKnownHead::after(connection, end.at, &stored.said));
                if end.head() != append.expected {
                    if let Some(found) = found {
                        self.known.remember(&subject, found);
                    }
                    return self.other_head(append, &subject, &end).await;
                }
                (end.at, found)
            };
            let said = message_content(append, stood.as_ref())
                .ok_or_else(|| refusal::conflict(run, append.expected, None))?;
            let sent = OutgoingMessage::of(&said, at, &append.records).map_err(fail(NatsCallEffect::None))?;
            match self.link.publish(Some(connection), &subject, sent).await {
                Ok(at) => {
                    self.known.remember(&subject, NatsKnownHead::after(connection, at, &said));
                    self.notice(run, Some(said.head.head()));
                    return Ok(said.head.head());
                }
                // Another caller has appended or pruned. The head shows which.
                Err(fault) => self.check_retry(fault).await.map_err(fail(NatsCallEffect::Written))?,
            }
        }
        Err(fail(NatsCallEffect::None)(NatsStoreError::CHANGES))
    }

    /// Answers an append whose expected head is not the actual head. The log may already end with the append.
    async fn other_head(&self, append: &RunAppend, subject: &str, end: &SubjectEnd) -> Result<HeadRef> {
        let run = &append.run;
        let given = append.records.last().map(|record| record.header.head());
        let conflict = || Err(refusal::conflict(run, append.expected, end.head()));
        let Some(head) = end.head().filter(|head| Some(*head) == given) else { return conflict() };
        let log = self.log(subject, |_, _| 1, BodyDelivery::Without).await;
        let log = log.map_err(|fault| fault.of_run(OPERATION, run, NatsCallEffect::None))?;
        let is_repeat = log.is_some_and(|log| {
            is_repeat(log.entries.iter().rev().map(|entry| &entry.record.header), append)
                && append.facts.as_ref().is_none_or(|facts| *facts == log.last.facts)
        });
        if is_repeat { Ok(head) } else { conflict() }
    }

    /// Decides whether a failed change may be retried after another read. It may if the run has another last message than expected, if it will soon
    /// have one, or if it may have one since the connection was lost.
    pub(crate) async fn check_retry(&self, fault: NatsStoreError) -> std::result::Result<(), NatsStoreError> {
        match (&fault, fault.code()) {
            (NatsStoreError::Busy { .. }, _) | (_, Some(WRONG_LAST)) => return Ok(()),
            // No read returns the message before the replicas have it.
            (_, Some(IN_FLIGHT)) => {
                self.clock.sleep(LANDING).await;
                return Ok(());
            }
            // The stream does not exist. If some program listens to all subjects, no server reports a missing stream, and no reply comes.
            (NatsStoreError::Absent | NatsStoreError::Lost { .. }, _) | (_, Some(NO_STREAM)) => {
                *self.cached_generation() = None;
            }
            _ => {}
        }
        Err(fault)
    }

    /// Notifies listeners of a changed run and its head. If the notice is lost, listeners learn of the change by polling.
    pub(crate) fn notice(&self, run: &RunKey, head: Option<HeadRef>) {
        if !self.options.notices {
            return;
        }
        let notice = Notice::new(run.clone());
        self.hearing.notify_local(match head {
            Some(head) => notice.with_head(head),
            None => notice,
        });
        let sent =
            OutgoingMessage { headers: notices::headers(head), ..OutgoingMessage::plain(run.to_string()) };
        let told = self.link.send_unacknowledged(self.layout.notices(), sent);
        // The append is stored, so it must not wait for space in the connection. `unconstrained` prevents that an exhausted task budget of Tokio
        // looks like a full connection.
        match unconstrained(told).now_or_never() {
            Some(Ok(())) => {}
            told => tracing::debug!(%run, ?told, "could not send a notice"),
        }
    }
}

/// Returns the contents of an append's message. Returns `None` if the append needs an existing run but the run does not exist.
fn message_content(append: &RunAppend, stood: Option<&NatsKnownHead>) -> Option<MessageContent> {
    let records: Vec<_> = append.records.iter().map(|record| record.header.clone()).collect();
    let own = records.iter().rev().find(|header| header.base);
    let own = own.map(|header| BasePosition { record: header.seq, at: 0 });
    let (first, base, facts) = match (stood, &append.facts) {
        (Some(stood), _) => (stood.first, own.unwrap_or(stood.base), (*stood.facts).clone()),
        (None, facts) => (Seq::new(0), own?, facts.clone()?),
    };
    Some(MessageContent { first, base, head: records.last()?.clone(), records, is_cut: false, facts })
}
