//! Names and ids: validated text for keys, newtypes for numbers and ids, and sources of fresh ids.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::text::TextAs;

/// The maximum length of a run id, tenant or node name, in bytes.
///
/// Common file systems limit file names to 255 bytes. A tenant, a run id and a suffix must each fit in a file name.
const MAX_TEXT: usize = 128;

/// How many bytes of a refused text its error repeats: enough to recognize the text.
const SHOWN_TEXT: usize = 40;

fn check_text(what: &'static str, text: &str) -> Result<(), Error> {
    let refuse = |why: &str| {
        let mut shown: String = text.chars().take(SHOWN_TEXT).flat_map(char::escape_debug).collect();
        if text.chars().nth(SHOWN_TEXT).is_some() {
            shown.push('…');
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "{what} \"{shown}\" {why}; use 1 to {MAX_TEXT} of A-Z a-z 0-9 . _ : - and do not start with a dot"
            ),
        ))
    };
    if text.is_empty() {
        return refuse("is empty");
    }
    if text.len() > MAX_TEXT {
        return refuse(&format!("has {} bytes", text.len()));
    }
    if text.starts_with('.') {
        return refuse("starts with a dot");
    }
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    if text.bytes().all(is_safe) {
        return Ok(());
    }
    let bad = text.chars().find(|c| !u8::try_from(*c).is_ok_and(is_safe));
    refuse(&format!("contains {:?}", bad.unwrap_or_default()))
}

/// Checks a path of names with `/` between them: each name, and the length of the whole path.
fn check_path(what: &'static str, path: &str) -> Result<(), Error> {
    if path.len() > MAX_TEXT {
        return check_text(what, path);
    }
    path.split('/').try_for_each(|name| check_text(what, name))
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates `text`.
            ///
            /// # Errors
            ///
            /// [`ErrorKind::Invalid`] if the text is empty, too long, starts with a dot or contains a character that is not allowed.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Error> {
                $check($what, text.as_ref())?;
                Ok(Self(text.as_ref().into()))
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Error;
            fn try_from(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextAs(Self::from_str))
            }
        }
    };
}

text_id! {
    /// The id of a run, unique in its tenant. The caller chooses it, or the start generates it.
    ///
    /// An id has 1 to 128 characters from `A-Z a-z 0-9 . _ : -` and does not start with a dot. This text is safe in a path, a key and a query.
    RunId, "run id", check_text
}
text_id! {
    /// The tenant that owns a run. The tenant is part of every key, so the same run id in two tenants means two runs.
    ///
    /// A name has 1 to 128 characters from `A-Z a-z 0-9 . _ : -` and does not start with a dot. This text is safe in a path, a key and a query.
    TenantId, "tenant", check_text
}
text_id! {
    /// The name of a node, unique in its graph. A node of a subgraph has a path such as `review/lint`.
    ///
    /// A name has 1 to 128 characters from `A-Z a-z 0-9 . _ : -` and does not start with a dot. In a path, each name follows these rules, and the
    /// whole path has at most 128 bytes.
    NodeName, "node name", check_path
}

text_id! {
    /// The name of a workflow, under which an application registers its graph.
    ///
    /// A name has 1 to 128 characters from `A-Z a-z 0-9 . _ : -` and does not start with a dot. This text is safe in a path, a key and a query.
    WorkflowName, "workflow name", check_text
}

impl WorkflowName {
    /// Returns whether the name begins with `ferrata:`. The library reserves these names for its own runs, such as those of a sharded store.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(RESERVED)
    }
}

/// The prefix of the names of the library's own workflows.
const RESERVED: &str = "ferrata:";

impl Default for TenantId {
    /// Returns the tenant for applications that have only one tenant.
    fn default() -> Self {
        Self("default".into())
    }
}

/// Identifies a run in a store by tenant and id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunKey {
    /// The tenant that owns the run.
    pub tenant: TenantId,
    /// The run's id within its tenant.
    pub run: RunId,
}

impl RunKey {
    /// Creates a key in the given tenant.
    pub fn new(tenant: TenantId, run: RunId) -> Self {
        Self { tenant, run }
    }
}

impl From<RunId> for RunKey {
    /// Returns the key of the run in the default tenant.
    fn from(run: RunId) -> Self {
        Self { tenant: TenantId::default(), run }
    }
}

impl TryFrom<&str> for RunKey {
    type Error = Error;

    /// Returns the key of the run with this id in the default tenant.
    fn try_from(run: &str) -> Result<Self, Error> {
        Ok(RunId::new(run)?.into())
    }
}

impl From<&RunKey> for RunKey {
    fn from(run: &RunKey) -> Self {
        run.clone()
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.run)
    }
}

impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps an existing id, for example in a decoder.
            pub const fn from_uuid(id: Uuid) -> Self {
                Self(id)
            }

            /// Returns the id as a UUID.
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                Uuid::parse_str(text).map(Self).map_err(|source| {
                    Error::new(ErrorKind::Invalid, concat!(stringify!($name), " is not a UUID")).with_source(source)
                })
            }
        }
    };
}

uuid_id! {
    /// The id of one record: a UUIDv7 that the writer of the record creates. It makes a repeated append recognizable.
    RecordId
}
uuid_id! {
    /// The id of one process instance. Each start of a process has a new id.
    ExecutorId
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($repr);

        impl $name {
            /// Wraps a number.
            pub const fn new(value: $repr) -> Self {
                Self(value)
            }

            /// Returns the number.
            pub const fn get(self) -> $repr {
                self.0
            }

            /// Returns the next number. The largest number returns itself.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// The position of a record in its run's log. Positions are dense and start at 0.
    Seq, u64
}
number! {
    /// The number of times that executors have claimed a run. A start that runs at once counts as claim 1.
    Epoch, u32
}

impl Epoch {
    /// The epoch of a run that was started but never claimed, because it waits for capacity.
    pub const NEVER: Self = Self(0);
}
number! {
    /// The number of an activation among the activations of its node in its run. The first visit is 1.
    Visit, u32
}

/// The position and the id of the last record of a log.
///
/// The id makes heads comparable across a purge: a new run under an old id has other record ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HeadRef {
    /// The record's position.
    pub seq: Seq,
    /// The record's id.
    pub id: RecordId,
}

impl fmt::Display for HeadRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} ({})", self.seq, self.id)
    }
}

/// A hash of a definition, which shows whether the definition changed: 128 bits of BLAKE3, displayed as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Returns the hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut short = [0; 16];
        short.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
        Self(short)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The digits are those of a UUID without hyphens, which is written in one piece.
        fmt::Display::fmt(Uuid::from_bytes(self.0).as_simple(), f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::new(ErrorKind::Invalid, "fingerprint is not 32 hex digits");
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return Err(bad());
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |d: u8| char::from(d).to_digit(16).and_then(|v| u8::try_from(v).ok()).ok_or_else(bad);
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Avoids `Display` for speed: the first record of a run holds a fingerprint for each node of its graph.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        serializer.serialize_str(std::str::from_utf8(&text).map_err(serde::ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A source of fresh ids.
///
/// # To ensure correctness, implementors must
///
/// - never return the same id twice, even in another process or after a restart. A writer of a purged run cannot write to a new run under the same
///   id, because record ids never repeat.
pub trait IdSource: fmt::Debug + Send + Sync + 'static {
    /// Returns a new UUIDv7 whose time part is `now`.
    fn next(&self, now: Timestamp) -> Uuid;
}

/// A source of random ids. Its generator is seeded once, with randomness of the operating system.
///
/// The random part is the SplitMix64 stream (Steele, Lea, Flood 2014) over two independently seeded 64-bit counters. An id costs an atomic addition
/// and a mix; this is cheap enough for an id in every record.
#[derive(Debug)]
pub struct RandomIds {
    high: AtomicU64,
    low: AtomicU64,
}

impl RandomIds {
    /// Creates a source with a seed from the operating system.
    pub fn new() -> Self {
        // `RandomState` gives access to the randomness of the operating system through the standard library: each instance has a fresh key from a
        // per-thread random seed, and an empty hash reads the key through SipHash.
        use std::hash::{BuildHasher, Hasher, RandomState};
        let mut seed = blake3::Hasher::new();
        for _ in 0..4 {
            seed.update(&RandomState::new().build_hasher().finish().to_le_bytes());
        }
        seed.update(&std::process::id().to_le_bytes());
        let hash = seed.finalize();
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| hash.as_bytes()[at + i]));
        Self { high: AtomicU64::new(word(0)), low: AtomicU64::new(word(8)) }
    }
}

impl Default for RandomIds {
    fn default() -> Self {
        Self::new()
    }
}

fn split_mix(counter: &AtomicU64) -> u64 {
    let mut z = counter.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl IdSource for RandomIds {
    fn next(&self, now: Timestamp) -> Uuid {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&split_mix(&self.high).to_le_bytes());
        random[8..].copy_from_slice(&split_mix(&self.low).to_le_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(u64::try_from(now.unix_ms()).unwrap_or(0), &random)
            .into_uuid()
    }
}
