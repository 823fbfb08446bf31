//! Blobs: a read returns the stored value, and collection removes only values that no record names.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod bounded;
mod collection;
mod crashes;
mod keys;
mod reads;
mod rekey;
mod usage;
mod values;
mod world;

use ferrata_store_envelope::{Key, Keyring};

/// A keyring with these keys, each derived from its number.
fn keys(names: &[u8]) -> Keyring {
    let add = |keys: Option<Keyring>, name: &u8| {
        let (text, key) = (format!("k{name}"), Key::from_bytes([*name; 32]));
        Some(match keys {
            None => Keyring::new(text, &key).unwrap(),
            Some(keys) => keys.with_old(text, &key).unwrap(),
        })
    };
    names.iter().fold(None, add).unwrap()
}

/// A value of `len` bytes that depends on `seed`.
fn value(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 31 % 251).unwrap() ^ seed).collect()
}
