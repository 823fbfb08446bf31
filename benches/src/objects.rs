//! The objects below one prefix of a bucket, accessed only through the SDK.

use anyhow::{Context as _, Result};
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::error::DisplayErrorContext;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use aws_smithy_http_client::{Builder, tls::Provider, tls::rustls_provider::CryptoMode};

/// Maximum number of keys in a request to delete objects.
const MOST_DELETED: usize = 1_000;

/// A part of a bucket.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    client: aws_sdk_s3::Client,
    bucket: String,
    prefix: String,
    url: String,
}

impl Objects {
    /// Opens the objects below `name`, under the prefix in a store URL. Creates the bucket if it does not exist.
    pub(crate) async fn open(url: &str, name: &str) -> Result<Self> {
        let rest = url.strip_prefix("s3://").context("a URL of S3 begins with s3://")?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let prefix = format!("{prefix}/{name}").trim_start_matches('/').to_owned();
        let option = |wanted: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == wanted).map(|(_, value)| value.to_owned())
        };
        let said = |variable: &str| {
            std::env::var(variable).with_context(|| format!("measuring S3 needs the variable {variable}"))
        };
        let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let key = said("AWS_ACCESS_KEY_ID")?;
        let secret = said("AWS_SECRET_ACCESS_KEY")?;
        let mut config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(Credentials::new(key, secret, None, None, "bench"))
            .region(Region::new(option("region").unwrap_or_else(|| "us-east-1".to_owned())))
            .force_path_style(option("path_style").as_deref() == Some("true"))
            .http_client(http);
        if let Some(endpoint) = option("endpoint") {
            config = config.endpoint_url(endpoint);
        }
        let client = aws_sdk_s3::Client::from_conf(config.build());
        // An error means that the bucket exists already, except at the first workload.
        let _made = client.create_bucket().bucket(bucket).send().await;
        let url = format!("s3://{bucket}/{prefix}?{query}");
        Ok(Self { client, bucket: bucket.to_owned(), prefix, url })
    }

    /// Returns the URL of a store at this prefix.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Writes an object unless its key exists, as the store does.
    pub(crate) async fn put(&self, key: &str, body: Vec<u8>) -> Result<()> {
        let put = self.client.put_object().bucket(&self.bucket).key(format!("{}/{key}", self.prefix));
        let sent = put.if_none_match("*").body(ByteStream::from(body)).send().await;
        sent.map(drop)
            .map_err(|error| anyhow::anyhow!("cannot put an object: {}", DisplayErrorContext(error)))
    }

    /// Lists the keys with their sizes.
    pub(crate) async fn list(&self) -> Result<Vec<(String, u64)>> {
        let (mut all, mut next) = (Vec::new(), None);
        loop {
            let list = self.client.list_objects_v2().bucket(&self.bucket).prefix(format!("{}/", self.prefix));
            let listed = list.set_continuation_token(next).send().await?;
            for object in listed.contents() {
                let key = object.key().context("an object has a key")?;
                all.push((key.to_owned(), object.size().unwrap_or_default().unsigned_abs()));
            }
            next = listed.next_continuation_token().map(str::to_owned);
            if next.is_none() {
                return Ok(all);
            }
        }
    }

    /// Returns the total size of the objects in bytes.
    pub(crate) async fn bytes(&self) -> Result<u64> {
        Ok(self.list().await?.into_iter().map(|(_, size)| size).sum())
    }

    /// Removes all objects.
    pub(crate) async fn remove(&self) -> Result<()> {
        let keys: Vec<String> = self.list().await?.into_iter().map(|(key, _)| key).collect();
        for keys in keys.chunks(MOST_DELETED) {
            let mut delete = Delete::builder().quiet(true);
            for key in keys {
                delete = delete.objects(ObjectIdentifier::builder().key(key).build()?);
            }
            self.client.delete_objects().bucket(&self.bucket).delete(delete.build()?).send().await?;
        }
        Ok(())
    }
}
