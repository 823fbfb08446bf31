//! The envelope around a body: its header, encryption and decryption.
//!
//! A body that is neither compressed nor encrypted is stored unchanged. Other bodies have this layout:
//!
//! | Bytes | Content |
//! |---|---|
//! | 1 | `FE`, with which no JSON begins |
//! | 1 | the version: `01` |
//! | 1 | `01` compressed, `02` encrypted, `03` both, `00` neither (a body that begins with `FE` itself) |
//! | 1 + n | only if encrypted: length and name of the key |
//! | rest | the body: first compressed (one zstd frame, RFC 8878), then encrypted, with a tag of 16 bytes |
//!
//! **Cipher.** AES-256-GCM-SIV (RFC 8452) under `derive_key("ferrata envelope 1 cipher", K)` of BLAKE3. Numbers are little-endian. The associated
//! data are, in this order:
//!
//! - the preceding bytes of the envelope
//! - the tenant and the run, each after its length in 8 bytes
//! - the record's number in 8 bytes, and its id in 16 bytes
//! - the id of its predecessor in 16 bytes, if there is one
//! - `01` for a base, else `00`
//!
//! **Nonce.** The last 12 bytes of the record's id. It is not stored.

use std::io::Read as _;

use aes_gcm_siv::Nonce;
use bytes::Bytes;
use chacha20poly1305::aead::{Aead as _, AeadInOut as _, Payload};
use ferrata_store::{Error, ErrorKind, Record, RecordHeader, Result, RunKey};

use crate::keys::{DerivedKeys, Keyring};
use crate::store::EnvelopeOptions;

/// The first byte of every envelope. No plain body begins with it, because a body is JSON, and this byte is invalid in UTF-8.
const MARK: u8 = 0xFE;

/// The version of the envelope.
const VERSION: u8 = 1;

const COMPRESSED: u8 = 1;
const ENCRYPTED: u8 = 2;

/// The length of the cipher's tag.
const TAG: usize = 16;

/// The default level of zstd. It gives most of the gain, for some microseconds per record.
const LEVEL: i32 = 3;

/// Wraps the body of a record. Returns the body unchanged if the options ask for no encryption, and compression does not make it smaller.
///
/// The same body of the same record always gets the same envelope, so that a store recognizes a repeated append.
pub(crate) fn close(
    options: &EnvelopeOptions,
    keys: Option<&Keyring>,
    run: &RunKey,
    header: &RecordHeader,
    body: &Bytes,
) -> Result<Bytes> {
    let compressed = match options.compress_from {
        // A larger body stays uncompressed, because a read would refuse to decompress it.
        Some(least) if body.len() >= least && body.len() as u64 <= options.max_body => compress(body)?,
        _ => None,
    };
    let key = keys.and_then(Keyring::newest);
    let flags = if compressed.is_some() { COMPRESSED } else { 0 } | if key.is_some() { ENCRYPTED } else { 0 };
    let inside = compressed.as_deref().unwrap_or(body);
    match key {
        // A plain body that looks like an envelope gets an envelope without flags.
        None if flags == 0 && body.first() != Some(&MARK) => Ok(body.clone()),
        None => Ok([&[MARK, VERSION, flags], inside].concat().into()),
        Some(key) => encrypt(key, flags, run, header, inside),
    }
}

/// Returns whether a record is encrypted with a key that is not in the ring.
pub(crate) fn lacks(keys: &Keyring, run: &RunKey, record: &Record) -> bool {
    let key = key_of(run, &record.header, &record.body);
    key.is_ok_and(|name| name.is_some_and(|name| keys.find(name).is_none()))
}

/// Returns the name of the key that encrypted the body of a record. Returns `None` if the body is not encrypted.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if the body begins like an envelope but is not a valid one. [`ErrorKind::Unsupported`] if it is an envelope of a newer
/// version.
pub(crate) fn key_of<'a>(run: &RunKey, header: &RecordHeader, stored: &'a [u8]) -> Result<Option<&'a [u8]>> {
    match flags(run, header, stored)? & ENCRYPTED {
        0 => Ok(None),
        _ => match parts(stored) {
            Some((name, _)) => Ok(Some(name)),
            None => Err(corrupt(run, header, CUT)),
        },
    }
}

/// Returns the flags of a record's envelope; 0 if the record has no envelope.
fn flags(run: &RunKey, header: &RecordHeader, stored: &[u8]) -> Result<u8> {
    match stored.get(1..3) {
        _ if stored.first() != Some(&MARK) => Ok(0),
        Some(&[version, _]) if version > VERSION => {
            let message = format!(
                "the record has envelope {version}, and this version opens {VERSION}; upgrade this process"
            );
            Err(at(run, header, ErrorKind::Unsupported, message))
        }
        Some(&[VERSION, flags]) if flags & !(COMPRESSED | ENCRYPTED) == 0 => Ok(flags),
        _ => Err(corrupt(run, header, "the envelope of the record is invalid")),
    }
}

/// The error text for an envelope that ends too early.
const CUT: &str = "the envelope of the record is truncated";

fn at(run: &RunKey, header: &RecordHeader, kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message.into()).with_run(run).with_seq(header.seq)
}

fn corrupt(run: &RunKey, header: &RecordHeader, why: &str) -> Error {
    at(run, header, ErrorKind::Corrupt, format!("{why}; restore the run from a backup"))
}

/// Returns the body of a record without its envelope.
///
/// # Errors
///
/// - [`ErrorKind::Corrupt`]: the envelope belongs to another record, or the body is plain although it must be encrypted.
/// - [`ErrorKind::Unsupported`]: a newer version made the envelope, or its key is not in the ring.
pub(crate) fn open(
    options: &EnvelopeOptions,
    keys: Option<&Keyring>,
    run: &RunKey,
    header: &RecordHeader,
    stored: &Bytes,
) -> Result<Bytes> {
    let name = key_of(run, header, stored)?;
    if name.is_none() && keys.is_some() && !options.accept_plain {
        let message = "the record is not encrypted, and records must be encrypted; if it is older than the encryption, allow it with \
         `EnvelopeOptions::accept_plain`";
        return Err(at(run, header, ErrorKind::Corrupt, message));
    }
    if stored.first() != Some(&MARK) {
        return Ok(stored.clone());
    }
    let corrupt = |why: &str| corrupt(run, header, why);
    let inside = match name {
        None => stored.slice(3..),
        Some(name) => {
            let lacks = |remedy| {
                let name = name.escape_ascii();
                let message = format!("the record is encrypted with the key `{name}`{remedy}");
                at(run, header, ErrorKind::Unsupported, message)
            };
            let keys = keys.ok_or_else(|| lacks("; configure the keys of this process"))?;
            let key = keys.find(name).ok_or_else(|| lacks(", which is not in the keyring; add it"))?;
            let (_, sealed) = parts(stored).ok_or_else(|| corrupt(CUT))?;
            let outside = &stored[..stored.len() - sealed.len()];
            let aad = associated_data(outside, run, header);
            let sealed = Payload { msg: sealed, aad: &aad };
            let opened = key.cipher.decrypt(&nonce_of(header), sealed);
            Bytes::from(
                opened.map_err(|_| corrupt("the record was changed, or encrypted for another position"))?,
            )
        }
    };
    match flags(run, header, stored)? & COMPRESSED {
        0 => Ok(inside),
        _ => decompress(&inside, options.max_body)
            .map_err(|message| at(run, header, ErrorKind::Corrupt, message)),
    }
}

fn encrypt(
    key: &DerivedKeys,
    flags: u8,
    run: &RunKey,
    header: &RecordHeader,
    inside: &[u8],
) -> Result<Bytes> {
    let name = key.name.as_bytes();
    // A name has at most 64 bytes.
    let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    let mut envelope = Vec::with_capacity(4 + name.len() + inside.len() + TAG);
    envelope.extend_from_slice(&[MARK, VERSION, flags, length]);
    envelope.extend_from_slice(name);
    let aad = associated_data(&envelope, run, header);
    let outside = envelope.len();
    envelope.extend_from_slice(inside);
    // Encrypt in place: another copy of a large body would touch new memory pages once more.
    let tag = key.cipher.encrypt_inout_detached(&nonce_of(header), &aad, (&mut envelope[outside..]).into());
    envelope.extend_from_slice(&tag.map_err(|_| {
        let message = format!("the record's body has {} bytes, which is too large to encrypt", inside.len());
        Error::new(ErrorKind::TooLarge, message).with_run(run).with_seq(header.seq)
    })?);
    Ok(envelope.into())
}

/// Uses most of the record's id as the nonce, so that the envelope need not store a nonce. The security does not depend on distinct ids. If a nonce
/// is repeated, the cipher (RFC 8452) reveals only whether two bodies of the same record at the same position are equal.
fn nonce_of(header: &RecordHeader) -> Nonce {
    let mut nonce = Nonce::default();
    nonce.copy_from_slice(&header.id.as_uuid().as_bytes()[4..]);
    nonce
}

/// Returns the associated data of the cipher: the bytes before the body, the run, and the position and id of the record.
fn associated_data(outside: &[u8], run: &RunKey, header: &RecordHeader) -> Vec<u8> {
    let (tenant, id) = (run.tenant.as_str().as_bytes(), run.run.as_str().as_bytes());
    let mut bound = Vec::with_capacity(outside.len() + tenant.len() + id.len() + 64);
    for part in [outside, tenant, id] {
        bound.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bound.extend_from_slice(part);
    }
    bound.extend_from_slice(&header.seq.get().to_le_bytes());
    bound.extend_from_slice(header.id.as_uuid().as_bytes());
    if let Some(prev) = &header.prev {
        bound.extend_from_slice(prev.as_uuid().as_bytes());
    }
    bound.push(u8::from(header.base));
    bound
}

/// Splits an encrypted envelope into the name of its key, and the encrypted part.
fn parts(stored: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = stored.get(3..)?.split_first()?;
    rest.split_at_checked(length.into())
}

/// Compresses a body. Returns `None` if that does not make it smaller.
fn compress(body: &[u8]) -> Result<Option<Vec<u8>>> {
    let compressed = zstd::bulk::compress(body, LEVEL).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "a record could not be compressed; retry").with_source(error)
    })?;
    Ok((compressed.len() < body.len()).then_some(compressed))
}

/// Decompresses a body. Stops if the result is larger than a body may be.
fn decompress(compressed: &[u8], most: u64) -> Result<Bytes, String> {
    let failed = |error: std::io::Error| {
        format!("cannot decompress the record ({error}); restore the run from a backup")
    };
    let decoder = zstd::stream::read::Decoder::with_buffer(compressed).map_err(failed)?;
    let mut body = Vec::new();
    decoder.take(most.saturating_add(1)).read_to_end(&mut body).map_err(failed)?;
    match body.len() as u64 > most {
        true => Err(format!(
            "the decompressed record exceeds {most} bytes; if its writer has a larger `EnvelopeOptions::max_body`, set the same \
             value, otherwise restore the run from a backup"
        )),
        false => Ok(body.into()),
    }
}
