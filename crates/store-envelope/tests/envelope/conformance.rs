//! The conformance suite over an encrypted memory store.
//!
//! Headers and the reports of prunes and purges have the length and checksum of the stored envelope, but the suite expects those of the bodies. The
//! tested store therefore takes them from the records.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    At, CheckpointStore, HeadRef, HeaderRange, Headers, Page, Paged, PruneCut, Removed, Result, RunAppend,
    RunHead, RunKey, RunQuery, Seq, Timestamp, delegate,
};
use ferrata_store_conformance::{Damage, MemorySpace, Space, StoreFactory};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, LabelKey};

#[derive(Debug)]
struct Looked<S>(EnvelopeStore<S>, Unlabelled<S>);

/// The same store without the key of labels, for texts of the suite that are too long to be encrypted.
#[derive(Debug)]
struct Unlabelled<S>(EnvelopeStore<S>);

/// The longest text that can be encrypted.
const MOST: usize = 148;

/// Whether a store that encrypts labels refuses one of the texts.
fn is_too_long<'a>(mut texts: impl Iterator<Item = &'a str>) -> bool {
    texts.any(|text| text.len() > MOST)
}

impl<S: CheckpointStore> Looked<S> {
    /// The store that accepts an append.
    fn taking(&self, append: &RunAppend) -> &EnvelopeStore<S> {
        let said = append.facts.as_ref();
        let texts = said
            .into_iter()
            .flat_map(|facts| facts.labels.iter().map(|(_, text)| text).chain(facts.user.as_deref()));
        if is_too_long(texts) { &self.1.0 } else { &self.0 }
    }

    /// Counts the records before a sequence number, their stored bytes, and the bytes of their bodies.
    async fn before(&self, run: &RunKey, cut: Option<Seq>) -> [u64; 3] {
        let mut sums = [0; 3];
        let mut range = Some(HeaderRange::oldest(HeaderRange::MAX));
        while let Some(asked) = range {
            let Ok(found) = self.0.headers(run, asked).await else { return sums };
            range = asked.after(&found);
            for header in found.items.iter().filter(|header| cut.is_none_or(|cut| header.seq < cut)) {
                let stored = u64::from(header.body_len);
                let loaded = self.0.load(run, At::Seq(header.seq)).await.ok().flatten();
                let bytes = loaded.and_then(|records| Some(records.last()?.body.len() as u64));
                sums = [sums[0] + 1, sums[1] + stored, sums[2] + bytes.unwrap_or(stored)];
            }
        }
        sums
    }
}

/// The removed amount, in bytes of bodies.
fn of_bodies(removed: Removed, [records, stored, bodies]: [u64; 3]) -> Removed {
    match removed.records == records && removed.bytes == stored {
        true => Removed { records, bytes: bodies },
        false => removed,
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: CheckpointStore> CheckpointStore for Looked<S> {
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        match &batch[..] {
            [one] => self.taking(one).append(batch).await,
            _ => self.0.append(batch).await,
        }
    }
    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        loop {
            let found = self.0.headers(run, range).await?;
            let mut headers = found.clone();
            for header in &mut headers.items {
                // A damaged record is reported in its stored form.
                if let Ok(Some(records)) = self.0.load(run, At::Seq(header.seq)).await
                    && let Some(record) = records.last()
                {
                    *header = record.header.clone();
                }
            }
            // The run may have been restarted in between.
            if self.0.headers(run, range).await.is_ok_and(|again| again == found) {
                return Ok(headers);
            }
        }
    }
    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let texts = query.labels.iter().map(|(_, text)| text.as_str()).chain(query.user.as_deref());
        if is_too_long(texts) { self.1.0.runs(query, page).await } else { self.0.runs(query, page).await }
    }
    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let before = self.before(run, Some(cut.at)).await;
        self.0.prune(run, cut).await.map(|removed| of_bodies(removed, before))
    }
    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let before = self.before(run, None).await;
        self.0.purge(run, expected).await.map(|removed| of_bodies(removed, before))
    }

    delegate! {
        |this| this.0;
        capabilities, setup, load, load_since, head, heartbeat, is_alive, transactions, part, resealing, relay,
        subscribe
    }
}

/// Creates memory stores whose records are in envelopes.
struct Enveloped(fn() -> EnvelopeOptions);

struct EnvelopedSpace(MemorySpace, EnvelopeOptions);

#[async_trait]
impl StoreFactory for Enveloped {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(EnvelopedSpace(MemorySpace::default(), (self.0)()))
    }
}

#[async_trait]
impl Space for EnvelopedSpace {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        let over = |options| EnvelopeStore::new(self.0.store.clone(), options);
        let unlabelled = {
            let mut options = self.1.clone();
            options.labels = None;
            options
        };
        Arc::new(Looked(over(self.1.clone()), Unlabelled(over(unlabelled))))
    }
    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        self.0.damage(run, damage).await
    }
    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        self.0.advance_clock(by).await
    }
    /// For each listing, the lookups of `Looked` load every record.
    fn is_brief(&self) -> bool {
        true
    }
}

/// Every layer: bodies compressed and encrypted, labels and users encrypted.
fn layers() -> EnvelopeOptions {
    crate::all().with_label_key(LabelKey::new(&Key::from_bytes([3; 32])))
}

ferrata_store_conformance::suite!(Enveloped(layers), without: [
    durable = "the memory store keeps nothing beyond the process",
    torn = "a record is never half in memory",
    swap = "the memory store has no index that leads to its logs",
    tail = "nothing beside the logs in memory says where they end",
    transactions = "the memory store inside has none",
]);
