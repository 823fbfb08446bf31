//! Counts values by key, for an operator who wants to remove an old key.

use std::collections::BTreeMap;

use ferrata_store::{Error, ErrorKind, Result, TenantId};
use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

use crate::blobs::Blobs;
use crate::place::{self, ObjectKind};
use crate::seal::{BlobHead, HEAD};

/// The number and size of a tenant's values that use one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobUsage {
    /// The tenant.
    pub tenant: TenantId,
    /// The name of the key; `None` for values that are not encrypted.
    pub key: Option<String>,
    /// The number of values.
    pub values: u64,
    /// The stored size of these values in bytes.
    pub bytes: u64,
}

impl Blobs {
    /// Counts the values by tenant and by the key that they need. Unencrypted values come first. If `tenant` is given, counts only the values of this
    /// tenant. The call changes nothing and needs no key.
    ///
    /// A value that no record names counts until it is [collected](Self::collect). The call reads 80 bytes of each value. Memory holds one entry for
    /// each key of a tenant.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: the key of a value is unknown. The error names the value. Restore the value from a
    ///   backup, remove it, or upgrade this process.
    /// - [`ErrorKind::Unavailable`]: the object store failed. Call it again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> ferrata_store::Result<()> {
    /// use ferrata_blobs::Blobs;
    ///
    /// let blobs = Blobs::in_memory();
    /// blobs.put("a long letter").await?;
    /// let usage = blobs.key_usage(None).await?;
    /// assert_eq!((usage[0].key.as_deref(), usage[0].values), (None, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn key_usage(&self, tenant: Option<&TenantId>) -> Result<Vec<BlobUsage>> {
        let mut counted: BTreeMap<(TenantId, Option<String>), (u64, u64)> = BTreeMap::new();
        let folder = tenant.map(|tenant| place::path(tenant, ObjectKind::Data, &[]));
        let mut objects = self.objects.list(folder.as_ref());
        while let Some(object) = objects.try_next().await.map_err(place::failed)? {
            let Some((tenant, ObjectKind::Data, _)) = place::read(&object.location) else { continue };
            // A value that was collected after the listing needs no key.
            let Some(key) = self.key_of(&object.location, object.size).await? else { continue };
            let (values, bytes) = counted.entry((tenant, key)).or_default();
            *values += 1;
            *bytes += object.size;
        }
        let usage = |((tenant, key), (values, bytes))| BlobUsage { tenant, key, values, bytes };
        Ok(counted.into_iter().map(usage).collect())
    }

    /// Reads the name of the key that encrypts a value; `None` if the value is gone.
    pub(crate) async fn key_of(&self, path: &Path, size: u64) -> Result<Option<Option<String>>> {
        let none = || {
            let message = format!(
                "cannot read the key of the value at `{path}` from its head; restore it from a backup, or remove it"
            );
            Error::new(ErrorKind::Corrupt, message)
        };
        if size < HEAD {
            return Err(none());
        }
        let head = match self.objects.get_range(path, 0..HEAD).await {
            Ok(head) => head,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(place::failed(error)),
        };
        match BlobHead::read(&head) {
            Some(BlobHead::Plain) => Ok(Some(None)),
            // Ferrata never wrote such a text as a name, so the error does not repeat it.
            Some(BlobHead::Encrypted(name)) if is_name(&name) => Ok(Some(Some(name))),
            Some(BlobHead::Newer(version)) => {
                let message = format!(
                    "the value at `{path}` has version {version}, and this process reads version 1; upgrade this process"
                );
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            _ => Err(none()),
        }
    }
}

/// Returns whether a keyring accepts this text as the name of a key.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.chars().all(is_plain)
}
