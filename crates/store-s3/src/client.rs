//! Creates clients of the SDK: with credentials from its provider chain, TLS from rustls, and two retry policies.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{ResponseChecksumValidation, SharedHttpClient};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextRef;
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

use crate::config::S3Options;
use crate::time::DateInterceptor;

/// The maximum number of attempts of a request that is safe to repeat.
///
/// The SDK waits up to one second after the first attempt, and up to two after the second. A caller that wants to wait longer must retry: the
/// runtime retries whole calls.
const TRIES: u32 = 3;

/// The timeout for a connection attempt. A server that can be reached answers in much less time, even from another continent.
const CONNECT: Duration = Duration::from_secs(5);

/// The same client with two retry policies.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// Retries requests that are safe to repeat.
    pub(crate) patient: Client,
    /// Sends each request once. If the SDK repeated a conditional write after a lost reply, the repeat would fail because the first request had
    /// succeeded, and the caller would not know. So the store itself repeats such a write, after a read.
    pub(crate) once: Client,
}

impl Clients {
    /// Wraps a client. Replaces only its retries and timeouts.
    pub(crate) fn of(client: &Client, options: &S3Options) -> Self {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT)
            .operation_attempt_timeout(options.request_timeout)
            .build();
        let config = client
            .config()
            .to_builder()
            .timeout_config(timeouts)
            // Every record has its own checksum, and servers differ in the checksum that they send with a part of an object.
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .interceptor(SignedRequests)
            .interceptor(DateInterceptor);
        let patient = config.clone().retry_config(RetryConfig::standard().with_max_attempts(TRIES));
        let once = config.retry_config(RetryConfig::disabled());
        Self { patient: Client::from_conf(patient.build()), once: Client::from_conf(once.build()) }
    }

    /// Creates a client from the environment: `AWS_*` variables, profiles, web identities, and the roles of containers and machines.
    pub(crate) async fn from_environment(options: &S3Options) -> Self {
        let http = http_client();
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
        if let Some(region) = &options.region {
            loader = loader.region(Region::new(region.clone()));
        }
        let shared = loader.load().await;
        let mut config = aws_sdk_s3::config::Builder::from(&shared).force_path_style(options.path_style);
        if let Some(endpoint) = &options.endpoint {
            config = config.endpoint_url(endpoint);
            if shared.region().is_none() {
                // Servers outside of AWS have no regions, but a signature needs one.
                config = config.region(Region::from_static("us-east-1"));
            }
        }
        Self::of(&Client::from_conf(config.build()), options)
    }
}

/// Refuses unsigned requests. A bucket that anyone may write to would accept them, and the problem of missing credentials would appear late and
/// elsewhere.
#[derive(Debug)]
struct SignedRequests;

/// The error for a request that is not signed.
#[derive(Debug, thiserror::Error)]
#[error("the request is not signed")]
pub(crate) struct Unsigned;

#[dyn_dispatch_hint]
impl Intercept for SignedRequests {
    fn name(&self) -> &'static str {
        "Signed"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if context.request().headers().contains_key("authorization") { Ok(()) } else { Err(Unsigned.into()) }
    }
}

/// Creates an HTTP client with the TLS implementation of this library.
fn http_client() -> SharedHttpClient {
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}
