//! The stored format of a blob: a head, and segments that are authenticated one by one.
//!
//! The head has 80 bytes. Each segment has 64 KiB of the value, except the last, which is shorter, and 16 bytes that authenticate it. An empty value has
//! one empty segment. Numbers are little-endian.
//!
//! | Bytes of the head | Content |
//! |---|---|
//! | 4 | `FBLB` |
//! | 1 | the version: `01` |
//! | 1 | `01` if the value is encrypted |
//! | 1, and 64 | the length of the key's name, and the name, filled up with zeros |
//! | 9 | zeros |
//!
//! **Without a key**, the first 16 bytes of a BLAKE3 hash with the context `ferrata blob 1 check` follow each segment. The hash covers, in this order:
//!
//! - the length of the tenant (8 bytes), and the tenant
//! - the id (16 bytes), and the head
//! - the number of the segment (8 bytes), and `01` for the last segment, else `00`
//! - the segment
//!
//! **With a key**, each segment is encrypted with XChaCha20-Poly1305 and ends with its tag, as in the payload of age (`age-encryption.org/v1`). The nonce
//! is the number of the segment in 8 bytes, `01` for the last segment or `00`, and zeros. The head is associated data. The key is the keyed BLAKE3 hash
//! of tenant and id, as above, under `derive_key("ferrata blob 1 cipher", derive_key("ferrata envelope 1 blobs", K))`.

use bytes::{BufMut as _, Bytes, BytesMut};
use ferrata_store::TenantId;
use uuid::Uuid;

/// The number of value bytes in a segment. The last segment has the remaining bytes.
pub(crate) const SEGMENT: u64 = 64 << 10;

/// The number of bytes after a segment: the tag of the cipher, or a checksum.
pub(crate) const TAG: usize = 16;

/// The length of the head.
pub(crate) const HEAD: u64 = 80;

const MARK: &[u8; 4] = b"FBLB";
const VERSION: u8 = 1;
const ENCRYPTED: u8 = 1;
const NAME: usize = 64;

/// The contexts from which keys are derived. A change of a context changes the format.
const CHECK: &str = "ferrata blob 1 check";
#[cfg(feature = "envelope")]
const CIPHER: &str = "ferrata blob 1 cipher";

/// The parsed head of a stored blob.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BlobHead {
    Plain,
    /// Encrypted with the key of this name.
    Encrypted(String),
    /// Written by a newer version.
    Newer(u8),
}

impl BlobHead {
    pub(crate) fn write(&self) -> [u8; 80] {
        let mut head = [0; 80];
        head[..4].copy_from_slice(MARK);
        head[4] = VERSION;
        if let Self::Encrypted(name) = self {
            // A name has at most 64 bytes.
            let name = &name.as_bytes()[..name.len().min(NAME)];
            head[5] = ENCRYPTED;
            head[6] = u8::try_from(name.len()).unwrap_or_default();
            head[7..7 + name.len()].copy_from_slice(name);
        }
        head
    }

    /// Parses a head; `None` if the bytes are not a valid head.
    pub(crate) fn read(head: &[u8]) -> Option<Self> {
        if head.len() as u64 != HEAD || !head.starts_with(MARK) {
            return None;
        }
        let read = match head[4] {
            VERSION => match head[5] {
                0 => Self::Plain,
                _ => {
                    let name = head[7..].get(..usize::from(head[6]))?;
                    Self::Encrypted(String::from_utf8(name.to_vec()).ok()?)
                }
            },
            newer if newer > VERSION => return Some(Self::Newer(newer)),
            _ => return None,
        };
        (read.write() == head).then_some(read)
    }
}

/// Seals and opens the segments of one blob.
pub(crate) struct BlobSeal {
    head: [u8; 80],
    means: SealMethod,
}

enum SealMethod {
    /// The checksum: a hasher that has already hashed the tenant, the id and the head, to which segments are bound.
    Check(Box<blake3::Hasher>),
    #[cfg(feature = "envelope")]
    Cipher(Box<chacha20poly1305::XChaCha20Poly1305>),
}

impl BlobSeal {
    /// Creates a seal without a key. The seal detects segments that are damaged or belong to another blob, but not forged segments.
    pub(crate) fn plain(tenant: &TenantId, id: Uuid) -> Self {
        let head = BlobHead::Plain.write();
        let mut hasher = blake3::Hasher::new_derive_key(CHECK);
        bind(&mut hasher, tenant, id);
        hasher.update(&head);
        Self { head, means: SealMethod::Check(Box::new(hasher)) }
    }

    /// Creates a seal with a key. Each segment is encrypted with XChaCha20-Poly1305 under a key for this blob only, in the same way as the tool `age`
    /// does.
    #[cfg(feature = "envelope")]
    pub(crate) fn encrypted(name: &str, key: &[u8; 32], tenant: &TenantId, id: Uuid) -> Self {
        use chacha20poly1305::KeyInit as _;
        let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key(CIPHER, key));
        bind(&mut hasher, tenant, id);
        let cipher = chacha20poly1305::XChaCha20Poly1305::new(hasher.finalize().as_bytes().into());
        Self {
            head: BlobHead::Encrypted(name.to_owned()).write(),
            means: SealMethod::Cipher(Box::new(cipher)),
        }
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Appends a segment in its stored form.
    pub(crate) fn close(&self, place: SegmentPosition, segment: &[u8], into: &mut BytesMut) {
        match &self.means {
            SealMethod::Check(hasher) => {
                into.put_slice(segment);
                into.put_slice(&check(hasher, place, segment));
            }
            #[cfg(feature = "envelope")]
            SealMethod::Cipher(cipher) => {
                use chacha20poly1305::aead::{Aead as _, Payload};
                let sealed = cipher.encrypt(&place.nonce(), Payload { msg: segment, aad: &self.head });
                // Encryption fails only for data longer than 256 GiB.
                into.put_slice(&sealed.unwrap_or_default());
            }
        }
    }

    /// Opens a stored segment; `None` if it was not sealed for this position of this blob.
    pub(crate) fn open(&self, place: SegmentPosition, sealed: &Bytes) -> Option<Bytes> {
        match &self.means {
            SealMethod::Check(hasher) => {
                let at = sealed.len().checked_sub(TAG)?;
                let (segment, tag) = (sealed.slice(..at), &sealed[at..]);
                (check(hasher, place, &segment) == *tag).then_some(segment)
            }
            #[cfg(feature = "envelope")]
            SealMethod::Cipher(cipher) => {
                use chacha20poly1305::aead::{Aead as _, Payload};
                let opened = cipher.decrypt(&place.nonce(), Payload { msg: sealed, aad: &self.head });
                opened.ok().map(Bytes::from)
            }
        }
    }
}

/// The position of a segment in its blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentPosition {
    pub(crate) index: u64,
    pub(crate) is_last: bool,
}

impl SegmentPosition {
    #[cfg(feature = "envelope")]
    fn nonce(self) -> chacha20poly1305::XNonce {
        let mut nonce = chacha20poly1305::XNonce::default();
        nonce[..8].copy_from_slice(&self.index.to_le_bytes());
        nonce[8] = u8::from(self.is_last);
        nonce
    }
}

fn bind(hasher: &mut blake3::Hasher, tenant: &TenantId, id: Uuid) {
    let tenant = tenant.as_str().as_bytes();
    hasher.update(&(tenant.len() as u64).to_le_bytes()).update(tenant).update(id.as_bytes());
}

fn check(bound: &blake3::Hasher, place: SegmentPosition, segment: &[u8]) -> [u8; TAG] {
    let mut hasher = bound.clone();
    hasher.update(&place.index.to_le_bytes()).update(&[u8::from(place.is_last)]).update(segment);
    let mut tag = [0; TAG];
    hasher.finalize_xof().fill(&mut tag);
    tag
}

/// Returns the number of segments of a value with this length. A value has at least one segment.
pub(crate) fn segments(len: u64) -> u64 {
    len.div_ceil(SEGMENT).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id whose bytes count up.
    fn id() -> Uuid {
        Uuid::from_bytes(std::array::from_fn(|at| u8::try_from(at).unwrap()))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The expected bytes come from another implementation: `blake3` and PyNaCl for Python.
    ///
    /// Guarantees: BLOB-12.
    #[test]
    fn what_is_stored_is_as_it_was() {
        let head = |begin: &str| format!("{begin}{}", "0".repeat(160 - begin.len()));
        let mut stored = BytesMut::new();
        let plain = BlobSeal::plain(&TenantId::default(), id());
        let place = SegmentPosition { index: 0, is_last: true };
        plain.close(place, b"three", &mut stored);
        assert_eq!(hex(plain.head()), head("46424c4201"));
        assert_eq!(hex(&stored), "7468726565bc4d38848a6efc163821f471b21b7500");
        assert_eq!(plain.open(place, &stored.freeze()).unwrap(), "three");
    }

    /// Guarantees: BLOB-12.
    #[cfg(feature = "envelope")]
    #[test]
    fn what_is_encrypted_is_as_it_was() {
        let key = ferrata_store_envelope::Key::from_bytes([7; 32]);
        let ring = ferrata_store_envelope::Keyring::new("2026", &key).unwrap();
        let key = ring.blob_key("2026").unwrap();
        let seal = BlobSeal::encrypted("2026", key.bytes(), &TenantId::default(), id());
        let mut stored = BytesMut::new();
        let place = SegmentPosition { index: 0, is_last: true };
        seal.close(place, b"three", &mut stored);
        assert!(hex(seal.head()).starts_with("46424c4201010432303236000000"));
        assert_eq!(hex(&stored), "0c88c2e77e21d5330b1796a124477a7447d322442d");
        assert_eq!(seal.open(place, &stored.freeze()).unwrap(), "three");
    }
}
