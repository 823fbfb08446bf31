//! Encrypts values again that have older keys, so that operators can remove those keys.

use bytes::Bytes;
use ferrata_store::{Error, ErrorKind, Result, TenantId};
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutMode, PutOptions};
use uuid::Uuid;

use crate::blob::Blob;
use crate::blobs::Blobs;
use crate::keys::CurrentBlobKey;
use crate::place;
use crate::seal::{HEAD, SEGMENT, TAG};
use crate::upload::{self, BlobUpload, PART};

/// The result of [`Blobs::rekey`]. With `dry_run`, the result that the call would have had.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct BlobRekeyReport {
    /// The number of values that were checked.
    pub values: u64,
    /// The number of values that were encrypted again with the current key of their tenant.
    pub rekeyed: u64,
    /// The stored size of these values in bytes.
    pub bytes: u64,
    /// The values that could not be processed, each with its path and the error. A value in this list may still need an old key.
    pub failed: Vec<(String, Error)>,
}

impl Blobs {
    /// Encrypts the values of all tenants, or of one tenant, with the current key of their tenant. Values that already use this key stay unchanged.
    /// The names and contents of values stay the same. Other processes may put, read and collect values during the call.
    ///
    /// Before the call, every process must already write with the new key. If [`accept_plain`](Self::accept_plain) is set, the call also encrypts
    /// unencrypted values. Otherwise the call fails on unencrypted values. A collection treats a rewritten value as new. The call passes its progress
    /// to `told` after each value.
    ///
    /// You can repeat an interrupted call: it skips values that already have the current key. Memory holds a few parts of 8 MiB and the names of all
    /// objects.
    ///
    /// # Errors
    ///
    /// If one value fails, it is listed in [`failed`](BlobRekeyReport::failed), and the call continues with the other values. The call itself fails with
    /// [`ErrorKind::Invalid`] if no keys are set, and with [`ErrorKind::Unavailable`] if the values cannot be listed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some values are already rewritten, each of them completely. Call it again.
    pub async fn rekey(
        &self,
        tenant: Option<&TenantId>,
        dry_run: bool,
        mut told: impl FnMut(&BlobRekeyReport) + Send,
    ) -> Result<BlobRekeyReport> {
        if !self.has_keys() {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the blobs have no keys to encrypt with; set a keyring",
            ));
        }
        let found = self.list_objects().await?;
        let mut done = BlobRekeyReport::default();
        for ((of, id), kept) in found.values {
            if tenant.is_some_and(|tenant| *tenant != of) {
                continue;
            }
            done.values += 1;
            let entries = found.entries.get(&(of.clone(), id)).map_or(&[][..], Vec::as_slice);
            match self.for_tenant(&of).rekey_value(id, &kept.path, kept.size, entries, dry_run).await {
                Ok(true) => {
                    done.rekeyed += 1;
                    done.bytes += kept.size;
                }
                Ok(false) => {}
                Err(error) => done.failed.push((kept.path.to_string(), error)),
            }
            told(&done);
        }
        Ok(done)
    }

    /// Encrypts one value of this tenant again if it needs another key. Returns whether it did.
    async fn rekey_value(
        &self,
        id: Uuid,
        path: &Path,
        size: u64,
        entries: &[Path],
        dry_run: bool,
    ) -> Result<bool> {
        let maker = self.current_key().await?;
        // A value that was collected after the listing needs no key.
        let Some(key) = self.key_of(path, size).await? else { return Ok(false) };
        if key.as_deref() == maker.name() {
            return Ok(false);
        }
        let blob = Blob { id, len: value_len(size) };
        let first = match self.range(&blob, 0..blob.len.min(PART)).await {
            Ok(first) => first,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if !dry_run {
            let hash = self.replace(&blob, path, first, &maker).await?;
            self.replace_entries(&blob, &hash, entries).await?;
        }
        Ok(true)
    }

    /// Overwrites a value with its newly encrypted form. Returns its hash under the new key. Readers get the old object until the new one is
    /// complete.
    async fn replace(
        &self,
        blob: &Blob,
        path: &Path,
        first: Bytes,
        maker: &CurrentBlobKey,
    ) -> Result<String> {
        let (seal, mut hasher) = (maker.seal(&self.tenant, blob.id), maker.hasher());
        hasher.update(&first);
        if blob.len <= PART {
            let stored = upload::seal_value(&seal, &first);
            let over = PutOptions::from(PutMode::Overwrite);
            self.objects.put_opts(path, stored.into(), over).await.map_err(place::failed)?;
            return Ok(hasher.finalize().to_hex().to_string());
        }
        let mut upload = BlobUpload::begin(&*self.objects, path, &seal).await?;
        let (mut part, mut at) = (first, 0);
        let sent = loop {
            at += part.len() as u64;
            if let Err(error) = upload.write(&part, at == blob.len).await {
                break Err(error);
            }
            if at == blob.len {
                break Ok(());
            }
            part = match self.range(blob, at..blob.len.min(at + PART)).await {
                Ok(next) => next,
                Err(error) => break Err(error),
            };
            hasher.update(&part);
        };
        if let Err(error) = sent {
            upload.abort().await;
            return Err(error);
        }
        upload.finish().await?;
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Replaces the index entries of a value with an entry for its hash under the new key, if the value had an entry.
    async fn replace_entries(&self, blob: &Blob, hash: &str, entries: &[Path]) -> Result<()> {
        let new = self.entry(hash, blob);
        let mut is_entered = entries.contains(&new);
        for entry in entries.iter().filter(|entry| **entry != new) {
            // If a collection has removed the entry in between, do not restore it: that collection has condemned the value.
            if self.objects.head(entry).await.is_ok() && !is_entered {
                self.make_known(hash, *blob).await?;
                is_entered = true;
            }
            self.delete(entry).await?;
        }
        Ok(())
    }
}

/// Computes the size of a value from the size of its object.
fn value_len(size: u64) -> u64 {
    let sealed = size.saturating_sub(HEAD);
    sealed.saturating_sub(sealed.div_ceil(SEGMENT + TAG as u64) * TAG as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::segments;

    #[test]
    fn value_length_derives_from_stored_size() {
        for len in [0, 1, 15, 16, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT, 3 * SEGMENT + 16, 5 << 30] {
            assert_eq!(value_len(HEAD + len + segments(len) * TAG as u64), len);
        }
    }
}
