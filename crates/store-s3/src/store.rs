//! The store: the contract's methods, and the functions that create a store.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock, Error, ExecutorId, HeadRef, HeaderRange, Headers, Notices,
    Page, Paged, PruneCut, Record, Removed, Result, RunAppend, RunHead, RunKey, RunQuery, SystemClock,
};

use crate::bounded_join::{self, Task};
use crate::config::{S3Options, S3Target, check_endpoint, read_url};
use crate::error::S3StoreError;
use crate::inner::S3Inner;
use crate::repair::RepairReport;

/// A store that keeps each run as objects in a bucket of S3, or of another server that supports the S3 API and conditional writes.
///
/// A clone is cheap and shares the connections and the cached heads. Any number of instances, in any number of processes and machines, may use a
/// prefix at the same time.
#[derive(Clone)]
pub struct S3Store {
    inner: Arc<S3Inner>,
}

impl S3Store {
    /// Creates a store below a prefix of a bucket, with credentials from the provider chain of the AWS SDK. Sends no request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) if a name or the endpoint is invalid.
    pub fn open(bucket: &str, prefix: &str, options: S3Options) -> Result<Self> {
        check_endpoint(options.endpoint.as_deref())?;
        Ok(Self::new(S3Target::new(bucket, prefix)?, options, None))
    }

    /// Creates a store from a URL: `s3://bucket/prefix?endpoint=https://host:port&region=name&path_style=true`.
    ///
    /// Options of the URL override `options`. A URL with credentials is an error.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open). Also if the URL does not have this form; the error shows no part of the URL.
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_store::CheckpointStore as _;
    /// use ferrata_store_s3::{S3Options, S3Store};
    ///
    /// let url = "s3://runs/production?endpoint=https://s3.example.org&path_style=true";
    /// let store = S3Store::from_url(url, S3Options::default())?;
    /// assert_eq!(store.capabilities().name, "s3");
    /// # Ok::<(), ferrata_store::Error>(())
    /// ```
    pub fn from_url(url: &str, options: S3Options) -> Result<Self> {
        let (target, options) = read_url(url, options)?;
        Ok(Self::new(target, options, None))
    }

    /// Creates a store with a client of the caller: its credentials, endpoint and region. The store uses its own retries and timeouts.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open).
    pub fn with_client(client: Client, bucket: &str, prefix: &str, options: S3Options) -> Result<Self> {
        Ok(Self::new(S3Target::new(bucket, prefix)?, options, Some(client)))
    }

    fn new(target: S3Target, options: S3Options, client: Option<Client>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Self { inner: Arc::new(S3Inner::new(target, options, client, clock)) }
    }

    /// Returns the number of requests that this store has made, without the SDK's retries. Providers charge for requests.
    #[doc(hidden)]
    pub fn requests(&self) -> u64 {
        self.inner.bucket.requests()
    }

    /// Rebuilds the index from the logs, and removes the remains of purged runs.
    ///
    /// Call it after objects were lost, restored or copied by other means. Also call it regularly if many runs are purged soon after their start.
    /// The repair is safe while the store is in use. It needs about five requests for each run, and skips an unreadable run with a warning.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Unavailable`](ferrata_store::ErrorKind::Unavailable): call it again. Runs that are repaired stay repaired.
    /// - The error of the server, if it refuses the objects of all runs.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again.
    pub async fn repair(&self) -> Result<RepairReport> {
        self.inner.ready().await.map_err(of("store.repair"))?;
        self.inner.repair().await.map_err(of("store.repair"))
    }

    async fn append_one(&self, append: RunAppend, is_doubled: bool) -> (Result<HeadRef>, Vec<String>) {
        let mut stale = Vec::new();
        let done = async {
            if is_doubled {
                return Err(S3StoreError::Doubled);
            }
            self.inner.ready().await?;
            self.inner.append(&append, &mut stale).await
        };
        let done = done.await.map_err(|fault| fault.of_run("store.append", &append.run));
        (done, stale)
    }
}

fn of(operation: &'static str) -> impl Fn(S3StoreError) -> Error {
    move |fault| Error::from(fault).with_operation(operation)
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = &self.inner.target;
        f.debug_struct("S3Store")
            .field("bucket", &target.bucket)
            .field("prefix", &target.prefix)
            .finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for S3Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("s3").with_durable(true).with_shared(true)
    }

    async fn setup(&self) -> Result<()> {
        self.inner.set_up().await.map_err(of("store.setup"))
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let mut named = HashSet::new();
        let tasks = batch.into_iter().map(|append| {
            let is_doubled = !named.insert(append.run.clone());
            Box::pin(self.append_one(append, is_doubled)) as Task<'_, _>
        });
        let done = bounded_join::each(tasks.collect(), self.inner.options.parallel.get()).await;
        let (results, stale): (Vec<_>, Vec<Vec<_>>) = done.into_iter().unzip();
        // Use one request for the batch, which runs that end at the same time share.
        self.inner.drop_entries(&stale.into_iter().flatten().collect::<Vec<_>>()).await;
        results
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let load = async {
            self.inner.ready().await?;
            self.inner.load(run, at).await
        };
        load.await.map_err(|fault| fault.of_run("store.load", run))
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        let load = async {
            self.inner.ready().await?;
            self.inner.load_since(run, known).await
        };
        load.await.map_err(|fault| fault.of_run("store.load", run))
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let headers = async {
            self.inner.ready().await?;
            self.inner.headers(run, range).await
        };
        headers.await.map_err(|fault| fault.of_run("store.headers", run))
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let head = async {
            self.inner.ready().await?;
            let Some(log) = self.inner.open(run).await? else { return Ok(None) };
            let alive = match log.seen.last.owner {
                Some(owner) => self.inner.is_alive(&owner).await?,
                None => false,
            };
            Ok(Some(log.run_head(run, alive)))
        };
        head.await.map_err(|fault: S3StoreError| fault.of_run("store.head", run))
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let runs = async {
            self.inner.ready().await?;
            self.inner.runs(query, &page).await
        };
        runs.await.map_err(of("store.runs"))
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        let prune = async {
            self.inner.ready().await?;
            self.inner.prune(run, &cut).await
        };
        prune.await.map_err(|fault| fault.of_run("store.prune", run))
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        let purge = async {
            self.inner.ready().await?;
            self.inner.purge(run, expected).await
        };
        purge.await.map_err(|fault| fault.of_run("store.purge", run))
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.inner.heartbeat(executor, ttl).await.map_err(of("store.heartbeat"))
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        self.inner.is_alive(executor).await.map_err(of("store.is_alive"))
    }

    fn transactions(&self) -> Option<&dyn ferrata_store::Transactions> {
        None
    }

    fn part(&self, _run: &RunKey) -> u64 {
        0
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        Some(self)
    }

    fn relay(&self) -> Option<&dyn ferrata_store::Relay> {
        None
    }

    fn subscribe(&self) -> Option<Notices> {
        None
    }
}

#[async_trait]
impl ferrata_store::Resealing for S3Store {
    /// Reseals object by object.
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        ferrata_store::check_reseal(run, records)?;
        let reseal = async {
            self.inner.ready().await?;
            self.inner.reseal(run, records).await
        };
        reseal.await.map_err(|fault| fault.of_run("store.reseal", run))
    }
}
