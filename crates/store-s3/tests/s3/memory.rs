//! An S3 server in this process: one map with one lock, real signatures, and injected faults.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use ferrata_store::{Clock, SystemClock};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::dto::*;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// The only user.
pub(crate) const ACCESS_KEY: &str = "the-access-key";
pub(crate) const SECRET_KEY: &str = "the-very-secret-key";

/// The ways in which a server breaks the guarantee of conditional writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Habit {
    #[default]
    Sound,
    /// Ignores `If-None-Match`.
    IgnoresIfNoneMatch,
    /// Ignores `If-Match`.
    IgnoresIfMatch,
    /// Checks whether a key is free, and writes it some time later.
    LooksThenWrites,
    /// Reports that a write was refused, but executes it.
    RefusesAndWrites,
    /// Does not list new objects.
    ListsLate,
    /// Keeps old versions of its objects, without delete markers.
    KeepsVersions,
}

/// The fault of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request gets this answer, and is not executed.
    Refuse(u16, &'static str),
    /// The request is executed, and gets this answer.
    DoneBut(u16, &'static str),
    /// The connection closes before the request is executed.
    HangUp,
    /// The request is executed, and the connection closes before the answer.
    LoseReply,
}

/// A request, as passed to a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Number of requests before it.
    pub(crate) number: u64,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) is_conditional: bool,
}

type Plan = Box<dyn FnMut(&Asked) -> Option<Fault> + Send>;

/// Whether a request is the one to delay.
type IsMeant = fn(&Asked) -> bool;

#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) bytes: Bytes,
    etag: u64,
    modified_ms: i64,
}

struct Inner {
    objects: Mutex<BTreeMap<String, Stored>>,
    /// Versions that are not the newest of their key, with [`Habit::KeepsVersions`].
    old: Mutex<Vec<(String, Stored)>>,
    habit: Habit,
    /// Number of requests that have checked each key before writing it, for [`Habit::LooksThenWrites`].
    looked: Mutex<BTreeMap<String, u32>>,
    tags: AtomicU64,
    /// Error of its clock in milliseconds.
    ahead_ms: AtomicI64,
    requests: AtomicU64,
    sent_bytes: AtomicU64,
    asked: Mutex<Vec<Asked>>,
    plan: Mutex<Option<Plan>>,
    clock: SystemClock,
    gate: Mutex<Option<(IsMeant, Gate)>>,
}

/// Delays one request after its arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    arrived: Arc<Notify>,
    opened: Arc<Notify>,
}

impl Gate {
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(crate) fn open(&self) {
        self.opened.notify_one();
    }
}

/// A running server with one bucket, `runs`. It ends with its last clone, or with the Tokio runtime on which it was started.
#[derive(Clone)]
pub(crate) struct Memory {
    inner: Arc<Inner>,
    address: SocketAddr,
}

pub(crate) const BUCKET: &str = "runs";

impl Memory {
    pub(crate) async fn start() -> Self {
        Self::start_as(Habit::Sound).await
    }

    pub(crate) async fn start_as(habit: Habit) -> Self {
        let inner = Arc::new(Inner {
            objects: Mutex::default(),
            old: Mutex::default(),
            habit,
            looked: Mutex::default(),
            tags: AtomicU64::new(1),
            ahead_ms: AtomicI64::new(0),
            requests: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            asked: Mutex::default(),
            plan: Mutex::default(),
            clock: SystemClock::new(),
            gate: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut builder = S3ServiceBuilder::new(Objects(Arc::clone(&inner)));
        builder.set_auth(s3s::auth::SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let mut config = S3Config::default();
        // The test's clock affects answers and dates. Signatures use the machine's clock.
        config.presigned_url_max_skew_time_secs = u32::MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        let front = Front { s3: builder.build(), inner: Arc::clone(&inner) };
        spawn(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else { continue };
                // Otherwise a small answer would wait for 40 ms.
                socket.set_nodelay(true).unwrap();
                let front = front.clone();
                spawn(async move {
                    let http = Builder::new(TokioExecutor::new());
                    // A connection that a fault closes is no error here.
                    let _ended = http.serve_connection(TokioIo::new(socket), front).await;
                });
            }
        });
        Self { inner, address }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the faults of later requests.
    pub(crate) fn plan(&self, plan: impl FnMut(&Asked) -> Option<Fault> + Send + 'static) {
        *self.inner.plan.lock().unwrap() = Some(Box::new(plan));
    }

    /// Delays the next conditional write.
    pub(crate) fn hold(&self) -> Gate {
        self.hold_next(|asked| asked.is_conditional)
    }

    /// Delays the next request of this kind.
    pub(crate) fn hold_next(&self, is_meant: IsMeant) -> Gate {
        let gate = Gate::default();
        *self.inner.gate.lock().unwrap() = Some((is_meant, gate.clone()));
        gate
    }

    pub(crate) fn no_plan(&self) {
        *self.inner.plan.lock().unwrap() = None;
    }

    /// Number of requests.
    pub(crate) fn requests(&self) -> u64 {
        self.inner.requests.load(Ordering::SeqCst)
    }

    /// Returns the requests since the last call.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.inner.asked.lock().unwrap())
    }

    /// Number of written bytes of bodies.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.inner.sent_bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.inner.ahead_ms.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        self.inner.objects.lock().unwrap()
    }

    pub(crate) fn keys(&self, begin: &str) -> Vec<String> {
        self.objects().keys().filter(|key| key.starts_with(begin)).cloned().collect()
    }

    /// Writes an object directly.
    pub(crate) fn set(&self, key: &str, bytes: impl Into<Bytes>) {
        let stored = self.inner.stored(bytes.into());
        self.objects().insert(key.to_owned(), stored);
    }
}

#[expect(clippy::disallowed_methods, reason = "the server's tasks end with the runtime of the test")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

impl Inner {
    fn now_ms(&self) -> i64 {
        self.clock.now().unix_ms() + self.ahead_ms.load(Ordering::SeqCst)
    }

    fn stored(&self, bytes: Bytes) -> Stored {
        let etag = self.tags.fetch_add(1, Ordering::SeqCst);
        Stored { bytes, etag, modified_ms: self.now_ms() / 1_000 * 1_000 }
    }
}

fn date(ms: i64) -> Timestamp {
    Timestamp::from(UNIX_EPOCH + Duration::from_millis(ms as u64))
}

fn tag(etag: u64) -> ETag {
    ETag::Strong(format!("{etag:032x}"))
}

/// The layer before the S3 service, which counts, injects faults, and sets the time.
#[derive(Clone)]
struct Front {
    s3: S3Service,
    inner: Arc<Inner>,
}

/// The connection must close.
#[derive(Debug)]
struct End;

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the test wants it so")
    }
}

impl std::error::Error for End {}

impl Service<Request<Incoming>> for Front {
    type Response = Response<Body>;
    type Error = End;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, End>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let front = self.clone();
        Box::pin(async move {
            let inner = &front.inner;
            let number = inner.requests.fetch_add(1, Ordering::SeqCst);
            let headers = request.headers();
            let asked = Asked {
                number,
                method: request.method().to_string(),
                path: request.uri().to_string(),
                is_conditional: headers.contains_key("if-none-match") || headers.contains_key("if-match"),
            };
            inner.asked.lock().unwrap().push(asked.clone());
            let fault = inner.plan.lock().unwrap().as_mut().and_then(|plan| plan(&asked));
            let gate = inner.gate.lock().unwrap().take_if(|(is_meant, _)| is_meant(&asked));
            if let Some((_, gate)) = gate {
                gate.arrived.notify_one();
                gate.opened.notified().await;
            }
            if fault == Some(Fault::HangUp) {
                return Err(End);
            }
            let mut response = if let Some(Fault::Refuse(status, code)) = fault {
                refusal(status, code)
            } else {
                let response = Service::call(&front.s3, request).await.map_err(|_| End)?;
                match fault {
                    Some(Fault::LoseReply) => return Err(End),
                    Some(Fault::DoneBut(status, code)) => refusal(status, code),
                    _ => response,
                }
            };
            let mut text = Vec::new();
            date(inner.now_ms()).format(TimestampFormat::HttpDate, &mut text).unwrap();
            response.headers_mut().insert("date", text.as_slice().try_into().unwrap());
            Ok(response)
        })
    }
}

fn refusal(status: u16, code: &str) -> Response<Body> {
    let xml =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{SECRET_KEY}</Message></Error>");
    let response = Response::builder().status(status).header("content-type", "application/xml");
    response.body(Body::from(xml)).unwrap()
}

struct Objects(Arc<Inner>);

impl Objects {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        self.0.objects.lock().unwrap()
    }

    /// Keeps the previous version of a key.
    fn keep(&self, key: String, before: Option<Stored>) {
        if self.0.habit == Habit::KeepsVersions {
            self.0.old.lock().unwrap().extend(before.map(|before| (key, before)));
        }
    }
}

async fn collect(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    use futures_util::TryStreamExt as _;
    let Some(body) = body else { return Ok(Bytes::new()) };
    let parts: Vec<Bytes> =
        body.try_collect().await.map_err(|_| s3_error!(IncompleteBody, "the body broke off"))?;
    Ok(parts.concat().into())
}

fn check_bucket(bucket: &str) -> S3Result<()> {
    if bucket == BUCKET { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
}

#[async_trait::async_trait]
impl S3 for Objects {
    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let PutObjectInput { bucket, key, body, if_none_match, if_match, .. } = req.input;
        check_bucket(&bucket)?;
        let bytes = collect(body).await?;
        self.0.sent_bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        let stored = self.0.stored(bytes);
        let habit = self.0.habit;
        let lost = || s3_error!(PreconditionFailed, "the condition does not hold");
        if if_none_match.is_some() && habit == Habit::LooksThenWrites {
            if self.objects().contains_key(&key) {
                return Err(lost());
            }
            // Wait until another request has checked the key, too, if one is in flight.
            let looked = || *self.0.looked.lock().unwrap().get(&key).unwrap_or(&0);
            *self.0.looked.lock().unwrap().entry(key.clone()).or_insert(0) += 1;
            let end = self.0.clock.monotonic() + Duration::from_secs(1);
            while looked() < 2 && self.0.clock.monotonic() < end {
                self.0.clock.sleep(Duration::from_millis(1)).await;
            }
            self.objects().insert(key, stored);
            return Ok(S3Response::new(PutObjectOutput::default()));
        }
        let mut objects = self.objects();
        let found = objects.get(&key);
        if if_none_match.is_some() && habit != Habit::IgnoresIfNoneMatch && found.is_some() {
            if habit == Habit::RefusesAndWrites {
                objects.insert(key, stored);
            }
            return Err(lost());
        }
        if let Some(ETagCondition::ETag(wanted)) = if_match
            && habit != Habit::IgnoresIfMatch
        {
            match found {
                None => return Err(s3_error!(NoSuchKey)),
                Some(found) if tag(found.etag) != wanted => return Err(lost()),
                Some(_) => {}
            }
        }
        let e_tag = Some(tag(stored.etag));
        let version_id = (habit == Habit::KeepsVersions).then(|| stored.etag.to_string());
        let before = objects.insert(key.clone(), stored);
        self.keep(key, before);
        Ok(S3Response::new(PutObjectOutput { e_tag, version_id, ..Default::default() }))
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let GetObjectInput { bucket, key, range, .. } = req.input;
        check_bucket(&bucket)?;
        let found = self.objects().get(&key).cloned().ok_or_else(|| s3_error!(NoSuchKey))?;
        let len = found.bytes.len() as u64;
        let mut content_range = None;
        let bytes = match range {
            None => found.bytes,
            Some(range) => {
                let range = range.check(len).map_err(|_| s3_error!(InvalidRange))?;
                content_range = Some(format!("bytes {}-{}/{len}", range.start, range.end - 1));
                let place = |at: u64| usize::try_from(at).unwrap();
                found.bytes.slice(place(range.start)..place(range.end))
            }
        };
        let output = GetObjectOutput {
            content_length: Some(bytes.len() as i64),
            content_range,
            e_tag: Some(tag(found.etag)),
            last_modified: Some(date(found.modified_ms)),
            body: Some(StreamingBlob::wrap(futures_util::stream::once(async { Ok::<_, Infallible>(bytes) }))),
            ..Default::default()
        };
        Ok(S3Response::new(output))
    }

    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let ListObjectsV2Input { bucket, prefix, start_after, max_keys, .. } = req.input;
        check_bucket(&bucket)?;
        let (prefix, after) = (prefix.unwrap_or_default(), start_after.unwrap_or_default());
        let most = usize::try_from(max_keys.unwrap_or(1_000)).unwrap();
        let now = self.0.now_ms();
        let objects = self.objects();
        let mut contents: Vec<Object> = objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix) && **key > after)
            .filter(|(_, stored)| self.0.habit != Habit::ListsLate || stored.modified_ms < now - 60_000)
            .take(most + 1)
            .map(|(key, stored)| Object {
                key: Some(key.clone()),
                size: Some(stored.bytes.len() as i64),
                e_tag: Some(tag(stored.etag)),
                last_modified: Some(date(stored.modified_ms)),
                ..Default::default()
            })
            .collect();
        let is_truncated = Some(contents.len() > most);
        contents.truncate(most);
        let output = ListObjectsV2Output { contents: Some(contents), is_truncated, ..Default::default() };
        Ok(S3Response::new(output))
    }

    async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        check_bucket(&req.input.bucket)?;
        let before = self.objects().remove(&req.input.key);
        self.keep(req.input.key, before);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        check_bucket(&req.input.bucket)?;
        let mut objects = self.objects();
        for ObjectIdentifier { key, version_id, .. } in req.input.delete.objects {
            let Some(id) = version_id else {
                let before = objects.remove(&key);
                self.keep(key, before);
                continue;
            };
            let is_meant = |stored: &Stored| stored.etag.to_string() == id;
            if objects.get(&key).is_some_and(is_meant) {
                objects.remove(&key);
            }
            self.0.old.lock().unwrap().retain(|(of, stored)| *of != key || !is_meant(stored));
        }
        Ok(S3Response::new(DeleteObjectsOutput::default()))
    }

    async fn list_object_versions(
        &self,
        req: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        check_bucket(&req.input.bucket)?;
        let prefix = req.input.prefix.unwrap_or_default();
        let (objects, old) = (self.objects(), self.0.old.lock().unwrap());
        let newest = objects.iter().map(|(key, stored)| (key, stored, true));
        let versions = newest
            .chain(old.iter().map(|(key, stored)| (key, stored, false)))
            .filter(|(key, ..)| key.starts_with(&prefix))
            .map(|(key, stored, is_latest)| ObjectVersion {
                key: Some(key.clone()),
                version_id: Some(stored.etag.to_string()),
                is_latest: Some(is_latest),
                ..Default::default()
            })
            .collect();
        Ok(S3Response::new(ListObjectVersionsOutput { versions: Some(versions), ..Default::default() }))
    }
}
