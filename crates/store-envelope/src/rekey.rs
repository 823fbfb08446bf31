//! Encrypts records under older keys with the current key, so that operators can remove the older keys.

use ferrata_store::{
    At, CheckpointStore, Cursor, Error, ErrorKind, Order, Page, Record, Result, RunHead, RunKey, RunQuery,
    Seq, TenantId,
};

use crate::envelope;
use crate::keys::Keyring;
use crate::store::EnvelopeStore;

/// The maximum size of the bodies that one call of the store replaces, in bytes, unless one record has more.
const BATCH: usize = 4 << 20;

/// The runs that [`EnvelopeStore::rekey`] processes, and whether it changes them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RekeyOptions {
    /// The tenant whose runs to process. The default is `None`: all tenants.
    pub tenant: Option<TenantId>,
    /// The cursor from the report of the previous call. Without a cursor, the call starts at the oldest run.
    pub cursor: Option<Cursor>,
    /// The maximum number of runs to process. The default is 100.
    pub runs: u32,
    /// Whether to report only and change nothing. The default is false.
    pub dry_run: bool,
}

impl Default for RekeyOptions {
    fn default() -> Self {
        Self { tenant: None, cursor: None, runs: 100, dry_run: false }
    }
}

impl RekeyOptions {
    /// Sets the tenant whose runs to process; `None` means all tenants.
    #[must_use]
    pub fn with_tenant(mut self, tenant: Option<TenantId>) -> Self {
        self.tenant = tenant;
        self
    }

    /// Continues where the previous call ended.
    #[must_use]
    pub fn with_cursor(mut self, cursor: Cursor) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// Sets the maximum number of runs to process.
    #[must_use]
    pub fn with_runs(mut self, runs: u32) -> Self {
        self.runs = runs;
        self
    }

    /// Sets whether the call only reports, and changes nothing.
    #[must_use]
    pub fn with_dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// The result of [`EnvelopeStore::rekey`]; with `dry_run`, the result that it would have.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RekeyReport {
    /// The number of runs read.
    pub runs: u64,
    /// The number of records that were encrypted with the current key of their tenant.
    pub records: u64,
    /// The size of these records' bodies in the previous envelopes, in bytes.
    pub bytes: u64,
    /// The number of records that became bases or were pruned before the call could replace them. If it is not zero, call again.
    pub changed: u64,
    /// The runs that failed, each with its error. They may still contain records under an old key.
    pub failed: Vec<(RunKey, Error)>,
    /// The cursor for the next call; `None` after the last runs.
    pub next: Option<Cursor>,
}

impl<S: CheckpointStore> EnvelopeStore<S> {
    /// Encrypts the records of a page of runs with the current key of their tenant. Skips records that already use that key. The contents and the
    /// history of each run stay unchanged. Callers may append to, start, fork, prune and purge runs at the same time.
    ///
    /// Call it until [`next`](RekeyReport::next) is `None`. Every process must already write with the new key: the call may miss records that a
    /// process writes with the old key meanwhile. Then [`key_usage`](crate::key_usage) tells whether some records still need an old key.
    ///
    /// If [`accept_plain`](crate::EnvelopeOptions::accept_plain) is set, the call also encrypts plain records. Otherwise a plain record makes its
    /// run fail. Labels and users keep their own key.
    ///
    /// The call reads each record, but writes only the records that need it, so an interrupted call can be repeated. Memory holds the records of a
    /// run from one base to the next.
    ///
    /// # Errors
    ///
    /// The error of a single run goes to [`failed`](RekeyReport::failed), and the call continues with the other runs. The call itself fails with:
    ///
    /// - [`ErrorKind::Unsupported`]: the inner store cannot [replace envelopes](CheckpointStore::resealing). Prune and purge runs instead.
    /// - [`ErrorKind::Invalid`]: this store has no keys, or the cursor belongs to another listing.
    /// - [`ErrorKind::Unavailable`]: the runs cannot be listed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some records may be replaced, each completely or not at all. Call it again.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_testing::Log;
    /// use ferrata_store::{MemoryStore, RunId};
    /// use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, Keyring, RekeyOptions, key_usage};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> ferrata_store::Result<()> {
    /// let (old, new) = (Key::from_bytes([1; 32]), Key::from_bytes([2; 32]));
    /// let inner = MemoryStore::new();
    /// let before = EnvelopeOptions::default().with_keys(Keyring::new("old", &old)?);
    /// Log::new(RunId::new("r")?).write(&EnvelopeStore::new(inner.clone(), before), 3).await;
    ///
    /// let both = EnvelopeOptions::default().with_keys(Keyring::new("new", &new)?.with_old("old", &old)?);
    /// let done = EnvelopeStore::new(inner.clone(), both).rekey(RekeyOptions::default()).await?;
    /// assert_eq!((done.runs, done.records), (1, 3));
    /// let usage = key_usage(&inner, None).await?;
    /// assert_eq!((usage.len(), usage[0].key.as_deref()), (1, Some("new")));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn rekey(&self, options: RekeyOptions) -> Result<RekeyReport> {
        if self.options().keys.is_none() {
            let message = "the store has no keys; configure a keyring with the new key first";
            return Err(Error::new(ErrorKind::Invalid, message).with_operation("store.rekey"));
        }
        self.resealing_inside()?;
        let mut query = RunQuery::default();
        query.tenant = options.tenant;
        // List the oldest runs first, so that runs created meanwhile do not shift the pages.
        let page = Page::first(options.runs.clamp(1, Page::MAX)).with_order(Order::OldestFirst);
        let page = match options.cursor {
            Some(cursor) => page.with_cursor(cursor),
            None => page,
        };
        let listed = self.inner().runs(&query, page).await?;
        let mut done = RekeyReport { next: listed.next, ..RekeyReport::default() };
        for head in &listed.items {
            done.runs += 1;
            if let Err(error) = self.rekey_run(head, options.dry_run, &mut done).await {
                done.failed.push((head.run.clone(), error.with_run(&head.run)));
            }
        }
        Ok(done)
    }

    /// Processes the stored records of a run, from the newest base backward.
    async fn rekey_run(&self, head: &RunHead, dry: bool, done: &mut RekeyReport) -> Result<()> {
        let run = &head.run;
        let mut at = At::Latest;
        loop {
            let records = match self.inner().load(run, at).await {
                Ok(Some(records)) => records,
                // The run was purged, or pruned up to this record, so nothing needs a key.
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            let first = records.first().map_or(head.first, |record| record.header.seq);
            let keys = self.keys_for(run, &records).await?;
            self.rekey_records(run, keys.as_deref(), records, dry, done).await?;
            if first <= head.first {
                return Ok(());
            }
            at = At::Seq(Seq::new(first.get() - 1));
        }
    }

    async fn rekey_records(
        &self,
        run: &RunKey,
        keys: Option<&Keyring>,
        records: Vec<Record>,
        dry: bool,
        done: &mut RekeyReport,
    ) -> Result<()> {
        let current = keys.map(|keys| keys.current().as_bytes());
        let (mut batch, mut size) = (Vec::new(), 0);
        for record in records {
            if envelope::key_of(run, &record.header, &record.body)? == current {
                continue;
            }
            let before = record.body.len();
            // A dry run does this, too, and so reports records that cannot be decrypted.
            let opened = self.opened(keys, run, record)?;
            if dry {
                done.records += 1;
                done.bytes += before as u64;
                continue;
            }
            size += before;
            done.bytes += before as u64;
            batch.push(self.closed(keys, run, &opened)?);
            if size >= BATCH {
                self.replace(run, &mut batch, done).await?;
                size = 0;
            }
        }
        self.replace(run, &mut batch, done).await
    }

    async fn replace(&self, run: &RunKey, batch: &mut Vec<Record>, done: &mut RekeyReport) -> Result<()> {
        let given = std::mem::take(batch);
        if given.is_empty() {
            return Ok(());
        }
        let replaced = match self.resealing_inside()?.reseal(run, &given).await {
            Ok(replaced) => replaced,
            // The run was purged, so nothing needs a key.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        done.records += replaced;
        done.changed += given.len() as u64 - replaced;
        Ok(())
    }
}
