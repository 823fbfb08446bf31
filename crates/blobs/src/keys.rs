//! The keys that encrypt and decrypt values. Without a keyring, values are not encrypted.

#[cfg(feature = "envelope")]
use std::sync::Arc;

use ferrata_store::{Error, ErrorKind, Result, TenantId};
#[cfg(feature = "envelope")]
use ferrata_store_envelope::{BlobKey, KeyProvider};
use uuid::Uuid;

use crate::blob::Blob;
use crate::place;
use crate::seal::{BlobHead, BlobSeal};

/// The source of the keys of an object store's values.
#[derive(Clone, Default)]
pub(crate) struct BlobKeys {
    #[cfg(feature = "envelope")]
    pub(crate) provider: Option<Arc<dyn KeyProvider>>,
    /// Whether unencrypted values are readable although keys are set.
    #[cfg(feature = "envelope")]
    pub(crate) accept_plain: bool,
}

/// The key and settings that new values use.
pub(crate) struct CurrentBlobKey {
    /// The current key and its name.
    #[cfg(feature = "envelope")]
    key: Option<(String, BlobKey)>,
}

impl CurrentBlobKey {
    /// Returns the hasher for the content hash. With a key, the hash reveals nothing about the value to anyone without the key.
    pub(crate) fn hasher(&self) -> blake3::Hasher {
        #[cfg(feature = "envelope")]
        if let Some((_, key)) = &self.key {
            return blake3::Hasher::new_keyed(&blake3::derive_key("ferrata blob 1 content", key.bytes()));
        }
        blake3::Hasher::new()
    }

    /// Returns the name of the key; `None` if values are not encrypted.
    #[cfg(feature = "envelope")]
    pub(crate) fn name(&self) -> Option<&str> {
        self.key.as_ref().map(|(name, _)| name.as_str())
    }

    pub(crate) fn seal(&self, tenant: &TenantId, id: Uuid) -> BlobSeal {
        #[cfg(feature = "envelope")]
        if let Some((name, key)) = &self.key {
            return BlobSeal::encrypted(name, key.bytes(), tenant, id);
        }
        BlobSeal::plain(tenant, id)
    }
}

#[cfg(not(feature = "envelope"))]
#[expect(clippy::unused_async, reason = "with keys, they may have to be asked for")]
impl BlobKeys {
    pub(crate) async fn maker(&self, _tenant: &TenantId) -> Result<CurrentBlobKey> {
        Ok(CurrentBlobKey {})
    }

    pub(crate) async fn seal(&self, tenant: &TenantId, blob: &Blob, head: &[u8]) -> Result<BlobSeal> {
        match BlobHead::read(head).ok_or_else(|| place::corrupt(blob))? {
            BlobHead::Plain => Ok(BlobSeal::plain(tenant, blob.id)),
            BlobHead::Encrypted(name) => Err(missing_key_error(blob, &name)),
            BlobHead::Newer(version) => Err(newer_version_error(blob, version)),
        }
    }
}

#[cfg(feature = "envelope")]
impl BlobKeys {
    /// Returns the key that a new value of the tenant uses.
    pub(crate) async fn maker(&self, tenant: &TenantId) -> Result<CurrentBlobKey> {
        let Some(provider) = &self.provider else { return Ok(CurrentBlobKey { key: None }) };
        let ring = provider.keyring(tenant).await?;
        let key = ring.blob_key(ring.current());
        let key = key.ok_or_else(|| Error::new(ErrorKind::Invalid, "the keyring is empty; add a key"))?;
        Ok(CurrentBlobKey { key: Some((ring.current().to_owned(), key.clone())) })
    }

    /// Returns the seal that decrypts a value of the tenant. `head` is the head of the stored value.
    pub(crate) async fn seal(&self, tenant: &TenantId, blob: &Blob, head: &[u8]) -> Result<BlobSeal> {
        match (BlobHead::read(head).ok_or_else(|| place::corrupt(blob))?, &self.provider) {
            (BlobHead::Newer(version), _) => Err(newer_version_error(blob, version)),
            (BlobHead::Plain, Some(_)) if !self.accept_plain => {
                let message = format!(
                    "{blob} is not encrypted, and blobs must be encrypted; if it was put before encryption was enabled, allow it with \
                     `accept_plain`"
                );
                Err(Error::new(ErrorKind::Corrupt, message))
            }
            (BlobHead::Plain, _) => Ok(BlobSeal::plain(tenant, blob.id)),
            (BlobHead::Encrypted(name), None) => Err(missing_key_error(blob, &name)),
            (BlobHead::Encrypted(name), Some(provider)) => {
                let mut ring = provider.keyring(tenant).await?;
                if ring.blob_key(&name).is_none() {
                    ring = provider.refresh_keyring(tenant).await?;
                }
                let key = ring.blob_key(&name).ok_or_else(|| missing_key_error(blob, &name))?;
                Ok(BlobSeal::encrypted(&name, key.bytes(), tenant, blob.id))
            }
        }
    }
}

fn missing_key_error(blob: &Blob, name: &str) -> Error {
    let message =
        format!("{blob} is encrypted with the key `{}`; give this process that key", name.escape_debug());
    Error::new(ErrorKind::Unsupported, message)
}

fn newer_version_error(blob: &Blob, version: u8) -> Error {
    let message =
        format!("{blob} has version {version}, and this process reads version 1; upgrade this process");
    Error::new(ErrorKind::Unsupported, message)
}
