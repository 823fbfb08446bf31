//! Runs that name values, with random changes, concurrent reads, and random failures of the object store.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use ferrata_blobs::{Blob, Blobs, ObjectStore};
use ferrata_store::{
    At, CheckpointStore, HeadRef, MemoryStore, Page, Paged, PruneCut, Record, Result, RunHead, RunId, RunKey,
    RunQuery, TenantId, delegate,
};
use ferrata_store_envelope::{KeyProvider, Keyring};
use ferrata_testing::{Log, facts};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions,
    PutOptions, PutPayload, PutResult,
};
use tokio::sync::Mutex;

use super::keys;

/// The stores, the runs, and the operations on them.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) blobs: Blobs,
    turning: Arc<Turning>,
    /// Number of writes and removals of the object store that still succeed.
    pub(crate) luck: Arc<AtomicU64>,
    runs: Mutex<Runs>,
}

#[derive(Debug)]
struct Runs {
    chance: u64,
    logs: Vec<Log>,
    begun: i64,
    /// Values that were put, and that no record names yet.
    pending: Vec<Blob>,
    contents: HashMap<Blob, Vec<u8>>,
}

impl Runs {
    /// SplitMix64.
    fn below(&mut self, limit: usize) -> usize {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let place = Failing::default();
        let luck = Arc::clone(&place.luck);
        let runs =
            Runs { chance: seed, logs: Vec::new(), begun: 0, pending: Vec::new(), contents: HashMap::new() };
        let turning = Arc::new(Turning::default());
        let blobs = Blobs::new(Arc::new(place)).with_keys(Arc::clone(&turning));
        Self { store: MemoryStore::new(), blobs, turning, luck, runs: Mutex::new(runs) }
    }

    pub(crate) async fn below(&self, limit: usize) -> usize {
        self.runs.lock().await.below(limit)
    }

    /// Performs one operation that a service or an operator may perform at any time.
    pub(crate) async fn stir(&self) {
        let mut runs = self.runs.lock().await;
        let runs = &mut *runs;
        let (what, which) = (runs.below(11), runs.below(runs.logs.len().max(1)));
        match what {
            // A node puts a value, and its record is written now or later.
            0..=3 => {
                let content = vec![u8::try_from(runs.below(6)).unwrap(); 3];
                let Ok(blob) = self.blobs.put(content.clone()).await else { return };
                runs.contents.insert(blob, content);
                match what {
                    0 => runs.pending.push(blob),
                    1 => self.begin(runs, &format!("{{\"doc\":\"{blob}\"}}")).await,
                    _ => self.append(runs, which, &format!("{{\"doc\":\"{blob}\"}}")).await,
                }
            }
            // The content of a record is copied to a new or an existing run.
            4..=5 => {
                let Some(log) = runs.logs.get(which) else { return };
                let record = which * 7 % log.records.len();
                let body = String::from_utf8(log.records[record].body.to_vec()).unwrap();
                let to = runs.below(runs.logs.len());
                if what == 4 { self.begin(runs, &body).await } else { self.append(runs, to, &body).await }
            }
            6 if !runs.logs.is_empty() => {
                let log = runs.logs.remove(which);
                self.store.purge(&log.key, None).await.unwrap();
            }
            7 => {
                let Some(log) = runs.logs.get_mut(which) else { return };
                let at = log.head().unwrap().seq;
                let last = log.records.last().unwrap();
                let header = ferrata_store::RecordHeader { base: true, ..last.header.clone() };
                let base = (!last.header.base).then(|| Record::seal(header, last.body.clone()).unwrap());
                self.store.prune(&log.key, PruneCut { at, base: base.clone() }).await.unwrap();
                log.note_pruned(at.get(), base);
            }
            8 => self.append(runs, which, "{}").await,
            9 => {
                self.turning.turn();
                // It fails if the object store fails.
                if self.blobs.rekey(None, false, |_| {}).await.is_ok_and(|done| done.failed.is_empty()) {
                    self.turning.leave_out_the_old();
                }
            }
            _ => self.settle_in(runs).await,
        }
    }

    /// Writes the records of all values that have none yet.
    pub(crate) async fn settle(&self) {
        self.settle_in(&mut *self.runs.lock().await).await;
    }

    async fn settle_in(&self, runs: &mut Runs) {
        for blob in std::mem::take(&mut runs.pending) {
            self.begin(runs, &format!("[\"{blob}\"]")).await;
        }
    }

    async fn begin(&self, runs: &mut Runs, body: &str) {
        runs.begun += 1;
        let key = RunKey::from(RunId::new(format!("r{}", runs.begun)).unwrap());
        runs.logs.push(Log::new(key).with_facts(facts("review", runs.begun)));
        self.append(runs, runs.logs.len() - 1, body).await;
    }

    async fn append(&self, runs: &mut Runs, which: usize, body: &str) {
        let Some(log) = runs.logs.get_mut(which) else { return };
        let append = log.next_body(Bytes::copy_from_slice(body.as_bytes()));
        self.store.append(vec![append.clone()]).await.remove(0).unwrap();
        log.note_append(&append);
    }

    /// Reads every value that a record names or will name. Returns their number.
    pub(crate) async fn check(&self) -> usize {
        let runs = self.runs.lock().await;
        let bodies = runs.logs.iter().flat_map(|log| &log.records).map(|record| record.body.clone());
        let bodies: Vec<_> = bodies.collect();
        let is_named = |blob: &&Blob| {
            let name = blob.to_string();
            bodies.iter().any(|body| body.windows(name.len()).any(|text| text == name.as_bytes()))
        };
        let named: Vec<_> = runs.contents.keys().filter(is_named).collect();
        for blob in named.iter().copied().chain(&runs.pending) {
            let content = self
                .blobs
                .get(blob)
                .await
                .unwrap_or_else(|error| panic!("a record names this value: {error}"));
            assert_eq!(content, runs.contents[blob]);
        }
        named.len()
    }
}

/// Keys with rotation: each rotation adds one, up to a small number. Keys that no value needs are removed.
#[derive(Debug)]
pub(crate) struct Turning(std::sync::Mutex<Vec<u8>>);

impl Default for Turning {
    fn default() -> Self {
        Self(std::sync::Mutex::new(vec![1]))
    }
}

impl Turning {
    pub(crate) fn turn(&self) {
        let mut names = self.0.lock().unwrap();
        if names.len() < 4 {
            let next = names[0].wrapping_add(1);
            names.insert(0, next);
        }
    }

    pub(crate) fn leave_out_the_old(&self) {
        self.0.lock().unwrap().truncate(1);
    }
}

#[async_trait]
impl KeyProvider for Turning {
    async fn keyring(&self, _tenant: &TenantId) -> Result<Arc<Keyring>> {
        Ok(Arc::new(keys(&self.0.lock().unwrap())))
    }
}

/// A store that runs an operation before each read of a page of runs, which it makes small, or of a run.
pub(crate) struct Acting {
    pub(crate) store: MemoryStore,
    pub(crate) page: u32,
    pub(crate) act: Box<dyn Fn(Option<RunKey>) -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Acting {
    /// The store of a world with operations at any time, up to a thousand. If runs were created faster than they are read, a collection would never
    /// end.
    pub(crate) fn stirred(world: &Arc<World>) -> Self {
        let (store, world) = (world.store.clone(), Arc::clone(world));
        let stirs = AtomicU64::new(0);
        let act = move |_| {
            let (world, is_over) = (Arc::clone(&world), stirs.fetch_add(1, Ordering::Relaxed) >= 1_000);
            async move {
                if !is_over {
                    world.stir().await;
                }
            }
            .boxed()
        };
        Self { store, page: 2, act: Box::new(act) }
    }
}

impl fmt::Debug for Acting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acting")
    }
}

#[async_trait]
impl CheckpointStore for Acting {
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        (self.act)(Some(run.clone())).await;
        self.store.load(run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        (self.act)(Some(run.clone())).await;
        self.store.load_since(run, known).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        (self.act)(None).await;
        let small = Page { limit: page.limit.min(self.page.try_into().unwrap()), ..page };
        self.store.runs(query, small).await
    }

    delegate! { |this| this.store; capabilities, setup, append, headers, head, prune, purge, heartbeat }
}

/// An object store whose writes and removals fail after some number, half of them after they took effect. It counts its reads.
#[derive(Debug)]
pub(crate) struct Failing {
    inner: InMemory,
    pub(crate) luck: Arc<AtomicU64>,
    pub(crate) reads: Arc<AtomicU64>,
    /// Runs once between the two ranges of the next read.
    pub(crate) between: Between,
}

/// An operation that runs at most once.
#[derive(Default)]
pub(crate) struct Between(std::sync::Mutex<Option<BoxFuture<'static, ()>>>);

impl Between {
    pub(crate) fn set(&self, what: impl Future<Output = ()> + Send + 'static) {
        *self.0.lock().unwrap() = Some(what.boxed());
    }

    pub(crate) fn take(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.lock().unwrap().take()
    }
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl Default for Failing {
    fn default() -> Self {
        let luck = Arc::new(AtomicU64::new(u64::MAX));
        Self { inner: InMemory::new(), luck, reads: Arc::default(), between: Between::default() }
    }
}

impl Failing {
    fn count(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn is_lucky(&self) -> bool {
        let left = self.luck.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.is_ok()
    }

    fn failure() -> object_store::Error {
        object_store::Error::Generic { store: "failing", source: "out of luck".into() }
    }
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failing")
    }
}

#[async_trait]
impl ObjectStore for Failing {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        match self.is_lucky() {
            true => self.inner.put_opts(location, payload, options).await,
            false => Err(Self::failure()),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.count();
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> object_store::Result<Vec<Bytes>> {
        self.count();
        let Some(between) = self.between.take() else {
            return self.inner.get_ranges(location, ranges).await;
        };
        let mut read = self.inner.get_ranges(location, &ranges[..1]).await?;
        between.await;
        read.extend(self.inner.get_ranges(location, &ranges[1..]).await?);
        Ok(read)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        use futures_util::StreamExt as _;
        match self.is_lucky() {
            true => self.inner.delete_stream(locations),
            false => futures_util::stream::once(async { Err(Self::failure()) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.count();
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.count();
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
