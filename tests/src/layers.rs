//! The store of a program that is killed, with or without the wrapping stores of a service.

use std::sync::Arc;

use ferrata::{CheckpointStore, EnvelopeOptions, EnvelopeStore, Key, Keyring, LabelKey, Result};

/// The variable that has a program compress and encrypt all that it writes.
pub const LAYERS: &str = "FERRATA_TEST_LAYERS";

/// Opens a store by its URL, behind the layers if [`LAYERS`] is set.
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

/// Returns what has a store compress and encrypt all that it keeps, labels and users included.
///
/// # Errors
///
/// None that a caller could mend.
pub fn layers() -> Result<EnvelopeOptions> {
    let options = EnvelopeOptions::default().with_keys(ring()?).with_compress_from(Some(0));
    Ok(options.with_label_key(LabelKey::new(&key())))
}

/// Returns the keys of [`layers`].
///
/// # Errors
///
/// None that a caller could mend.
pub fn ring() -> Result<Keyring> {
    Keyring::new("k", &key())
}

fn key() -> Key {
    Key::from_bytes([7; 32])
}
