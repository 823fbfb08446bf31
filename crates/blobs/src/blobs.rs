//! Stores and reads large values.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ferrata_store::{Clock as _, Error, ErrorKind, IdSource as _, RandomIds, Result, SystemClock, TenantId};
use futures_util::stream::{self, Stream, TryStreamExt as _};
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use tokio::io::AsyncRead;
use uuid::Uuid;

use crate::blob::Blob;
use crate::keys::BlobKeys;
use crate::place::{self, ObjectKind};
use crate::seal::{self, HEAD, SEGMENT, SegmentPosition, TAG};
use crate::upload::{self, BlobUpload, PART};

/// A size larger than any value has. Sums of sizes below it cannot overflow.
const MOST: u64 = 1 << 50;

/// A store for the large values of one tenant, in a folder, a bucket or any other [`ObjectStore`].
///
/// A stored value never changes. If one tenant puts the same value twice, the store usually keeps one copy. A clone is cheap; give it to nodes as a
/// resource of the runtime.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ferrata_store::Result<()> {
/// use ferrata_blobs::Blobs;
///
/// let blobs = Blobs::in_memory();
/// let blob = blobs.put("a long letter").await?;
/// assert_eq!(blob.len(), 13);
/// assert_eq!(blobs.get(&blob).await?, "a long letter");
/// assert_eq!(blobs.range(&blob, 2..6).await?, "long");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Blobs {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) tenant: TenantId,
    keys: BlobKeys,
    pub(crate) ids: Arc<RandomIds>,
}

impl Blobs {
    /// Stores values in an object store. The object store must acknowledge a write only after it is durable, and must list a new object at once, as
    /// S3 does.
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, tenant: TenantId::default(), keys: BlobKeys::default(), ids: Arc::default() }
    }

    /// Stores values in the memory of this process. Use it for tests.
    pub fn in_memory() -> Self {
        Self::new(Arc::new(object_store::memory::InMemory::new()))
    }

    /// Stores values in a folder, and creates the folder if it is missing. When [`put`](Self::put) returns, the value is on disk.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the folder cannot be created or read.
    pub fn in_folder(path: impl AsRef<std::path::Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            let message = format!(
                "cannot store blobs in the folder `{}`; correct its path or permissions",
                path.display()
            );
            Error::new(ErrorKind::Unavailable, message).with_source(error)
        };
        std::fs::create_dir_all(path).map_err(|error| failed(error.into()))?;
        let folder = object_store::local::LocalFileSystem::new_with_prefix(path);
        Ok(Self::new(Arc::new(folder.map_err(|error| failed(error.into()))?.with_fsync(true))))
    }

    /// Returns the blobs of another tenant in the same object store. One tenant cannot read the values of another, and two tenants never share a
    /// stored copy.
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        Self { tenant: tenant.clone(), ..self.clone() }
    }

    /// Encrypts new values with the current key of their tenant. Reads values that are encrypted with any key of the keyring. The keys are the same
    /// as those of an [`EnvelopeStore`](ferrata_store_envelope::EnvelopeStore).
    #[cfg(feature = "envelope")]
    #[must_use]
    pub fn with_keys(mut self, keys: impl ferrata_store_envelope::KeyProvider) -> Self {
        self.keys.provider = Some(Arc::new(keys));
        self
    }

    /// Sets whether unencrypted values are readable although keys are set. The default is false.
    #[cfg(feature = "envelope")]
    #[must_use]
    pub fn accept_plain(mut self, accept: bool) -> Self {
        self.keys.accept_plain = accept;
        self
    }

    #[cfg(feature = "envelope")]
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.provider.is_some()
    }

    /// Returns the key that new values of this tenant use.
    #[cfg(feature = "envelope")]
    pub(crate) async fn current_key(&self) -> Result<crate::keys::CurrentBlobKey> {
        self.keys.maker(&self.tenant).await
    }

    /// Stores a value durably, and returns its name for the state.
    ///
    /// A record must contain the name within the grace period of [`collect`](Self::collect), by default a week. Until then no collection removes the
    /// value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`]: retry. [`ErrorKind::Invalid`]: the object store denies access to this process. A later collection removes any
    /// partial upload.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a collection later removes a value that no record names.
    pub async fn put(&self, value: impl Into<Bytes> + Send) -> Result<Blob> {
        let value = value.into();
        let maker = self.keys.maker(&self.tenant).await?;
        let hash = maker.hasher().update(&value).finalize().to_hex();
        if let Some(known) = self.find_existing(&hash, value.len() as u64).await? {
            return Ok(known);
        }
        let blob = Blob { id: self.id(), len: value.len() as u64 };
        let seal = maker.seal(&self.tenant, blob.id);
        let path = place::path(&self.tenant, ObjectKind::Data, &[&blob.id.simple().to_string()]);
        if value.len() as u64 <= PART {
            let stored = upload::seal_value(&seal, &value);
            let create = PutOptions::from(PutMode::Create);
            self.objects.put_opts(&path, stored.into(), create).await.map_err(place::failed)?;
        } else {
            let mut upload = BlobUpload::begin(&*self.objects, &path, &seal).await?;
            upload.write(&value, true).await?;
            upload.finish().await?;
        }
        self.make_known(&hash, blob).await?;
        Ok(blob)
    }

    /// Stores the bytes of `reader` until its end, like [`put`](Self::put). Memory is bounded: the call holds a few parts of 8 MiB, less than 128 MiB
    /// in total.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Self::put), and [`ErrorKind::Unavailable`] if the reader fails.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the call stores no value, but the bytes that it read from `reader` are lost. In a bucket, a lifecycle rule must remove unfinished
    /// uploads.
    pub async fn put_reader(&self, mut reader: impl AsyncRead + Send + Unpin) -> Result<Blob> {
        let first = upload::read_part(&mut reader).await?;
        if (first.len() as u64) < PART {
            return self.put(first).await;
        }
        let maker = self.keys.maker(&self.tenant).await?;
        let mut hasher = maker.hasher();
        let id = self.id();
        let seal = maker.seal(&self.tenant, id);
        let path = place::path(&self.tenant, ObjectKind::Data, &[&id.simple().to_string()]);
        let mut upload = BlobUpload::begin(&*self.objects, &path, &seal).await?;
        let (mut part, mut len) = (first, 0);
        let done = loop {
            len += part.len() as u64;
            hasher.update(&part);
            let next = upload::read_part(&mut reader).await;
            let is_last = next.as_ref().is_ok_and(Bytes::is_empty);
            if let Err(error) = upload.write(&part, is_last).await.and(next.map(|next| part = next)) {
                break Err(error);
            }
            if is_last {
                break Ok(());
            }
        };
        let blob = Blob { id, len };
        let hash = hasher.finalize().to_hex();
        let known = match done {
            Ok(()) => self.find_existing(&hash, len).await,
            Err(error) => Err(error),
        };
        match known {
            Ok(None) => {
                upload.finish().await?;
                self.make_known(&hash, blob).await?;
                Ok(blob)
            }
            known => {
                upload.abort().await;
                known.map(|known| known.unwrap_or(blob))
            }
        }
    }

    /// Reads the whole value.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: this tenant has no such value in this object store. The value was collected, or was put elsewhere.
    /// - [`ErrorKind::Corrupt`]: the stored value is damaged. Restore it from a backup.
    /// - [`ErrorKind::Unsupported`]: the keyring lacks the key of the value, or a newer version wrote the value.
    /// - [`ErrorKind::TooLarge`]: the value does not fit in this process's memory.
    /// - [`ErrorKind::Unavailable`]: the object store does not answer. Retry.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn get(&self, blob: &Blob) -> Result<Bytes> {
        self.range(blob, 0..blob.len).await
    }

    /// Reads a part of a value. The call fetches only the stored segments of 64 KiB that contain the part.
    ///
    /// # Errors
    ///
    /// The errors of [`get`](Self::get), and [`ErrorKind::Invalid`] if `part` is not within the value.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call only reads.
    pub async fn range(&self, blob: &Blob, part: Range<u64>) -> Result<Bytes> {
        match self.read(blob, part.clone()).await {
            // A rekey may have replaced the object between reading its head and its segments.
            Err(error) if error.kind() == ErrorKind::Corrupt => self.read(blob, part).await,
            read => read,
        }
    }

    async fn read(&self, blob: &Blob, part: Range<u64>) -> Result<Bytes> {
        if part.start > part.end || part.end > blob.len {
            let message =
                format!("{blob} has no bytes {}..{}; use a part of 0..{}", part.start, part.end, blob.len);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        // [`put`](Self::put) never returns a name with this size.
        if blob.len > MOST {
            return Err(place::corrupt(blob));
        }
        // Check an empty part, too. Each value has at least one segment.
        let first = (part.start / SEGMENT).min(seal::segments(blob.len) - 1);
        let end = part.end.div_ceil(SEGMENT).max(first + 1);
        let stored = SEGMENT + TAG as u64;
        let size = HEAD + blob.len + seal::segments(blob.len) * TAG as u64;
        let span = HEAD + first * stored..(HEAD + end * stored).min(size);
        let capacity = usize::try_from((end - first) * SEGMENT).map_err(|_| {
            let message = format!("{blob} is too large for memory; read it in parts, with `stream`");
            Error::new(ErrorKind::TooLarge, message)
        })?;
        let path = place::path(&self.tenant, ObjectKind::Data, &[&blob.id.simple().to_string()]);
        let read = self.objects.get_ranges(&path, &[0..HEAD, span]).await;
        let read = match read {
            Ok(read) => read,
            // A truncated object lacks the requested part.
            Err(error) => match self.objects.head(&path).await {
                Ok(found) if found.size != size => return Err(place::corrupt(blob)),
                _ => return Err(place::failed_to_read(error, blob)),
            },
        };
        let [head, sealed] = read.as_slice() else { return Err(place::corrupt(blob)) };
        let seal = self.keys.seal(&self.tenant, blob, head).await?;
        let mut value = BytesMut::with_capacity(capacity.min(sealed.len()));
        for index in first..end {
            let from = usize::try_from((index - first) * stored).map_err(|_| place::corrupt(blob))?;
            let upto = sealed.len().min(from + usize::try_from(stored).unwrap_or(usize::MAX));
            let is_last = index + 1 == seal::segments(blob.len);
            let sealed =
                (from <= upto).then(|| sealed.slice(from..upto)).ok_or_else(|| place::corrupt(blob))?;
            let segment =
                seal.open(SegmentPosition { index, is_last }, &sealed).ok_or_else(|| place::corrupt(blob))?;
            value.extend_from_slice(&segment);
        }
        let value = value.freeze();
        let from = first * SEGMENT;
        let at = |place: u64| usize::try_from(place - from).ok().filter(|at| *at <= value.len());
        match (at(part.start), at(part.end)) {
            (Some(start), Some(end)) => Ok(value.slice(start..end)),
            _ => Err(place::corrupt(blob)),
        }
    }

    /// Reads a value in parts of at most 8 MiB, one after the other, in bounded memory.
    ///
    /// # Errors
    ///
    /// Each part may fail with the errors of [`range`](Self::range). After an error the stream ends.
    pub fn stream(&self, blob: &Blob) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
        let (blobs, blob) = (self.clone(), *blob);
        stream::try_unfold(0, move |at| {
            let blobs = blobs.clone();
            async move {
                if at >= blob.len && at > 0 {
                    return Ok(None);
                }
                let end = blob.len.min(at + PART);
                let part = blobs.range(&blob, at..end).await?;
                Ok((!part.is_empty()).then_some((part, end)))
            }
        })
    }

    fn id(&self) -> Uuid {
        self.ids.next(SystemClock::new().now())
    }

    /// Finds a value that is already stored and that no collection is about to remove.
    async fn find_existing(&self, hash: &str, len: u64) -> Result<Option<Blob>> {
        let folder = place::path(&self.tenant, ObjectKind::Index, &[hash]);
        let mut entries = self.objects.list(Some(&folder));
        while let Some(entry) = entries.try_next().await.map_err(place::failed)? {
            let Some(id) = place::id_of(&entry.location) else { continue };
            let path = place::path(&self.tenant, ObjectKind::Data, &[&id.simple().to_string()]);
            match self.objects.head(&path).await {
                Ok(_) => return Ok(Some(Blob { id, len })),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(place::failed(error)),
            }
        }
        Ok(None)
    }

    /// Returns the path of a value's index entry.
    pub(crate) fn entry(&self, hash: &str, blob: &Blob) -> object_store::path::Path {
        place::path(&self.tenant, ObjectKind::Index, &[hash, &blob.id.simple().to_string()])
    }

    pub(crate) async fn make_known(&self, hash: &str, blob: Blob) -> Result<()> {
        let entry = self.entry(hash, &blob);
        self.objects.put(&entry, Bytes::new().into()).await.map_err(place::failed)?;
        Ok(())
    }
}

impl fmt::Debug for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blobs").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}
