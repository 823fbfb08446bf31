//! The store's interface to the server. It has six requests with distinct outcomes, and returns the server's time with every answer.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aws_sdk_s3::Client;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::bounded_join::Task;
use crate::client::{Clients, Unsigned};
use crate::codes::RefusalKind;
use crate::config::S3Options;
use crate::error::{S3Operation, S3StoreError};
use crate::time::{millis, timed};

/// The maximum number of keys in one delete request.
pub(crate) const MOST_DELETED: usize = 1_000;

pub(crate) use crate::time::ServerTime;

/// An answer, and the time of the server's clock at that moment; `None` if the server did not return it.
#[derive(Clone, Debug)]
pub(crate) struct TimedAnswer<T> {
    pub(crate) value: T,
    pub(crate) at: Option<ServerTime>,
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedObject {
    pub(crate) key: String,
    pub(crate) size: u64,
    pub(crate) etag: String,
    pub(crate) modified: ServerTime,
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub(crate) struct BucketPage {
    pub(crate) items: Vec<ListedObject>,
    /// Whether more objects follow after the last.
    pub(crate) more: bool,
}

/// An object, or the beginning of an object.
#[derive(Clone, Debug)]
pub(crate) struct StoredObject {
    pub(crate) bytes: Bytes,
    pub(crate) etag: String,
    pub(crate) modified: ServerTime,
}

/// The result of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PutResult {
    /// The object was written, and has this tag.
    Done(String),
    /// The condition failed: the key is taken, or the object has changed.
    Lost,
    /// The server did not decide about the condition.
    Undecided,
}

/// A version of an object, in a bucket that keeps versions.
#[derive(Clone, Debug)]
pub(crate) struct ObjectVersion {
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) is_latest: bool,
    /// Whether the version is a delete marker.
    pub(crate) is_marker: bool,
}

/// A bucket on a server.
///
/// Its requests are boxed. The SDK's futures take about ten kilobytes each, and would make every caller's future as large.
pub(crate) struct Bucket {
    name: String,
    options: S3Options,
    given: Option<Client>,
    clients: OnceCell<Clients>,
    requests: AtomicU64,
    keeps_versions: AtomicBool,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Bucket {
    pub(crate) fn new(name: String, options: S3Options, given: Option<Client>) -> Self {
        Self {
            name,
            options,
            given,
            clients: OnceCell::new(),
            requests: AtomicU64::new(0),
            keeps_versions: AtomicBool::new(false),
        }
    }

    /// Returns the number of requests to the server, without the SDK's retries.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Creates the clients at the first use, because the SDK may ask a server for credentials.
    async fn clients(&self) -> &Clients {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.clients
            .get_or_init(|| async {
                match &self.given {
                    Some(client) => Clients::of(client, &self.options),
                    None => Clients::from_environment(&self.options).await,
                }
            })
            .await
    }

    /// Lists up to `most` objects with this key prefix that come after `after`, in byte order.
    pub(crate) fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        most: usize,
    ) -> Task<'a, Result<TimedAnswer<BucketPage>, S3StoreError>> {
        Box::pin(async move {
            let most = i32::try_from(most.clamp(1, 1_000)).unwrap_or(1_000);
            let request = self.clients().await.patient.list_objects_v2().bucket(&self.name).prefix(prefix);
            let request = request.max_keys(most).set_start_after(after.map(str::to_owned));
            let (answer, at) = timed(Box::pin(request.send())).await;
            let answer = answer.map_err(|error| fault(S3Operation::List, prefix, &error))?;
            let mut items = Vec::with_capacity(answer.contents().len());
            for object in answer.contents() {
                items.push(ListedObject {
                    key: object.key().unwrap_or_default().to_owned(),
                    size: object.size().and_then(|size| u64::try_from(size).ok()).unwrap_or_default(),
                    etag: object.e_tag().unwrap_or_default().to_owned(),
                    modified: object.last_modified().map_or(i64::MAX, millis),
                });
            }
            let more = answer.is_truncated().unwrap_or(false);
            Ok(TimedAnswer { value: BucketPage { items, more }, at })
        })
    }

    /// Reads an object, or its first bytes. Returns `None` if the object does not exist.
    pub(crate) fn get<'a>(
        &'a self,
        key: &'a str,
        first: Option<usize>,
    ) -> Task<'a, Result<Option<TimedAnswer<StoredObject>>, S3StoreError>> {
        Box::pin(async move {
            let range = first.map(|first| format!("bytes=0-{}", first.saturating_sub(1)));
            let request =
                self.clients().await.patient.get_object().bucket(&self.name).key(key).set_range(range);
            let (answer, at) = timed(Box::pin(request.send())).await;
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    let fault = fault(S3Operation::Get, key, &error);
                    return match (fault.sort(), &fault) {
                        (RefusalKind::Absent, _) => Ok(None),
                        // The object is empty. This library never writes such an object, so let the caller report it.
                        (_, S3StoreError::Refused { code, .. }) if code == "InvalidRange" => {
                            let object =
                                StoredObject { bytes: Bytes::new(), etag: String::new(), modified: 0 };
                            Ok(Some(TimedAnswer { value: object, at }))
                        }
                        _ => Err(fault),
                    };
                }
            };
            let etag = answer.e_tag().unwrap_or_default().to_owned();
            let modified = answer.last_modified().map_or(i64::MAX, millis);
            let bytes = answer.body.collect().await.map_err(|_| S3StoreError::Unreached {
                doing: S3Operation::Get,
                key: key.to_owned(),
                what: "the answer ended early".into(),
                was_sent: true,
            })?;
            Ok(Some(TimedAnswer { value: StoredObject { bytes: bytes.into_bytes(), etag, modified }, at }))
        })
    }

    /// Writes an object if its key is free. The request is sent once.
    pub(crate) fn put_new<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
    ) -> Task<'a, Result<TimedAnswer<PutResult>, S3StoreError>> {
        Box::pin(async move {
            let request = self.clients().await.once.put_object().bucket(&self.name).key(key);
            let request = request.if_none_match("*").body(ByteStream::from(bytes));
            let (answer, at) = timed(Box::pin(request.send())).await;
            match answer {
                Ok(answer) => {
                    self.note_version(answer.version_id());
                    Ok(TimedAnswer {
                        value: PutResult::Done(answer.e_tag().unwrap_or_default().to_owned()),
                        at,
                    })
                }
                Err(error) => split_condition(fault(S3Operation::Put, key, &error))
                    .map(|value| TimedAnswer { value, at }),
            }
        })
    }

    /// Replaces an object that has this tag. The request is sent once.
    pub(crate) fn put_over<'a>(
        &'a self,
        key: &'a str,
        etag: &'a str,
        bytes: Bytes,
    ) -> Task<'a, Result<PutResult, S3StoreError>> {
        Box::pin(async move {
            let request = self.clients().await.once.put_object().bucket(&self.name).key(key);
            match request.if_match(etag).body(ByteStream::from(bytes)).send().await {
                Ok(answer) => {
                    self.note_version(answer.version_id());
                    Ok(PutResult::Done(answer.e_tag().unwrap_or_default().to_owned()))
                }
                Err(error) => match fault(S3Operation::Put, key, &error) {
                    // The object existed, and another caller removed it.
                    gone if gone.sort() == RefusalKind::Absent => Ok(PutResult::Lost),
                    other => split_condition(other),
                },
            }
        })
    }

    /// Writes an object unconditionally.
    pub(crate) fn put<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
    ) -> Task<'a, Result<TimedAnswer<()>, S3StoreError>> {
        Box::pin(async move {
            let request = self.clients().await.patient.put_object().bucket(&self.name).key(key);
            let (answer, at) = timed(Box::pin(request.body(ByteStream::from(bytes)).send())).await;
            let answer = answer.map_err(|error| fault(S3Operation::Put, key, &error))?;
            self.note_version(answer.version_id());
            Ok(TimedAnswer { value: (), at })
        })
    }

    /// Deletes one object. Returns `Ok` if it does not exist.
    pub(crate) fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), S3StoreError>> {
        Box::pin(async move {
            let request = self.clients().await.patient.delete_object().bucket(&self.name).key(key);
            match request.send().await.map_err(|error| fault(S3Operation::Delete, key, &error)) {
                Err(fault) if fault.sort() == RefusalKind::Absent => Ok(()),
                done => done.map(drop),
            }
        })
    }

    /// Deletes objects, or versions of objects, a thousand per request.
    pub(crate) fn delete_all<'a>(
        &'a self,
        keys: &'a [(String, Option<String>)],
    ) -> Task<'a, Result<(), S3StoreError>> {
        Box::pin(async move {
            for keys in keys.chunks(MOST_DELETED) {
                let made = |error: aws_sdk_s3::error::BuildError| S3StoreError::Unmakeable {
                    what: error.to_string(),
                };
                let mut delete = Delete::builder().quiet(true);
                for (key, version) in keys {
                    let object = ObjectIdentifier::builder().key(key).set_version_id(version.clone()).build();
                    delete = delete.objects(object.map_err(made)?);
                }
                let what = keys.first().map(|(key, _)| key.as_str()).unwrap_or_default();
                let request = self.clients().await.patient.delete_objects().bucket(&self.name);
                let answer = request.delete(delete.build().map_err(made)?).send().await;
                let answer = answer.map_err(|error| fault(S3Operation::Delete, what, &error))?;
                if let Some(error) = answer.errors().first() {
                    let code = error.code().unwrap_or("InternalError").to_owned();
                    let key = error.key().unwrap_or(what).to_owned();
                    // Each key has its own outcome, with a code and no status.
                    return Err(S3StoreError::Refused { doing: S3Operation::Delete, key, status: 500, code });
                }
            }
            Ok(())
        })
    }

    /// Returns whether the bucket keeps old versions of its objects, judging by its answers to writes.
    pub(crate) fn keeps_versions(&self) -> bool {
        self.keeps_versions.load(Ordering::Relaxed)
    }

    fn note_version(&self, version: Option<&str>) {
        // The version may also be `null`, which means that the bucket kept versions in the past.
        if version.is_some() {
            self.keeps_versions.store(true, Ordering::Relaxed);
        }
    }

    /// Lists all versions of the objects with this key prefix, including delete markers.
    pub(crate) fn versions<'a>(
        &'a self,
        prefix: &'a str,
    ) -> Task<'a, Result<Vec<ObjectVersion>, S3StoreError>> {
        Box::pin(async move {
            let (mut all, mut key, mut id) = (Vec::new(), None, None);
            loop {
                let request = self.clients().await.patient.list_object_versions().bucket(&self.name);
                let request = request.prefix(prefix).set_key_marker(key).set_version_id_marker(id);
                let answer =
                    request.send().await.map_err(|error| fault(S3Operation::Versions, prefix, &error))?;
                let version =
                    |key: Option<&str>, id: Option<&str>, is_latest: Option<bool>, is_marker| ObjectVersion {
                        key: key.unwrap_or_default().to_owned(),
                        id: id.unwrap_or_default().to_owned(),
                        is_latest: is_latest.unwrap_or(false),
                        is_marker,
                    };
                let versions = answer.versions().iter();
                all.extend(versions.map(|v| version(v.key(), v.version_id(), v.is_latest(), false)));
                let markers = answer.delete_markers().iter();
                all.extend(markers.map(|v| version(v.key(), v.version_id(), v.is_latest(), true)));
                if !answer.is_truncated().unwrap_or(false) {
                    return Ok(all);
                }
                (key, id) = (
                    answer.next_key_marker().map(str::to_owned),
                    answer.next_version_id_marker().map(str::to_owned),
                );
            }
        })
    }
}

/// Distinguishes a write whose condition failed from a write that failed.
fn split_condition(fault: S3StoreError) -> Result<PutResult, S3StoreError> {
    match fault.sort() {
        RefusalKind::Lost => Ok(PutResult::Lost),
        RefusalKind::Undecided => Ok(PutResult::Undecided),
        _ => Err(fault),
    }
}

/// Converts an error of the SDK. Keeps only what may be shown: never a header, an address or a credential.
fn fault<E>(doing: S3Operation, key: &str, error: &SdkError<E, HttpResponse>) -> S3StoreError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let key = key.to_owned();
    match error {
        SdkError::ServiceError(context) => {
            let status = context.raw().status().as_u16();
            let code = context.err().code().unwrap_or_default().to_owned();
            S3StoreError::Refused { doing, key, status, code }
        }
        SdkError::ResponseError(context) => {
            let status = context.raw().status().as_u16();
            if status >= 300 {
                return S3StoreError::Refused { doing, key, status, code: String::new() };
            }
            S3StoreError::Nonsense { key, what: format!("status {status} with an unreadable body") }
        }
        SdkError::TimeoutError(_) => S3StoreError::Unreached {
            doing,
            key,
            what: "no answer before the timeout".into(),
            was_sent: true,
        },
        SdkError::DispatchFailure(failure) => {
            let source =
                failure.as_connector_error().map(|error| error as &(dyn std::error::Error + 'static));
            let causes: Vec<_> = std::iter::successors(source, |error| error.source()).collect();
            if let Some(what) = causes.iter().find_map(|cause| no_credentials(*cause)) {
                return S3StoreError::NoCredentials { what };
            }
            let io = causes.iter().find_map(|cause| cause.downcast_ref::<std::io::Error>());
            let was_sent = io.is_none_or(|io| io.kind() != std::io::ErrorKind::ConnectionRefused);
            let what = if failure.is_timeout() {
                "no answer before the timeout".to_owned()
            } else {
                io.map_or_else(|| "the connection was lost".to_owned(), |io| io.kind().to_string())
            };
            S3StoreError::Unreached { doing, key, what, was_sent }
        }
        SdkError::ConstructionFailure(_) => {
            let source = std::error::Error::source(error);
            let causes: Vec<_> = std::iter::successors(source, |error| error.source()).collect();
            match causes.iter().find_map(|cause| no_credentials(*cause)) {
                Some(what) => S3StoreError::NoCredentials { what },
                None => S3StoreError::Unmakeable {
                    what: causes.last().map_or_else(|| "no reason given".to_owned(), ToString::to_string),
                },
            }
        }
        _ => S3StoreError::Unreached { doing, key, what: "the SDK gave up".into(), was_sent: true },
    }
}

/// Returns the reason for missing credentials, if the error is about them. The text contains no credentials.
fn no_credentials(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    use aws_credential_types::provider::error::CredentialsError;
    if cause.is::<Unsigned>() {
        return Some("the client has no credentials provider".to_owned());
    }
    let what = match cause.downcast_ref::<CredentialsError>()? {
        CredentialsError::CredentialsNotLoaded(_) => "no provider of the chain has credentials",
        CredentialsError::ProviderTimedOut(_) => "the credentials provider timed out",
        CredentialsError::InvalidConfiguration(_) => "the credentials configuration is invalid",
        CredentialsError::ProviderError(_) => "the credentials provider failed",
        _ => "the credentials provider failed for an unknown reason",
    };
    Some(what.to_owned())
}
