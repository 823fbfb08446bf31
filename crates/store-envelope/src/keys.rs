//! Encryption keys, and the keyring of a process.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use aes::Aes256;
use aes_gcm_siv::{AesGcmSiv, KeyInit as _};
use ferrata_store::{Error, ErrorKind, Result};
use zeroize::{Zeroize as _, Zeroizing};

/// The maximum length of a key's name, in bytes.
const MAX_NAME: usize = 64;

/// The context string for deriving the cipher keys. Another string would be another format.
const CIPHER: &str = "ferrata envelope 1 cipher";
const BLOBS: &str = "ferrata envelope 1 blobs";

/// A secret key of 256 bits. Its memory is overwritten when it is dropped, and no output shows it.
///
/// Create a key with `openssl rand -hex 32`.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; 32]>);

impl Key {
    /// Creates a key from 32 bytes. The bytes must come from a secure random source. Do not use a password.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Parses 64 hex digits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the text has another form. The message does not show the text.
    pub fn from_hex(text: &str) -> Result<Self> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        // Write directly to the final location: a growing list would leave copies in memory that nothing overwrites.
        let mut key = Self::from_bytes([0; 32]);
        let (pairs, odd) = text.as_bytes().as_chunks();
        let read = key.0.iter_mut().zip(pairs).map(|(byte, &[high, low])| {
            *byte = digit(high)? << 4 | digit(low)?;
            Some(())
        });
        let is_whole = pairs.len() == 32 && odd.is_empty();
        match read.collect::<Option<()>>().filter(|()| is_whole) {
            Some(()) => Ok(key),
            None => Err(invalid("a key must have 64 hex digits; create one with `openssl rand -hex 32`")),
        }
    }
}

impl Key {
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The keys of a process. The current key encrypts. Older keys only decrypt the records that they encrypted.
///
/// # Examples
///
/// ```
/// use ferrata_store_envelope::Keyring;
///
/// let keys = Keyring::parse(
///     "2026-11 = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
///      2025-04 = ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100",
/// )?;
/// assert_eq!(keys.current(), "2026-11");
/// assert_eq!(format!("{keys:?}"), r#"Keyring(["2026-11", "2025-04"])"#);
/// # Ok::<(), ferrata_store::Error>(())
/// ```
#[derive(Clone)]
pub struct Keyring(Arc<Vec<Arc<DerivedKeys>>>);

/// AES-256-GCM-SIV. The type names `Aes256` explicitly, because the `aes` crate overwrites the key in memory.
pub(crate) type Aes256GcmSiv = AesGcmSiv<Aes256>;

/// A named key, in the form of the keys derived from it. It never moves, because a growing list leaves copies of its items in memory.
pub(crate) struct DerivedKeys {
    pub(crate) name: String,
    /// The cipher overwrites its key in memory by itself.
    pub(crate) cipher: Aes256GcmSiv,
    blobs: BlobKey,
}

impl DerivedKeys {
    /// Callers must call [`wipe_stack`], which overwrites the copies that this function leaves on the stack.
    #[inline(never)]
    fn new(name: String, key: &Key) -> Arc<Self> {
        let derived = |context| Zeroizing::new(blake3::derive_key(context, &*key.0));
        let cipher = Aes256GcmSiv::new((&*derived(CIPHER)).into());
        Arc::new(Self { name, cipher, blobs: BlobKey(derived(BLOBS)) })
    }
}

/// Overwrites the remains of earlier calls on the stack. When a large value moves from the stack to the heap, copies of its bytes remain there.
#[inline(never)]
pub(crate) fn wipe_stack() {
    let mut left = [0_u8; 16 << 10];
    left.zeroize();
    std::hint::black_box(&left);
}

/// A key for blobs, derived from a key of the ring. `ferrata-blobs` derives its own keys from it. No output shows it.
#[derive(Clone)]
#[doc(hidden)]
pub struct BlobKey(Zeroizing<[u8; 32]>);

impl BlobKey {
    /// Returns the key.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlobKey(..)")
    }
}

impl Keyring {
    /// Creates a ring with one key, which is the current key. Each record that the key encrypts contains the key's name, so the name is not secret.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the name is empty, longer than 64 bytes, or has characters other than letters, digits, `-`, `_` and `.`.
    pub fn new(name: impl Into<String>, key: &Key) -> Result<Self> {
        Self(Arc::default()).with_old(name, key)
    }

    /// Adds a key that decrypts older records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the name is invalid as for [`new`](Self::new), or if the ring already has a key with this name.
    pub fn with_old(mut self, name: impl Into<String>, key: &Key) -> Result<Self> {
        let name = name.into();
        if !is_name(&name) {
            return Err(invalid("the name of a key must have 1 to 64 letters, digits, `-`, `_` and `.`"));
        }
        if self.find(name.as_bytes()).is_some() {
            return Err(invalid(format!("two keys have the name {name}; use a unique name for each key")));
        }
        Arc::make_mut(&mut self.0).push(DerivedKeys::new(name, key));
        wipe_stack();
        Ok(self)
    }

    /// Parses a ring from text. Each line has the form `name = 64 hex digits`, with the current key first. Empty lines, and lines that begin with
    /// `#`, are ignored.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`], with the number of the line and never with its contents.
    pub fn parse(text: &str) -> Result<Self> {
        let mut keys = Self(Arc::default());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |error: Error| invalid(format!("line {} of the keys: {}", number + 1, error.message()));
            let (name, key) =
                line.split_once('=').ok_or_else(|| at(invalid("write `name = 64 hex digits`")))?;
            let key = Key::from_hex(key.trim()).map_err(at)?;
            keys = keys.with_old(name.trim(), &key).map_err(at)?;
        }
        match keys.0.is_empty() {
            true => {
                Err(invalid("the keyring is empty; write `name = 64 hex digits`, with the current key first"))
            }
            false => Ok(keys),
        }
    }

    /// Reads a ring from a file, as [`parse`](Self::parse) does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the file cannot be read, and the errors of [`parse`](Self::parse).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Self::parse(&read(path.as_ref())?)
    }

    /// Returns the name of the current key.
    pub fn current(&self) -> &str {
        self.0.first().map_or("", |key| &key.name)
    }

    /// Returns the key for blobs that is derived from the key of this name. Returns `None` if the ring has no such key.
    #[doc(hidden)]
    pub fn blob_key(&self, name: &str) -> Option<&BlobKey> {
        self.find(name.as_bytes()).map(|key| &key.blobs)
    }

    pub(crate) fn newest(&self) -> Option<&DerivedKeys> {
        self.0.first().map(|key| &**key)
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<&DerivedKeys> {
        self.0.iter().find(|key| key.name.as_bytes() == name).map(|key| &**key)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|key| key.name.as_str()).collect();
        f.debug_tuple("Keyring").field(&names).finish()
    }
}

/// Returns whether a text is a valid key name.
pub(crate) fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(is_plain)
}

/// Reads a file of keys.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if the file cannot be read.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<String>> {
    std::fs::read_to_string(path).map(Zeroizing::new).map_err(|error| {
        let message =
            format!("cannot read the key file {}; correct its path or its permissions", path.display());
        Error::new(ErrorKind::Unavailable, message).with_source(error)
    })
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From RFC 8452, C.2: key, nonce, plaintext, associated data, and the result.
    const KNOWN: [[&str; 5]; 4] = [
        [
            "0100000000000000000000000000000000000000000000000000000000000000",
            "030000000000000000000000",
            "",
            "",
            "07f5f4169bbf55a8400cd47ea6fd400f",
        ],
        [
            "0100000000000000000000000000000000000000000000000000000000000000",
            "030000000000000000000000",
            "0100000000000000",
            "",
            "c2ef328e5c71c83b843122130f7364b761e0b97427e3df28",
        ],
        [
            "0100000000000000000000000000000000000000000000000000000000000000",
            "030000000000000000000000",
            "0200000000000000",
            "01",
            "1de22967237a813291213f267e3b452f02d01ae33e4ec854",
        ],
        [
            "0100000000000000000000000000000000000000000000000000000000000000",
            "030000000000000000000000",
            "02000000000000000000000000000000",
            "01",
            "c91545823cc24f17dbb0e9e807d5ec17b292d28ff61189e8e49f3875ef91aff7",
        ],
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// Guarantees: SECURITY-12.
    #[test]
    fn the_cipher_gives_the_known_answers() {
        use aes_gcm_siv::aead::{Aead as _, Payload};
        for [key, nonce, plain, aad, sealed] in KNOWN {
            let cipher = Aes256GcmSiv::new_from_slice(&bytes(key)).unwrap();
            let nonce = aes_gcm_siv::Nonce::try_from(&bytes(nonce)[..]).unwrap();
            let (plain, aad, sealed) = (bytes(plain), bytes(aad), bytes(sealed));
            let found = cipher.encrypt(&nonce, Payload { msg: &plain, aad: &aad }).unwrap();
            assert_eq!(found, sealed);
            assert_eq!(cipher.decrypt(&nonce, Payload { msg: &sealed, aad: &aad }).unwrap(), plain);
        }
    }

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    /// Guarantees: SECURITY-10.
    #[test]
    fn invalid_keyring_is_refused_without_showing_it() {
        let read =
            Keyring::parse(&format!("# of the payments\r\n\n new= {HEX}\nold ={}", HEX.to_uppercase()))
                .unwrap();
        assert_eq!((read.current(), read.0.len()), ("new", 2));
        assert_eq!(*Key::from_hex(HEX).unwrap().0, std::array::from_fn(|at| u8::try_from(at).unwrap()));
        let secret = "5ec2e7";
        for (text, place) in [
            (String::new(), "the keyring is empty"),
            ("# a = b".into(), "the keyring is empty"),
            (format!("a = {HEX}\n{secret}"), "line 2"),
            (format!("a = {secret}"), "line 1"),
            (format!("a = {secret}{}", &HEX[5..]), "line 1"),
            (format!("a = é{}", &HEX[2..]), "line 1"),
            (HEX.into(), "line 1"),
            (format!(" = {HEX}"), "line 1"),
            (format!("a b = {HEX}"), "line 1"),
            (format!("{} = {HEX}", "n".repeat(65)), "line 1"),
            (format!("a = {HEX}\n\na = {HEX}"), "line 3"),
        ] {
            let error = Keyring::parse(&text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            let shown = format!("{error} {error:?}");
            assert!(
                shown.contains(place) && !shown.contains(secret) && !shown.contains(&HEX[40..]),
                "{shown}"
            );
        }
        let missing = Keyring::from_file("/no/such/file").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Unavailable);
        let key = Key::from_hex(HEX).unwrap();
        let shown = format!("{key:?} {read:?}");
        assert!(!shown.contains("000102") && !shown.contains("[0, 1"), "{shown}");
    }
}
