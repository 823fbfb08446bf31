//! Re-encryption of records under older keys, so that operators can remove those keys.

use ferrata_store::{
    At, CheckpointStore, Cursor, Error, ErrorKind, Order, Page, Record, Result, RunHead, RunKey, RunQuery,
    Seq, TenantId,
};

use crate::envelope;
use crate::keys::Keyring;
use crate::store::EnvelopeStore;

/// The maximum bytes of bodies that one call of the store replaces, unless one record has more.
const BATCH: usize = 4 << 20;

/// The runs that [`EnvelopeStore::rekey`] processes, and whether it changes them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RekeyOptions {
    /// The tenant whose runs are dealt with; those of all tenants unless set.
    pub tenant: Option<TenantId>,
    /// The end of the previous call. Without a cursor, the call starts at the oldest run.
    pub cursor: Option<Cursor>,
    /// The maximum number of runs. The default is 100.
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
    /// Sets the tenant.
    #[must_use]
    pub fn with_tenant(mut self, tenant: Option<TenantId>) -> Self {
        self.tenant = tenant;
        self
    }

    /// Goes on where a call ended.
    #[must_use]
    pub fn with_cursor(mut self, cursor: Cursor) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// Sets how many runs are dealt with at most.
    #[must_use]
    pub fn with_runs(mut self, runs: u32) -> Self {
        self.runs = runs;
        self
    }

    /// Sets whether nothing is changed.
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
    /// The number of records re-encrypted with the current key of their tenant.
    pub records: u64,
    /// The size of their bodies in the previous envelopes, in bytes.
    pub bytes: u64,
    /// The number of records that became bases or were pruned before the call could replace them. Call it again.
    pub changed: u64,
    /// The runs that could not be dealt with, and why. Of them nothing is promised.
    pub failed: Vec<(RunKey, Error)>,
    /// The cursor for the next call; `None` after the last runs.
    pub next: Option<Cursor>,
}

impl<S: CheckpointStore> EnvelopeStore<S> {
    /// Encrypts the records of a page of runs with the current key of their tenant. Skips records that already use that key. The contents and the
    /// history of each run stay unchanged. Callers may append to, start, fork, prune and purge runs meanwhile.
    ///
    /// Call it until [`next`](RekeyReport::next) is `None`. Every process must already write with the new key: the call misses records that a process
    /// writes with the old key meanwhile. [`key_usage`](crate::key_usage) reports whether data still needs an old key.
    ///
    /// Plain records are encrypted too if [`accept_plain`](crate::EnvelopeOptions::accept_plain) allows reading them, and otherwise fail their run.
    /// Labels and users stay under their own key.
    ///
    /// The call reads each record, and writes only records that need it, so repeat an interrupted call. Memory holds the records from one base of a
    /// run to the next.
    ///
    /// # Errors
    ///
    /// Of one run: [`failed`](RekeyReport::failed), and the others are dealt with. Of all:
    ///
    /// - [`ErrorKind::Unsupported`]: the store inside cannot [put records in other envelopes](CheckpointStore::resealing): prune and purge.
    /// - [`ErrorKind::Invalid`]: this store has no keys, or the cursor is of other runs.
    /// - [`ErrorKind::Unavailable`]: the runs cannot be listed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some records are replaced, each whole. Call it again.
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
        // List the oldest first, so that runs created meanwhile displace none.
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

    /// Goes through what the store keeps of a run, from the newest base backwards.
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
            // Also in a dry run, which tells what cannot be opened.
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
