//! An upload of a value in parts. The value gets its name at the end.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, PutPayload, PutResult, Result, UploadPart};
use uuid::Uuid;

use super::{NamePrecondition, PostgresObjects};

/// A value without a name. If it is dropped, its chunks remain for the [sweep](PostgresObjects::sweep).
pub(super) struct ObjectUpload {
    objects: PostgresObjects,
    path: Path,
    tag: Uuid,
    before: NamePrecondition,
    /// The current size in bytes.
    size: u64,
}

impl ObjectUpload {
    pub(super) fn new(objects: PostgresObjects, path: Path, tag: Uuid, before: NamePrecondition) -> Self {
        Self { objects, path, tag, before, size: 0 }
    }

    /// Creates an upload that is completely written.
    pub(super) fn written(
        objects: PostgresObjects,
        path: Path,
        tag: Uuid,
        before: NamePrecondition,
        size: u64,
    ) -> Self {
        Self { size, ..Self::new(objects, path, tag, before) }
    }

    /// Gives the value its name. If the name is refused, removes the chunks.
    pub(super) async fn finish(&self) -> Result<PutResult> {
        let named = self.objects.name(&self.path, self.tag, self.size, self.before).await;
        // After any other error, the value may have its name or may get it at this moment.
        if matches!(named, Err(Error::AlreadyExists { .. } | Error::Precondition { .. }))
            && let Err(error) = self.objects.forget(&self.path, self.tag).await
        {
            tracing::debug!(%error, "could not remove an unnamed value; a later sweep removes it");
        }
        named
    }
}

#[async_trait]
impl MultipartUpload for ObjectUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (objects, path, tag, start, body) =
            (self.objects.clone(), self.path.clone(), self.tag, self.size, Bytes::from(data));
        self.size += body.len() as u64;
        async move { objects.write(&path, tag, start, &body).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.finish().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.objects.forget(&self.path, self.tag).await
    }
}

impl fmt::Debug for ObjectUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("path", &self.path).field("size", &self.size).finish_non_exhaustive()
    }
}
