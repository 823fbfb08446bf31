//! The store that wraps another store.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::error::Error as StdError;
use std::sync::Arc;

use async_trait::async_trait;
use ferrata_store::{
    AnyTransaction, At, CheckpointStore, Error, ErrorKind, HeadRef, Page, Paged, PruneCut, Record, Removed,
    Resealing, Result, RunAppend, RunHead, RunKey, RunQuery, TenantId, Transactions, check_append,
    check_batch, check_reseal, delegate, is_repeat,
};

use futures_util::future::join_all;

use crate::envelope;
use crate::keys::Keyring;
use crate::labels::LabelKey;
use crate::provider::KeyProvider;

/// Options of an [`EnvelopeStore`]. By default it compresses bodies of 1 KiB and more, and encrypts nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EnvelopeOptions {
    /// The source of keys. With keys, every body is encrypted with the current key of its tenant. The default is `None`.
    pub keys: Option<Arc<dyn KeyProvider>>,
    /// Whether reads accept plain bodies although keys are set. The default is false.
    ///
    /// Set it for a store with older records from a time without keys. While it is true, anyone with write access to the store can add a record
    /// without having a key.
    pub accept_plain: bool,
    /// The minimum size of a body to compress, in bytes. The default is 1,024; `None` disables compression. A body that compression does not make
    /// smaller stays uncompressed.
    pub compress_from: Option<usize>,
    /// The maximum size of a decompressed body, in bytes. The default is 1 GiB. A read reports a larger body as damage, and a write leaves a larger
    /// body uncompressed. Set the same value in all processes.
    pub max_body: u64,
    /// The key that encrypts label values and users. The default is `None`: the inner store then gets them in plain text.
    ///
    /// The names of labels, and Ferrata's own labels, which begin with `ferrata.`, are never encrypted.
    pub labels: Option<LabelKey>,
}

impl Default for EnvelopeOptions {
    fn default() -> Self {
        Self { keys: None, accept_plain: false, compress_from: Some(1_024), max_body: 1 << 30, labels: None }
    }
}

impl EnvelopeOptions {
    /// Sets the source of keys: a [`Keyring`] for all tenants, or a provider with a ring for each tenant.
    #[must_use]
    pub fn with_keys(mut self, keys: impl KeyProvider) -> Self {
        self.keys = Some(Arc::new(keys));
        self
    }

    /// Sets whether reads accept plain bodies although keys are set.
    #[must_use]
    pub fn with_accept_plain(mut self, accept: bool) -> Self {
        self.accept_plain = accept;
        self
    }

    /// Sets the minimum size of a body to compress, in bytes; `None` disables compression.
    #[must_use]
    pub fn with_compress_from(mut self, bytes: Option<usize>) -> Self {
        self.compress_from = bytes;
        self
    }

    /// Sets the maximum size of a decompressed body, in bytes.
    #[must_use]
    pub fn with_max_body(mut self, bytes: u64) -> Self {
        self.max_body = bytes;
        self
    }
}

impl EnvelopeOptions {
    /// Sets the key that encrypts label values and users. Listings then search for the encrypted texts, so a search misses runs from a time without
    /// this key.
    #[must_use]
    pub fn with_label_key(mut self, key: LabelKey) -> Self {
        self.labels = Some(key);
        self
    }
}

/// A store that compresses and encrypts bodies before the inner store receives them.
///
/// This store keeps the guarantees of the inner store. `docs/how-to/at-rest.md` lists which data is encrypted and which is plain.
/// [`headers`](CheckpointStore::headers) returns the length and the checksum of the stored bytes.
///
/// # Examples
///
/// ```
/// use ferrata_store::MemoryStore;
/// use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Keyring};
///
/// let keys = Keyring::parse("2026-11 = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")?;
/// let store = EnvelopeStore::new(MemoryStore::new(), EnvelopeOptions::default().with_keys(keys));
/// # let _ = store;
/// # Ok::<(), ferrata_store::Error>(())
/// ```
#[derive(Debug)]
pub struct EnvelopeStore<S> {
    inner: S,
    options: EnvelopeOptions,
}

impl<S> EnvelopeStore<S> {
    /// Wraps a store. Existing records stay unchanged.
    pub fn new(inner: S, options: EnvelopeOptions) -> Self {
        Self { inner, options }
    }

    /// Returns the inner store. Its records are in envelopes.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    pub(crate) fn options(&self) -> &EnvelopeOptions {
        &self.options
    }

    /// Returns the keys of a tenant; `None` if this store has no keys.
    pub(crate) async fn keys(&self, tenant: &TenantId) -> Result<Option<Arc<Keyring>>> {
        match &self.options.keys {
            Some(provider) => provider.keyring(tenant).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the keys that decrypt these records of a run.
    pub(crate) async fn keys_for(&self, run: &RunKey, records: &[Record]) -> Result<Option<Arc<Keyring>>> {
        let keys = self.keys(&run.tenant).await?;
        match (&self.options.keys, &keys) {
            (Some(provider), Some(known)) if records.iter().any(|one| envelope::lacks(known, run, one)) => {
                provider.refresh_keyring(&run.tenant).await.map(Some)
            }
            _ => Ok(keys),
        }
    }

    pub(crate) fn closed(&self, keys: Option<&Keyring>, run: &RunKey, record: &Record) -> Result<Record> {
        let body = envelope::close(&self.options, keys, run, &record.header, &record.body)?;
        Record::seal(record.header.clone(), body).map_err(|error| error.with_run(run))
    }

    pub(crate) fn opened(&self, keys: Option<&Keyring>, run: &RunKey, record: Record) -> Result<Record> {
        record.verify(run)?;
        let body = envelope::open(&self.options, keys, run, &record.header, &record.body)?;
        Record::seal(record.header, body).map_err(|error| error.with_run(run))
    }

    /// Returns a head with decrypted labels and user.
    fn decrypt_head(&self, head: RunHead) -> RunHead {
        match &self.options.labels {
            Some(key) => key.opened(head),
            None => head,
        }
    }

    fn closed_append(&self, keys: Result<Option<Arc<Keyring>>>, append: &RunAppend) -> Result<RunAppend> {
        let run = &append.run;
        let keys = keys.map_err(|error| error.with_run(run))?;
        let records: Result<Vec<Record>> =
            append.records.iter().map(|record| self.closed(keys.as_deref(), run, record)).collect();
        let facts = match (&append.facts, &self.options.labels) {
            (Some(facts), Some(key)) => Some(key.closed(facts).map_err(|error| error.with_run(run))?),
            (facts, _) => facts.clone(),
        };
        Ok(RunAppend { records: records?, facts, ..append.clone() })
    }
}

impl<S: CheckpointStore> EnvelopeStore<S> {
    async fn open_records(&self, run: &RunKey, loaded: Option<Vec<Record>>) -> Result<Option<Vec<Record>>> {
        let Some(records) = loaded else { return Ok(None) };
        let keys = self.keys_for(run, &records).await.map_err(|error| error.with_run(run))?;
        let opened = |record| self.opened(keys.as_deref(), run, record);
        records.into_iter().map(opened).collect::<Result<_>>().map(Some)
    }

    /// Returns whether the log already ends with the refused records, in other envelopes because the key or the compression has changed since.
    async fn is_repeat(&self, append: &RunAppend, refused: &Error) -> bool {
        let Some(last) = append.records.last() else { return false };
        if refused.kind() != ErrorKind::Conflict
            || refused.actual_head().flatten() != Some(last.header.head())
        {
            return false;
        }
        let mut kept = Vec::with_capacity(append.records.len());
        for record in append.records.iter().rev() {
            match self.load(&append.run, At::Seq(record.header.seq)).await {
                Ok(Some(mut records)) => kept.extend(records.pop().map(|record| record.header)),
                // The earlier records are pruned.
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                _ => return false,
            }
        }
        is_repeat(&kept, append)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: CheckpointStore> CheckpointStore for EnvelopeStore<S> {
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let checked = check_batch(&batch, check_append);
        let closing = batch.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
        let tenants: HashSet<&TenantId> = closing.map(|(append, _)| &append.run.tenant).collect();
        // Ask for the keys of all tenants concurrently. If several tenants' keys are slow, the batch then waits only for the slowest.
        let asked = tenants.into_iter().map(|tenant| async move { (tenant, self.keys(tenant).await) });
        let keys: HashMap<&TenantId, _> = join_all(asked).await.into_iter().collect();
        let (mut results, mut sent) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for (append, checked) in batch.iter().zip(checked) {
            let closed = checked.and_then(|()| self.closed_append(keys[&append.run.tenant].clone(), append));
            // A body that fails here never reaches the inner store, which would store it without encryption.
            results.push(closed.map(|append| sent.push(append)));
        }
        let mut answers = self.inner.append(sent).await.into_iter();
        let mut told = Vec::with_capacity(batch.len());
        for (append, result) in batch.iter().zip(results) {
            let missing = || {
                Err(Error::new(ErrorKind::Indeterminate, "the inner store returned too few results; retry"))
            };
            let answer = match result {
                Ok(()) => answers.next().unwrap_or_else(missing),
                Err(refused) => Err(refused),
            };
            told.push(match answer {
                Err(refused) if self.is_repeat(append, &refused).await => {
                    refused.actual_head().flatten().ok_or(refused)
                }
                answer => answer,
            });
        }
        told
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.open_records(run, self.inner.load(run, at).await?).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.open_records(run, self.inner.load_since(run, known).await?).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let head = self.inner.head(run).await?;
        Ok(head.map(|head| self.decrypt_head(head)))
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let Some(key) = &self.options.labels else { return self.inner.runs(query, page).await };
        let Some(asked) = key.encrypt_query(query)? else {
            return Ok(Paged { items: Vec::new(), next: None });
        };
        let Paged { items, next } = self.inner.runs(&asked, page).await?;
        Ok(Paged { items: items.into_iter().map(|head| self.decrypt_head(head)).collect(), next })
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let keys = match &cut.base {
            Some(_) => self.keys(&run.tenant).await.map_err(|error| error.with_run(run))?,
            // A removed record needs no key.
            None => None,
        };
        let closed = |base: &Record| {
            let refuse = |source: Error| {
                let error = Error::new(ErrorKind::Invalid, "the given base cannot be stored; seal it first");
                error.with_operation("store.prune").with_run(run).with_seq(cut.at).with_source(source)
            };
            base.verify(run).map_err(refuse)?;
            self.closed(keys.as_deref(), run, base)
        };
        let base = cut.base.as_ref().map(closed).transpose()?;
        self.inner.prune(run, PruneCut { at: cut.at, base }).await
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        self.inner.transactions().is_some().then_some(self)
    }

    fn resealing(&self) -> Option<&dyn Resealing> {
        self.inner.resealing().is_some().then_some(self)
    }

    /// Returns no relay if keys are set, because a relay would send the messages unencrypted.
    fn relay(&self) -> Option<&dyn ferrata_store::Relay> {
        match self.options.keys {
            Some(_) => None,
            None => self.inner.relay(),
        }
    }

    delegate! { |this| this.inner; capabilities, setup, headers, purge, heartbeat, is_alive, part, subscribe }
}

impl<S: CheckpointStore> EnvelopeStore<S> {
    async fn check_append(&self, append: &RunAppend) -> Result<RunAppend> {
        check_append(append)?;
        self.closed_append(self.keys(&append.run.tenant).await, append)
    }

    pub(crate) fn resealing_inside(&self) -> Result<&dyn Resealing> {
        self.inner.resealing().ok_or_else(|| {
            let name = self.inner.capabilities().name;
            let message = format!(
                "a store of kind {name} cannot replace encrypted records; prune or purge the runs that an old key encrypted"
            );
            Error::new(ErrorKind::Unsupported, message).with_operation("store.reseal")
        })
    }

    fn transactions_inside(&self) -> Result<&dyn Transactions> {
        let missing = || Error::new(ErrorKind::Unsupported, "the inner store does not support transactions");
        self.inner.transactions().ok_or_else(missing)
    }
}

#[async_trait]
impl<S: CheckpointStore> Resealing for EnvelopeStore<S> {
    /// Puts the records into new envelopes, with the current key of the tenant.
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        check_reseal(run, records)?;
        let keys = self.keys(&run.tenant).await.map_err(|error| error.with_run(run))?;
        let closed: Result<Vec<Record>> =
            records.iter().map(|record| self.closed(keys.as_deref(), run, record)).collect();
        self.resealing_inside()?.reseal(run, &closed?).await
    }
}

#[async_trait]
impl<S: CheckpointStore> Transactions for EnvelopeStore<S> {
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction> {
        self.transactions_inside()?.begin(run).await
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        self.transactions_inside()?.commit(transaction, self.check_append(&append).await?).await
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        self.transactions_inside()?.append_in(connection, self.check_append(&append).await?).await
    }

    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool {
        self.inner.transactions().is_some_and(|inner| inner.is_transient(error))
    }
}
