//! Compresses and encrypts the records of [Ferrata](ferrata_store)'s runs before any store keeps them.
//!
//! A checkpoint holds what an application knows of its customers. [`EnvelopeStore`] wraps a store and puts the body of each record into an
//! envelope: compressed with zstd if that makes it smaller, and encrypted with AES-256-GCM-SIV if there are keys.
//!
//! # Guarantees
//!
//! - **Bound to its place.** An encrypted record that was changed, cut, or moved to another number, run or tenant is
//!   [`Corrupt`](ferrata_store::ErrorKind::Corrupt), and never read as what it is not.
//! - **Repeatable.** The same record has the same envelope, so that a repeated append is recognised, also by another process, and also when
//!   the key has changed between.
//! - **Readable while its key is in the ring.** One log may contain plain, compressed and encrypted records, of several keys.
//! - **Secret.** No error, log or `Debug` output shows a key or what was encrypted.
//!
//! # Limits
//!
//! - Headers are not encrypted, because stores index them: workflow, names of nodes, status, times, and the hash of the input; labels and user
//!   are with a [`LabelKey`].
//! - A party with write access to the store can remove the newest records of a run, or the whole run, because a shorter log is a valid log.
//! - [`EnvelopeStore::rekey`] encrypts records with another key where the store inside can replace bodies; elsewhere `prune` and `purge` do.

mod envelope;
mod keys;
mod labels;
mod provider;
mod rekey;
mod store;
mod usage;

pub use keys::{BlobKey, Key, Keyring};
pub use labels::LabelKey;
pub use provider::{CachedKeys, KeyProvider};
pub use rekey::{RekeyOptions, RekeyReport};
pub use store::{EnvelopeOptions, EnvelopeStore};
pub use usage::{KeyUsage, key_usage};
