//! The bucket of a test space for large values, over plain HTTP to a local server. The client of `object_store` would turn TLS on or off for all
//! programs that are built with these tests.

#![expect(clippy::unwrap_used, reason = "a test without its bucket has failed")]

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use ferrata::blobs::Blobs;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::aws::AmazonS3Builder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::prefix::PrefixStore;

/// Opens a store for large values below a prefix of a bucket.
pub(crate) fn open(server: &str, bucket: &str, prefix: &str, (id, secret): (String, String)) -> Blobs {
    let bucket = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_endpoint(server)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id(id)
        .with_secret_access_key(secret)
        .with_http_connector(Plain)
        .build();
    Blobs::new(Arc::new(PrefixStore::new(bucket.unwrap(), prefix)))
}

#[derive(Debug)]
struct Plain;

impl HttpConnector for Plain {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Caller(Client::builder(TokioExecutor::new()).build(Tcp::new()))))
    }
}

struct Caller(Client<Tcp, HttpRequestBody>);

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

#[async_trait]
impl HttpService for Caller {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.0.request(request).await;
        let answer = answer.map_err(|error| HttpError::new(HttpErrorKind::Connect, error))?;
        Ok(answer.map(|body| HttpResponseBody::new(Answer(body))))
    }
}

/// The body of a response, with the error type that the caller expects.
struct Answer(Incoming);

impl Body for Answer {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = Pin::new(&mut self.0).poll_frame(cx);
        frame.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))
    }
}
