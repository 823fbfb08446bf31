//! Spaces for tests: a separate prefix on a server, and direct changes of its objects.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use ferrata_store::{CheckpointStore, Clock, IdSource, RandomIds, RunKey, SystemClock};
use ferrata_store_conformance::{Damage, Space, StoreFactory};
use ferrata_store_s3::{S3Options, S3Store};
use ferrata_test_servers::{Service, service_url};

use crate::memory::{ACCESS_KEY, BUCKET, Memory, SECRET_KEY};
use crate::raw::Raw;

/// Creates a client of the only user of a server in this process.
pub(crate) fn client(endpoint: &str, secret: &str) -> Client {
    client_of(endpoint, ACCESS_KEY, secret)
}

/// Creates a client of the server in the variable, with the credentials of the environment. moto accepts any.
pub(crate) fn server_client() -> Client {
    let said = |variable| std::env::var(variable).unwrap_or_else(|_| "test".to_owned());
    client_of(&service_url(Service::S3), &said("AWS_ACCESS_KEY_ID"), &said("AWS_SECRET_ACCESS_KEY"))
}

fn client_of(endpoint: &str, id: &str, secret: &str) -> Client {
    let http = aws_smithy_http_client::Builder::new();
    // Each client would load the root certificates of the machine, which takes longer than most tests.
    let http = match endpoint.starts_with("https:") {
        true => http.tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https(),
        false => http.build_http(),
    };
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(Credentials::new(id, secret, None, None, "test"))
        .region(Region::from_static("us-east-1"))
        .endpoint_url(endpoint)
        .force_path_style(true)
        .http_client(http);
    Client::from_conf(config.build())
}

impl Raw {
    /// Opens a store, as a separate process would.
    pub(crate) fn store(&self) -> S3Store {
        let client = Client::from_conf(self.client.config().clone());
        let mut options = S3Options::default();
        if self.bucket != BUCKET {
            // A shared server is slow, and the suite runs setup about 300 times. One test there probes in full.
            options = options.with_probe_rounds(NonZeroUsize::MIN).with_probe_writers(NonZeroUsize::MIN);
        }
        S3Store::with_client(client, self.bucket, &self.prefix, options).unwrap()
    }

    /// A prefix on the server in this process.
    pub(crate) fn on(memory: &Memory) -> Self {
        let client = client(&memory.endpoint(), SECRET_KEY);
        Self { client, bucket: BUCKET, prefix: "some/prefix".into() }
    }

    /// A separate prefix on the server in the variable.
    pub(crate) async fn on_server() -> Self {
        let client = server_client();
        let bucket = "ferrata-tests";
        // The bucket exists, unless this test is the first.
        let _made = client.create_bucket().bucket(bucket).send().await;
        let prefix = RandomIds::new().next(SystemClock::new().now()).to_string();
        Self { client, bucket, prefix }
    }
}

/// A server in this process for each test.
pub(crate) struct InProcess;

#[async_trait]
impl StoreFactory for InProcess {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Raw::on(&Memory::start().await))
    }

    /// The random calls make about ten thousand requests, each of which is signed and checked in a debug build.
    fn deadline(&self) -> Duration {
        Duration::from_secs(1_800)
    }
}

/// A separate prefix on a shared server for each test.
pub(crate) struct OnServer;

#[async_trait]
impl StoreFactory for OnServer {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Raw::on_server().await)
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(1_800)
    }
}

#[async_trait]
impl Space for Raw {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(self.store())
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        Raw::damage(self, run, damage).await
    }

    /// Brief everywhere except on the server of `cargo xtask test --real-s3`, which needs credentials. In a debug build, each request takes
    /// milliseconds.
    fn is_brief(&self) -> bool {
        self.bucket == BUCKET || std::env::var_os("AWS_ACCESS_KEY_ID").is_none()
    }

    async fn remove(&self) {
        self.clear().await;
    }
}
