//! Compresses and encrypts the records of [Ferrata](ferrata_store)'s runs before a store receives them.
//!
//! Records contain an application's data, for example about its customers. [`EnvelopeStore`] wraps a store and puts the body of each record into an
//! envelope. The envelope is compressed with zstd if that makes it smaller, and encrypted with AES-256-GCM-SIV if there are keys.
//!
//! # Guarantees
//!
//! - **Bound to its position.** If an encrypted record was changed, cut, or moved to another number, run or tenant, a read fails with
//!   [`Corrupt`](ferrata_store::ErrorKind::Corrupt). The record is never read as another record.
//! - **Repeatable.** The same record has the same envelope, so that a store recognizes a repeated append. This also works if another process
//!   repeats the append, or if the key has changed meanwhile.
//! - **Readable while its key is in the ring.** One log may contain plain, compressed and encrypted records, under several keys.
//! - **Secret.** No error, log or `Debug` output shows a key or an encrypted text.
//!
//! # Limits
//!
//! - Headers are not encrypted, because stores index them: workflow, names of nodes, status, times, and the hash of the input. Labels and the user
//!   are encrypted only with a [`LabelKey`].
//! - A party with write access to the store can remove the newest records of a run, or the whole run, because a shorter log is a valid log.
//! - [`EnvelopeStore::rekey`] encrypts old records with the current key, if the inner store can replace bodies. With other stores, only `prune` and
//!   `purge` remove records under an old key.

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
