//! Shared state of the store's parts: the bucket, its keys, the clock for waiting, and caches.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use aws_sdk_s3::Client;
use ferrata_store::{Clock, IdSource, RandomIds};

use crate::bucket::{Bucket, ServerTime};
use crate::cache::HeadCache;
use crate::config::{S3Options, S3Target};
use crate::layout::S3Keys;

/// The time, by the server's clock, that the key of an object stays taken after the write, even if the object is pruned or purged.
///
/// This and [`TRUSTED`] keep out a writer that slept. Such a writer saw head n, and writes n + 1 to a free key. If n + 1 existed and was pruned or
/// purged since, the writer must not find its key free. If the writer's read is younger than `TRUSTED`, then n + 1 was written after the read, is
/// younger than `KEPT`, and its key is still taken. If the read is older, the writer reads again after the write and confirms it. Both times are the
/// server's, so a stopped or wrong client clock has no effect. The clocks of the server's own machines may differ by the 20 minutes between the two
/// constants.
pub(crate) const KEPT: ServerTime = 30 * 60 * 1_000;

/// How old, by the server's clock, what a writer last saw of a log may be when its write is answered.
pub(crate) const TRUSTED: ServerTime = 10 * 60 * 1_000;

/// The maximum number of attempts of a conditional write that the server does not decide or answer.
pub(crate) const ATTEMPTS: u32 = 6;

/// The maximum number of restarts of a read whose run is pruned, purged or started again meanwhile.
pub(crate) const READS: u32 = 8;

/// The bucket, its keys, and what is remembered of it.
#[derive(Debug)]
pub(crate) struct S3Inner {
    pub(crate) bucket: Bucket,
    pub(crate) target: S3Target,
    pub(crate) layout: S3Keys,
    pub(crate) options: S3Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache: HeadCache,
    pub(crate) ids: RandomIds,
    /// Whether the layout was seen to be one that this version reads.
    pub(crate) is_marked: AtomicBool,
}

impl S3Inner {
    pub(crate) fn new(
        target: S3Target,
        options: S3Options,
        client: Option<Client>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            bucket: Bucket::new(target.bucket.clone(), options.clone(), client),
            layout: S3Keys::new(&target.prefix),
            cache: HeadCache::new(options.cached_runs.get()),
            target,
            options,
            clock,
            ids: RandomIds::new(),
            is_marked: AtomicBool::new(false),
        }
    }

    /// Waits before a further attempt: 10 ms, doubled each time, plus as much random jitter, so that colliding writers separate.
    pub(crate) async fn pause(&self, attempt: u32) {
        let delay = 10 << attempt.min(6);
        // The last two bytes of an id are random.
        let [.., high, low] = self.ids.next(self.clock.now()).into_bytes();
        let random = u64::from(u16::from_be_bytes([high, low]));
        self.clock.sleep(Duration::from_millis(delay + random % delay)).await;
    }
}
