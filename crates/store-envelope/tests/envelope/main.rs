//! Encrypted records: the contract of every store, and the attacks that they resist.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod conformance;
mod format;
mod hostile;
mod labels;
mod rekey;
mod repeats;
mod secrecy;
mod stirred;
mod tenants;
mod usage;
mod wiped;

use std::sync::Arc;

use ferrata_store::{CheckpointStore, MemoryStore, RunId};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, Key, Keyring};
use ferrata_testing::Log;

/// A keyring with these keys, each derived from its name.
fn keys(names: &[&str]) -> Keyring {
    let key = |name: &str| {
        let mut bytes = [7; 32];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Key::from_bytes(bytes)
    };
    let first = Keyring::new(names[0], &key(names[0])).unwrap();
    names[1..].iter().fold(first, |keys, name| keys.with_old(*name, &key(name)).unwrap())
}

fn encrypting(names: &[&str]) -> EnvelopeOptions {
    EnvelopeOptions::default().with_keys(keys(names))
}

/// A memory store and a wrapper with these options.
fn wrapped(options: EnvelopeOptions) -> (MemoryStore, EnvelopeStore<MemoryStore>) {
    let inner = MemoryStore::new();
    (inner.clone(), EnvelopeStore::new(inner, options))
}

/// A log with `records` records in the store.
async fn written(store: &dyn CheckpointStore, run: &str, records: usize) -> Log {
    let mut log = Log::new(RunId::new(run).unwrap());
    log.write(store, records).await;
    log
}

/// The options with every feature, also for the short bodies of tests.
fn all() -> EnvelopeOptions {
    encrypting(&["new", "old"]).with_compress_from(Some(0))
}

fn shared(store: impl CheckpointStore) -> Arc<dyn CheckpointStore> {
    Arc::new(store)
}
