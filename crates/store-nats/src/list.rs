//! Lists runs from a copy of every run's last message. The copy is in memory; each listing updates it from the stream first.
//!
//! The last message of a run has all data that a listing shows, and the stream delivers every last message in order. So there is no separate index
//! that could lack a run. The stream does not deliver removed messages, so a purge leaves a message that marks the end of the run. That message
//! stays until every process has read it ([`GRACE`]). A process that has not listed for half of that time reads everything again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_store::index::RunStanding;
use ferrata_store::{
    ExecutorId, Page, Paged, RecordHeader, Result, RunFacts, RunFilter, RunHead, RunKey, RunQuery, Seq,
    Timestamp, page,
};
use futures_util::future::join_all;
use serde_json::json;

use crate::error::{NO_CONSUMER, NatsCallEffect, NatsStoreError};
use crate::message::{self, MessageContent};
use crate::store::NatsInner;
use crate::stream::{BodyDelivery, DeliveredMessage, EMPTY, FeedStart, StreamFeed};

/// How long the message at the end of a purged run stays in the stream.
const GRACE: Duration = Duration::from_secs(600);

/// The maximum number of such messages that one listing removes.
const AT_ONCE: usize = 64;

/// The copy of the state of all runs, as of a position in the stream.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    generation: Option<Arc<str>>,
    /// The connection over which the messages were read. A restarted server may lack its last messages.
    connection: u64,
    feed: Option<StreamFeed>,
    /// The position of the last message read.
    read: u64,
    /// The start of the last read, by the monotonic clock.
    began: Duration,
    heads: HashMap<RunKey, ListedRun>,
    /// The errors of runs with an unreadable last message.
    unreadable: BTreeMap<RunKey, NatsStoreError>,
    /// The messages at the ends of purged runs, with their times.
    ends: BTreeMap<u64, (RunKey, Timestamp)>,
}

#[derive(Debug)]
struct ListedRun {
    first: Seq,
    head: RecordHeader,
    facts: RunFacts,
}

impl Mirror {
    fn take(&mut self, run: RunKey, message: &DeliveredMessage) {
        self.read = self.read.max(message.at);
        self.unreadable.remove(&run);
        match message::read(message.at, message.said.as_deref(), &message.payload) {
            Ok(Some(stored)) => {
                let MessageContent { first, head, facts, .. } = stored.said;
                self.heads.insert(run, ListedRun { first, head, facts });
            }
            Ok(None) => {
                self.heads.remove(&run);
                self.ends.insert(message.at, (run, message.time));
            }
            Err(fault) => {
                tracing::warn!(%run, %fault, "skipped an unreadable run in listings");
                self.heads.remove(&run);
                self.unreadable.insert(run, fault);
            }
        }
    }

    fn head(&self, run: &RunKey, alive: &HashSet<ExecutorId>) -> Option<RunHead> {
        let ListedRun { first, head, facts } = self.heads.get(run)?;
        let is_alive = head.owner.is_some_and(|owner| alive.contains(&owner));
        Some(RunHead::after(run.clone(), *first, head, is_alive, facts.clone()))
    }
}

impl NatsInner {
    pub(crate) async fn runs(&self, query: &RunQuery, asked: &Page) -> Result<Paged<RunHead>> {
        let fail = |fault: NatsStoreError| fault.into_error("store.runs", NatsCallEffect::None);
        let now = match query.filter {
            RunFilter::Any => self.estimated_now().await,
            // These filters depend on the exact time.
            _ => self.now().await,
        };
        let now = now.map_err(fail)?;
        let mut mirror = self.mirror.lock().await;
        self.refresh(&mut mirror).await.map_err(fail)?;
        self.forget_ends(&mut mirror, now).await;
        if let Some((run, fault)) = mirror.unreadable.iter().find(|(run, _)| query.fails_without(run)) {
            return Err(fault.clone().of_run("store.runs", run, NatsCallEffect::None));
        }
        // Select runs as if no owner were alive. The result contains all matches, and more.
        let meets = |run: &RunKey, known: &ListedRun| {
            query.meets_facts(run, &known.facts)
                && query.meets_standing(&RunStanding::after(&known.head), false, now)
        };
        let found: Vec<&RunKey> =
            mirror.heads.iter().filter(|(run, known)| meets(run, known)).map(|(run, _)| run).collect();
        let owner_of = |run: &RunKey| mirror.heads.get(run).and_then(|known| known.head.owner);
        let heads = |alive: &HashSet<ExecutorId>| {
            found.iter().filter_map(|run| mirror.head(run, alive)).collect::<Vec<_>>()
        };
        if query.filter != RunFilter::Any {
            let owners = found.iter().filter_map(|run| owner_of(run)).collect();
            let alive = self.alive(owners, now).await.map_err(fail)?;
            return page(query, asked, now, heads(&alive));
        }
        // Return only the heads of the page, because the number of heads may be large.
        let mut paged = page(query, asked, now, heads(&HashSet::new()))?;
        let owners = paged.items.iter().filter_map(|head| head.owner).collect();
        let alive = self.alive(owners, now).await.map_err(fail)?;
        for head in &mut paged.items {
            head.owner_alive = head.owner.is_some_and(|owner| alive.contains(&owner));
        }
        Ok(paged)
    }

    /// Reads all messages up to now.
    async fn refresh(&self, mirror: &mut Mirror) -> Result<(), NatsStoreError> {
        let began = self.clock.monotonic();
        let stream = self.layout.logs();
        let connection = self.link.connection().await?;
        // Ask each time: a stream that was deleted and created again has another generation.
        let (generation, last) = self.look_up().await?;
        // Take the feed out, and put it back only at the end. If this call fails or is dropped, the feed cannot deliver the same messages again.
        let known = mirror.feed.take().filter(|_| {
            began.saturating_sub(mirror.began) <= GRACE / 2
                && mirror.generation.as_ref() == Some(&generation)
                && mirror.connection == connection
                // A replica may be behind.
                && (mirror.read <= last || self.is_replicated.load(Ordering::Relaxed))
        });
        let all = self.layout.all_runs(&generation);
        let mut feed = match known {
            Some(feed) => feed,
            None => self.rebuild(mirror, &generation, &all).await?,
        };
        let mut empty = 0;
        while mirror.read < last {
            match self.pull(&feed).await {
                Ok(pulled) if pulled.is_empty() => {
                    // The last messages may have been removed, or the replica of the consumer may be behind.
                    let next = json!({ "seq": mirror.read.saturating_add(1), "next_by_subj": all });
                    match self.get(&stream, next).await? {
                        Some(next) if next.at <= last && empty < EMPTY => empty += 1,
                        Some(next) if next.at <= last => {
                            self.close(feed).await;
                            (feed, empty) = (self.rebuild(mirror, &generation, &all).await?, 0);
                        }
                        _ => mirror.read = last,
                    }
                }
                Ok(pulled) => {
                    empty = 0;
                    for message in &pulled {
                        match self.layout.run_of(&message.subject) {
                            Some(run) => mirror.take(run, message),
                            None => mirror.read = mirror.read.max(message.at),
                        }
                    }
                }
                // The consumer expired because it had no reader, or its server has failed.
                Err(fault) if fault.code() == Some(NO_CONSUMER) => {
                    feed = self.rebuild(mirror, &generation, &all).await?
                }
                Err(fault) => return Err(fault),
            }
            if self.clock.monotonic().saturating_sub(began) > GRACE / 2 {
                return Err(NatsStoreError::Busy { what: "reading the heads of all runs takes too long" });
            }
        }
        mirror.feed = Some(feed);
        mirror.connection = connection;
        mirror.began = began;
        Ok(())
    }

    /// Reads everything again.
    async fn rebuild(
        &self,
        mirror: &mut Mirror,
        generation: &Arc<str>,
        all: &str,
    ) -> Result<StreamFeed, NatsStoreError> {
        *mirror = Mirror { generation: Some(Arc::clone(generation)), ..Mirror::default() };
        self.feed(&self.layout.logs(), all, FeedStart::LastOfEach, BodyDelivery::Without).await
    }

    /// Removes the messages at the ends of purged runs once every process has read them.
    async fn forget_ends(&self, mirror: &mut Mirror, now: Timestamp) {
        let is_old = |written: Timestamp| now.since(written) > GRACE;
        let old = mirror.ends.iter().filter(|(_, (_, written))| is_old(*written)).take(AT_ONCE);
        let old: Vec<(u64, RunKey)> = old.map(|(at, (run, _))| (*at, run.clone())).collect();
        let forgotten = join_all(old.iter().map(async |(at, run)| {
            let Some(generation) = &mirror.generation else { return Ok(()) };
            // Remove what remains of the run first. Without the end message, the remains would look like a run again.
            self.clear(&self.layout.run(generation, run), *at).await?;
            self.delete(*at).await
        }));
        for ((at, run), forgotten) in old.iter().zip(forgotten.await) {
            match forgotten {
                Ok(()) => drop(mirror.ends.remove(at)),
                Err(fault) => {
                    tracing::debug!(%run, %fault, "could not check the end of a run; a later listing does")
                }
            }
        }
    }
}
