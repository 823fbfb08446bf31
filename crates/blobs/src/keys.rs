//! Keys that encrypt and decrypt values: a key of their tenant, or none.

#[cfg(feature = "envelope")]
use std::sync::Arc;

use ferrata_store::{Error, ErrorKind, Result, TenantId};
#[cfg(feature = "envelope")]
use ferrata_store_envelope::{BlobKey, KeyProvider};
use uuid::Uuid;

use crate::blob::Blob;
use crate::place;
use crate::seal::{Head, Seal};

/// The source of a place's keys.
#[derive(Clone, Default)]
pub(crate) struct Keys {
    #[cfg(feature = "envelope")]
    pub(crate) provider: Option<Arc<dyn KeyProvider>>,
    /// Whether plain values are readable although keys are set.
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
    /// The hash is keyed, so it reveals nothing about the value without the key.
    pub(crate) fn hasher(&self) -> blake3::Hasher {
        #[cfg(feature = "envelope")]
        if let Some((_, key)) = &self.key {
            return blake3::Hasher::new_keyed(&blake3::derive_key("ferrata blob 1 content", key.bytes()));
        }
        blake3::Hasher::new()
    }

    /// Returns the name of the key; none without one.
    #[cfg(feature = "envelope")]
    pub(crate) fn name(&self) -> Option<&str> {
        self.key.as_ref().map(|(name, _)| name.as_str())
    }

    pub(crate) fn seal(&self, tenant: &TenantId, id: Uuid) -> Seal {
        #[cfg(feature = "envelope")]
        if let Some((name, key)) = &self.key {
            return Seal::encrypted(name, key.bytes(), tenant, id);
        }
        Seal::plain(tenant, id)
    }
}

#[cfg(not(feature = "envelope"))]
#[expect(clippy::unused_async, reason = "with keys, they may have to be asked for")]
impl Keys {
    pub(crate) async fn maker(&self, _tenant: &TenantId) -> Result<CurrentBlobKey> {
        Ok(CurrentBlobKey {})
    }

    pub(crate) async fn seal(&self, tenant: &TenantId, blob: &Blob, head: &[u8]) -> Result<Seal> {
        match Head::read(head).ok_or_else(|| place::corrupt(blob))? {
            Head::Plain => Ok(Seal::plain(tenant, blob.id)),
            Head::Encrypted(name) => Err(lacks_key(blob, &name)),
            Head::Newer(version) => Err(newer(blob, version)),
        }
    }
}

#[cfg(feature = "envelope")]
impl Keys {
    /// Returns the key that a new value of the tenant uses.
    pub(crate) async fn maker(&self, tenant: &TenantId) -> Result<CurrentBlobKey> {
        let Some(provider) = &self.provider else { return Ok(CurrentBlobKey { key: None }) };
        let ring = provider.keyring(tenant).await?;
        let key = ring.blob_key(ring.current());
        let key = key.ok_or_else(|| Error::new(ErrorKind::Invalid, "the keyring is empty; add a key"))?;
        Ok(CurrentBlobKey { key: Some((ring.current().to_owned(), key.clone())) })
    }

    /// Returns what opens a value of the tenant whose head this is.
    pub(crate) async fn seal(&self, tenant: &TenantId, blob: &Blob, head: &[u8]) -> Result<Seal> {
        match (Head::read(head).ok_or_else(|| place::corrupt(blob))?, &self.provider) {
            (Head::Newer(version), _) => Err(newer(blob, version)),
            (Head::Plain, Some(_)) if !self.accept_plain => {
                let message = format!(
                    "{blob} is not encrypted, and blobs must be encrypted; if it was put before encryption was enabled, allow it with \
                     `accept_plain`"
                );
                Err(Error::new(ErrorKind::Corrupt, message))
            }
            (Head::Plain, _) => Ok(Seal::plain(tenant, blob.id)),
            (Head::Encrypted(name), None) => Err(lacks_key(blob, &name)),
            (Head::Encrypted(name), Some(provider)) => {
                let mut ring = provider.keyring(tenant).await?;
                if ring.blob_key(&name).is_none() {
                    ring = provider.renewed(tenant).await?;
                }
                let key = ring.blob_key(&name).ok_or_else(|| lacks_key(blob, &name))?;
                Ok(Seal::encrypted(&name, key.bytes(), tenant, blob.id))
            }
        }
    }
}

fn lacks_key(blob: &Blob, name: &str) -> Error {
    let message =
        format!("{blob} is encrypted with the key `{}`; give this process that key", name.escape_debug());
    Error::new(ErrorKind::Unsupported, message)
}

fn newer(blob: &Blob, version: u8) -> Error {
    let message =
        format!("{blob} has version {version}, and this process reads version 1; upgrade this process");
    Error::new(ErrorKind::Unsupported, message)
}
