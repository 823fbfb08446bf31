//! Encryption of labels and users for the inner store. Equal texts have equal ciphertexts, so that the inner store can search for them.
//!
//! A stored text is `enc1:` and, in unpadded URL-safe base64, a nonce of 24 bytes, the ciphertext and the tag of XChaCha20-Poly1305. Both keys come from
//! the secret `K`:
//!
//! | Part | Value |
//! |---|---|
//! | key of the cipher | `derive_key("ferrata envelope 1 labels cipher", K)` of BLAKE3 |
//! | associated data | `00` for the user; `01` and the label's name for a label |
//! | nonce | the first 24 bytes of keyed BLAKE3 under `derive_key("ferrata envelope 1 labels nonce", K)`, over the length of the associated data (8 bytes), these data, and the text |

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use ferrata_store::{Error, ErrorKind, Labels, Result, RunFacts, RunHead, RunQuery};
use zeroize::Zeroizing;

use crate::keys::{Key, read, wipe_stack};

/// The context string for deriving the label keys. Another string would be another format.
const CIPHER: &str = "ferrata envelope 1 labels cipher";
const NONCE: &str = "ferrata envelope 1 labels nonce";

/// The prefix of each encrypted text.
const MARK: &str = "enc1:";

/// The length of a nonce of XChaCha20.
const NONCE_BYTES: usize = 24;

/// The maximum length of a text to encrypt, in bytes. In base64, with nonce, tag and prefix, it takes the 256 bytes that a label may have.
const MOST: usize = 148;

/// The prefix of the labels that Ferrata itself uses to find runs. They contain no data about people.
const OWN: &str = "ferrata.";

/// The key for labels and users. A store has one such key for all tenants, because a listing may cover all tenants.
///
/// Keep the key for as long as callers search for runs by encrypted labels: a search with another key finds none of them.
#[derive(Clone)]
pub struct LabelKey {
    cipher: XChaCha20Poly1305,
    nonces: Zeroizing<[u8; 32]>,
}

impl LabelKey {
    /// Derives the key from a secret: the oldest key of a ring, or a separate secret.
    pub fn new(key: &Key) -> Self {
        let made = Self::derive(key);
        wipe_stack();
        made
    }

    /// Callers must call [`wipe_stack`], which overwrites the copies that this function leaves on the stack.
    #[inline(never)]
    fn derive(key: &Key) -> Self {
        let cipher = Zeroizing::new(blake3::derive_key(CIPHER, key.bytes()));
        let nonces = Zeroizing::new(blake3::derive_key(NONCE, key.bytes()));
        Self { cipher: XChaCha20Poly1305::new((&*cipher).into()), nonces }
    }

    /// Reads the key from a file with 64 hex digits.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`]: the file cannot be read.
    /// - [`ErrorKind::Invalid`]: the contents are not a key. The error does not show the contents.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::new(&Key::from_hex(read(path.as_ref())?.trim())?))
    }

    /// Encrypts the label values and the user of a run.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a text is too long.
    pub(crate) fn closed(&self, facts: &RunFacts) -> Result<RunFacts> {
        let mut labels = Labels::default();
        for (key, value) in facts.labels.iter() {
            labels.insert(key, self.label(key, value)?)?;
        }
        let closed = facts.clone().with_labels(labels);
        match &facts.user {
            Some(user) => closed.with_user(self.user(user)?),
            None => Ok(closed),
        }
    }

    /// Encrypts the labels and the user in a query. Returns `None` if a text is too long: no run can match it, because such a run would have been
    /// refused.
    pub(crate) fn encrypt_query(&self, query: &RunQuery) -> Result<Option<RunQuery>> {
        let labels = query.labels.iter().filter(|(key, _)| !key.starts_with(OWN)).map(|(_, value)| value);
        if query.user.iter().chain(labels).any(|text| text.len() > MOST) {
            return Ok(None);
        }
        let mut asked = query.clone();
        asked.user = query.user.as_deref().map(|user| self.user(user)).transpose()?;
        let label = |(key, value): &(String, String)| Ok((key.clone(), self.label(key, value)?));
        asked.labels = query.labels.iter().map(label).collect::<Result<_>>()?;
        Ok(Some(asked))
    }

    /// Decrypts the labels and the user of a run. Values written without this key stay unchanged.
    pub(crate) fn opened(&self, mut head: RunHead) -> RunHead {
        let mut labels = Labels::default();
        let opened = |(key, value)| {
            labels.insert(key, self.open(LabelContext::Label(key), value).unwrap_or_else(|| value.to_owned()))
        };
        // Decrypted texts are valid labels, and plain texts were checked already.
        if head.facts.labels.iter().try_for_each(opened).is_ok() {
            head.facts.labels = labels;
        }
        if let Some(user) = &mut head.facts.user
            && let Some(opened) = self.open(LabelContext::User, user)
        {
            *user = opened;
        }
        head
    }

    fn user(&self, user: &str) -> Result<String> {
        self.close(LabelContext::User, user)
    }

    fn label(&self, key: &str, value: &str) -> Result<String> {
        if key.starts_with(OWN) {
            return Ok(value.to_owned());
        }
        self.close(LabelContext::Label(key), value)
    }

    fn close(&self, about: LabelContext<'_>, text: &str) -> Result<String> {
        if text.len() > MOST {
            let message = format!(
                "{about} has {} bytes, and the maximum with encryption is {MOST}; use a shorter value",
                text.len()
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let aad = about.bytes();
        let mut nonce = XNonce::default();
        let mut hasher = blake3::Hasher::new_keyed(&self.nonces);
        hasher.update(&(aad.len() as u64).to_le_bytes()).update(&aad).update(text.as_bytes());
        hasher.finalize_xof().fill(&mut nonce);
        let sealed = self.cipher.encrypt(&nonce, Payload { msg: text.as_bytes(), aad: &aad });
        let sealed = sealed.map_err(|_| Error::new(ErrorKind::Invalid, format!("cannot encrypt {about}")))?;
        Ok(format!("{MARK}{}", URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat())))
    }

    fn open(&self, about: LabelContext<'_>, text: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(MARK)?).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_BYTES)?;
        let nonce = XNonce::try_from(nonce).ok()?;
        let opened = self.cipher.decrypt(&nonce, Payload { msg: sealed, aad: &about.bytes() }).ok()?;
        String::from_utf8(opened).ok()
    }
}

impl fmt::Debug for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LabelKey(..)")
    }
}

/// The context of a text. In different labels, equal texts have different ciphertexts.
#[derive(Clone, Copy)]
enum LabelContext<'a> {
    User,
    Label(&'a str),
}

impl LabelContext<'_> {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::User => vec![0],
            Self::Label(key) => [&[1], key.as_bytes()].concat(),
        }
    }
}

impl fmt::Display for LabelContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("the user"),
            Self::Label(key) => write!(f, "the label {key:?}"),
        }
    }
}
