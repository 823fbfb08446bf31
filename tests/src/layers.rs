//! The store of a program that is killed, with or without the wrapping stores of a service.

use std::sync::Arc;

use ferrata::{CheckpointStore, EnvelopeOptions, EnvelopeStore, Key, Keyring, LabelKey, Result};

/// The variable that makes a program compress and encrypt everything that it writes.
pub const LAYERS: &str = "FERRATA_TEST_LAYERS";

/// Opens a store by its URL, with the wrapping layers if [`LAYERS`] is set.
///
/// # Errors
///
/// As [`ferrata::connect`].
pub fn open(url: &str) -> Result<Arc<dyn CheckpointStore>> {
    let store = ferrata::connect(url)?;
    if std::env::var_os(LAYERS).is_none() {
        return Ok(store);
    }
    Ok(Arc::new(EnvelopeStore::new(store, layers()?)))
}

/// Returns options that compress and encrypt everything in a store, including labels and users.
///
/// # Errors
///
/// None that a caller could fix.
pub fn layers() -> Result<EnvelopeOptions> {
    let options = EnvelopeOptions::default().with_keys(ring()?).with_compress_from(Some(0));
    Ok(options.with_label_key(LabelKey::new(&key())))
}

/// Returns the keys of [`layers`].
///
/// # Errors
///
/// None that a caller could fix.
pub fn ring() -> Result<Keyring> {
    Keyring::new("k", &key())
}

fn key() -> Key {
    Key::from_bytes([7; 32])
}
