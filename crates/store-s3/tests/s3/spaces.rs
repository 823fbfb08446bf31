//! Places for tests: a prefix of its own on a server, and what may be done to it behind the store's back.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use ferrata_core::RunKey;
use ferrata_core::store::CheckpointStore;
use ferrata_store_conformance::{Damage, Space, StoreFactory};
use ferrata_store_s3::{S3Options, S3Store};

use crate::memory::{ACCESS_KEY, BUCKET, Memory, SECRET_KEY};

/// Makes a client of the one user.
pub(crate) fn client(endpoint: &str, secret: &str) -> Client {
    let http = aws_smithy_http_client::Builder::new().build_http();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(Credentials::new(ACCESS_KEY, secret, None, None, "test"))
        .region(Region::from_static("us-east-1"))
        .endpoint_url(endpoint)
        .force_path_style(true)
        .http_client(http);
    Client::from_conf(config.build())
}

/// Opens a store on the server in this process.
pub(crate) fn store(memory: &Memory, prefix: &str) -> S3Store {
    let client = client(&memory.endpoint(), SECRET_KEY);
    S3Store::with_client(client, BUCKET, prefix, S3Options::default()).unwrap()
}

/// A server in this process for each test.
pub(crate) struct InProcess;

struct MemorySpace(Memory);

#[async_trait]
impl StoreFactory for InProcess {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(MemorySpace(Memory::start().await))
    }
}

#[async_trait]
impl Space for MemorySpace {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(store(&self.0, "some/prefix"))
    }

    async fn damage(&self, _run: &RunKey, _damage: Damage) -> bool {
        false
    }
}
