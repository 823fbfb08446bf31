//! The shared state of the store: the bucket, its keys, the clock for pauses, and caches.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use aws_sdk_s3::Client;
use ferrata_store::{Clock, IdSource, RandomIds};

use crate::bucket::{Bucket, ServerTime};
use crate::cache::HeadCache;
use crate::config::{S3Options, S3Target};
use crate::layout::S3Keys;

/// How long the key of an object stays taken after its write, by the server's clock, even if the object is pruned or purged.
///
/// This constant and [`TRUSTED`] stop a writer that was suspended. The suspended writer saw head n, and now writes n + 1 to a free key. If another
/// writer wrote n + 1, which was then pruned or purged, the writer must not find its key free. There are two cases. If the writer's read is younger
/// than `TRUSTED`, then n + 1 is newer than that read. So it is younger than `KEPT`, and its key is still taken. If the read is older, the writer
/// reads again after the write, and confirms the write.
///
/// Both times are the server's, so a stopped or wrong clock of a client has no effect. The clocks of the server's own machines may differ by 20
/// minutes, the difference of the two constants.
pub(crate) const KEPT: ServerTime = 30 * 60 * 1_000;

/// The maximum age, by the server's clock, of a writer's last read of a log when the server answers the write.
pub(crate) const TRUSTED: ServerTime = 10 * 60 * 1_000;

/// The maximum number of attempts of a conditional write that the server does not decide or does not answer.
pub(crate) const ATTEMPTS: u32 = 6;

/// The maximum number of attempts of a read whose run is pruned, purged or started again meanwhile.
pub(crate) const READS: u32 = 8;

/// The bucket, its keys, and the cached knowledge about it.
#[derive(Debug)]
pub(crate) struct S3Inner {
    pub(crate) bucket: Bucket,
    pub(crate) target: S3Target,
    pub(crate) layout: S3Keys,
    pub(crate) options: S3Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache: HeadCache,
    pub(crate) ids: RandomIds,
    /// Whether the store has read a marker with a layout that this version supports.
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

    /// Waits before another attempt. The pause is 10 ms, doubled for each attempt, plus up to the same time at random, so that colliding writers
    /// separate.
    pub(crate) async fn pause(&self, attempt: u32) {
        let delay = 10 << attempt.min(6);
        // The last two bytes of an id are random.
        let [.., high, low] = self.ids.next(self.clock.now()).into_bytes();
        let random = u64::from(u16::from_be_bytes([high, low]));
        self.clock.sleep(Duration::from_millis(delay + random % delay)).await;
    }
}
