//! Counts the records that need each key, for an operator who wants to remove an old key.

use std::collections::{BTreeMap, BTreeSet};

use ferrata_store::{
    CheckpointStore, Error, ErrorKind, Order, Page, Record, Result, RunHead, RunQuery, TenantId,
    for_each_record,
};

use crate::envelope;
use crate::keys::is_name;

/// The records of a tenant under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyUsage {
    /// The tenant.
    pub tenant: TenantId,
    /// The name of the key; `None` for records that are not encrypted.
    pub key: Option<String>,
    /// The number of records.
    pub records: u64,
    /// The number of runs with at least one of these records.
    pub runs: u64,
}

/// Counts the records and runs of a store by tenant and by the key that they need. Plain records come first. With a `tenant`, counts only that
/// tenant. Changes nothing and needs no key.
///
/// Pass the inner store, whose records are in envelopes: an [`EnvelopeStore`](crate::EnvelopeStore) would remove the envelopes.
///
/// If a key has no count, and every process writes with another key, the records of this store no longer need the key. The count does not include
/// values that `ferrata-blobs` encrypted; they may still need the key.
///
/// The call reads every record once. Memory holds the result of one load, and one entry for each key of a tenant.
///
/// # Errors
///
/// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: a run or one of its records is unreadable, so its key is unknown. The error names the run.
///   Restore or purge the run, or upgrade this process.
/// - [`ErrorKind::Unavailable`] from the store: call it again.
///
/// # Cancel safety
///
/// Cancel safe: the call changes nothing.
///
/// # Examples
///
/// ```
/// use ferrata_testing::Log;
/// use ferrata_store::{MemoryStore, RunId};
/// use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, Keyring, key_usage};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ferrata_store::Result<()> {
/// let keys = Keyring::new("2026-11", &Key::from_bytes([7; 32]))?;
/// let store = EnvelopeStore::new(MemoryStore::new(), EnvelopeOptions::default().with_keys(keys));
/// Log::new(RunId::new("r")?).write(&store, 3).await;
/// let usage = key_usage(store.inner(), None).await?;
/// assert_eq!((usage[0].key.as_deref(), usage[0].records, usage[0].runs), (Some("2026-11"), 3, 1));
/// # Ok(())
/// # }
/// ```
pub async fn key_usage(store: &dyn CheckpointStore, tenant: Option<&TenantId>) -> Result<Vec<KeyUsage>> {
    let mut query = RunQuery::default();
    query.tenant = tenant.cloned();
    query.complete = true;
    let mut counted = BTreeMap::new();
    // List the oldest runs first, so that runs created meanwhile do not shift the pages.
    let mut page = Page::first(Page::MAX).with_order(Order::OldestFirst);
    loop {
        let listed = store.runs(&query, page.clone()).await?;
        for head in &listed.items {
            count(store, head, &mut counted).await?;
        }
        match listed.next {
            Some(next) => page = page.with_cursor(next),
            None => break,
        }
    }
    let usage =
        counted.into_iter().map(|((tenant, key), (records, runs))| KeyUsage { tenant, key, records, runs });
    Ok(usage.collect())
}

type KeyCount = BTreeMap<(TenantId, Option<String>), (u64, u64)>;

async fn count(store: &dyn CheckpointStore, head: &RunHead, counted: &mut KeyCount) -> Result<()> {
    let mut seen = BTreeSet::new();
    let take = |record: &Record| {
        let key = match envelope::key_of(&head.run, &record.header, &record.body)? {
            None => None,
            Some(name) => Some(name_of(name).ok_or_else(|| {
                let message = "the envelope of the record names no key; restore the run from a backup";
                Error::new(ErrorKind::Corrupt, message).with_run(&head.run).with_seq(record.header.seq)
            })?),
        };
        let (records, runs) = counted.entry((head.run.tenant.clone(), key.clone())).or_default();
        *records += 1;
        *runs += u64::from(seen.insert(key));
        Ok(())
    };
    // If the run was pruned or purged meanwhile, the removed records need no key.
    for_each_record(store, head, take).await.map(drop)
}

/// Converts a key's name to text. This library writes only valid names, so an error does not show an invalid one.
fn name_of(name: &[u8]) -> Option<String> {
    std::str::from_utf8(name).ok().filter(|name| is_name(name)).map(str::to_owned)
}
