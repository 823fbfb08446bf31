//! Uploads of values: segments are sealed one after the other and sent in parts.

use bytes::{Bytes, BytesMut};
use ferrata_store::{Error, ErrorKind, Result};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, WriteMultipart};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::place;
use crate::seal::{self, BlobSeal, HEAD, SEGMENT, SegmentPosition, TAG};

/// The number of bytes that are sent, or read ahead, at a time. The number is a multiple of the segment size.
pub(crate) const PART: u64 = 8 << 20;

/// The number of concurrent parts of one value.
const PARTS: usize = 2;

/// Seals a value that is sent in one request.
pub(crate) fn seal_value(seal: &BlobSeal, value: &[u8]) -> Bytes {
    let mut stored = BytesMut::with_capacity(stored_len(value.len() as u64));
    stored.extend_from_slice(seal.head());
    SegmentSealer { seal, index: 0 }.write(value, true, &mut stored);
    stored.freeze()
}

/// Seals the segments of a value, beginning with the first.
struct SegmentSealer<'a> {
    seal: &'a BlobSeal,
    index: u64,
}

impl SegmentSealer<'_> {
    /// Seals the next bytes of the value. Each segment except the last has the full size.
    fn write(&mut self, value: &[u8], is_end: bool, into: &mut BytesMut) {
        let segment = usize::try_from(SEGMENT).unwrap_or(usize::MAX);
        let mut rest = value;
        loop {
            let (now, later) = rest.split_at(rest.len().min(segment));
            let is_last = is_end && later.is_empty();
            self.seal.close(SegmentPosition { index: self.index, is_last }, now, into);
            self.index += 1;
            rest = later;
            if rest.is_empty() {
                return;
            }
        }
    }
}

/// A value that is being sent in parts.
pub(crate) struct BlobUpload<'a> {
    parts: WriteMultipart,
    closing: SegmentSealer<'a>,
}

impl<'a> BlobUpload<'a> {
    pub(crate) async fn begin(objects: &dyn ObjectStore, path: &Path, seal: &'a BlobSeal) -> Result<Self> {
        let upload = objects.put_multipart(path).await.map_err(place::failed)?;
        let part = usize::try_from(PART).unwrap_or(usize::MAX);
        let mut parts = WriteMultipart::new_with_chunk_size(upload, part);
        parts.put(Bytes::copy_from_slice(seal.head()));
        Ok(Self { parts, closing: SegmentSealer { seal, index: 0 } })
    }

    /// Sends the next bytes. Waits while too many parts are in flight.
    pub(crate) async fn write(&mut self, value: &[u8], is_end: bool) -> Result<()> {
        let part = usize::try_from(PART).unwrap_or(usize::MAX);
        let mut rest = value;
        loop {
            let (now, later) = rest.split_at(rest.len().min(part));
            let mut sealed = BytesMut::with_capacity(stored_len(now.len() as u64));
            self.closing.write(now, is_end && later.is_empty(), &mut sealed);
            self.parts.wait_for_capacity(PARTS).await.map_err(place::failed)?;
            self.parts.put(sealed.freeze());
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    pub(crate) async fn finish(self) -> Result<()> {
        self.parts.finish().await.map_err(place::failed)?;
        Ok(())
    }

    /// Aborts the upload. If the abort fails, no caller has the name of the object, so a collection removes it.
    pub(crate) async fn abort(self) {
        if let Err(error) = self.parts.abort().await {
            tracing::debug!(%error, "cannot abort an upload; the next collection removes it");
        }
    }
}

/// Reads a whole part. At the end of the reader, the part is shorter.
pub(crate) async fn read_part(reader: &mut (impl AsyncRead + Send + Unpin)) -> Result<Bytes> {
    let mut part = Vec::new();
    reader.take(PART).read_to_end(&mut part).await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "cannot read all of the data to store").with_source(error)
    })?;
    Ok(part.into())
}

fn stored_len(len: u64) -> usize {
    usize::try_from(HEAD + len + seal::segments(len) * TAG as u64).unwrap_or(usize::MAX)
}
