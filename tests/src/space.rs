//! A separate space per test: a folder, a schema, or a prefix on the server from the environment.
#![expect(clippy::unwrap_used, reason = "a test that cannot make or remove its space has failed")]

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_http_client::{Builder, tls::Provider, tls::rustls_provider::CryptoMode};
use ferrata::blobs::Blobs;
use ferrata::{PostgresOptions, PostgresStore, S3Options, S3Store};
use ferrata_core::store::CheckpointStore;
use ferrata_core::{Clock, IdSource, RandomIds, RunKey, SystemClock};
use ferrata_test_servers::{Proxy, Service, service_url};
use futures_util::FutureExt as _;
use object_store::prefix::PrefixStore;
use redis::aio::MultiplexedConnection;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

use crate::{bucket, streams};

/// The bucket in which every test has its own prefix.
pub(crate) const BUCKET: &str = "ferrata-tests";

/// The kinds of store in which a test can have a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// A folder with files.
    Files,
    /// A SQLite database.
    Sqlite,
    /// A server.
    Server(Service),
}

impl From<Option<Service>> for StoreKind {
    fn from(service: Option<Service>) -> Self {
        service.map_or(Self::Files, Self::Server)
    }
}

/// A store that is initially empty and belongs to one test.
#[derive(Debug)]
pub struct Space {
    folder: TempDir,
    place: Place,
    url: String,
    server: String,
}

#[derive(Debug)]
pub(crate) enum Place {
    Folder,
    Schema { server: String, name: String },
    Streams { server: String, namespace: String },
    Keys { server: String, prefix: String },
    Objects { client: aws_sdk_s3::Client, prefix: String },
}

impl Space {
    /// Runs a test in a space of a kind of store. Removes the space afterwards, even if the test fails.
    ///
    /// # Panics
    ///
    /// If the test panics, the variable of the server is not set, or the space cannot be created or removed.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a space on a server remains.
    pub async fn within(kind: impl Into<StoreKind>, test: impl AsyncFnOnce(&Self)) {
        let kind = kind.into();
        let server = match kind {
            StoreKind::Server(service) => service_url(service),
            StoreKind::Files | StoreKind::Sqlite => String::new(),
        };
        Self::within_server(kind, server, test).await;
    }

    /// Like [`within`](Self::within), on the server with this URL instead of the shared one.
    ///
    /// # Panics
    ///
    /// If the test panics, or the space cannot be created or removed.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a space on a server remains.
    pub async fn within_server(kind: impl Into<StoreKind>, server: String, test: impl AsyncFnOnce(&Self)) {
        let space = Self::make(kind.into(), server).await;
        let ended = AssertUnwindSafe(test(&space)).catch_unwind().await;
        space.remove().await;
        if let Err(panic) = ended {
            resume_unwind(panic);
        }
    }

    /// Like [`within`](Self::within), on three folders as shards of one store.
    ///
    /// # Panics
    ///
    /// If the test panics.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn within_shards(test: impl AsyncFnOnce(&Self)) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet");
        let shards = "shard north file:north\nshard south file:south\nshard east file:east\n";
        std::fs::write(&file, format!("{shards}generation north\ngeneration north south east\n")).unwrap();
        let url = format!("sharded:{}", file.display());
        test(&Self { folder, place: Place::Folder, url, server: String::new() }).await;
    }

    async fn make(kind: StoreKind, server: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let id = RandomIds::new().next(SystemClock::new().now()).simple().to_string();
        let kept = server.clone();
        let and = if server.contains('?') { '&' } else { '?' };
        let (place, url) = match kind {
            StoreKind::Files => (Place::Folder, format!("file:{}", folder.path().join("store").display())),
            StoreKind::Sqlite => {
                (Place::Folder, format!("sqlite:{}", folder.path().join("runs.db").display()))
            }
            StoreKind::Server(Service::Postgres) => {
                // The longest name that the store accepts.
                let name = format!("t_{}", &id[..30]);
                let url = format!("{server}{and}schema={name}&connections=4");
                (Place::Schema { server, name }, url)
            }
            StoreKind::Server(Service::Nats) => {
                // The longest name that the store accepts.
                let namespace = format!("t_{}", &id[..30]);
                let url = format!("{server}{and}namespace={namespace}");
                (Place::Streams { server, namespace }, url)
            }
            StoreKind::Server(service @ (Service::Redis | Service::RedisCluster)) => {
                let prefix = format!("test-{id}");
                let node = server.replacen("redis-cluster://", "redis://", 1);
                let scheme = if service == Service::Redis { "redis://" } else { "redis-cluster://" };
                let url = format!("{}{and}prefix={prefix}", node.replacen("redis://", scheme, 1));
                (Place::Keys { server: node, prefix }, url)
            }
            StoreKind::Server(Service::S3) => {
                let client = client(&server);
                // The bucket exists, unless this test is the first.
                let _made = client.create_bucket().bucket(BUCKET).send().await;
                let url = format!("s3://{BUCKET}/{id}?endpoint={server}&path_style=true&region=us-east-1");
                (Place::Objects { client, prefix: id }, url)
            }
            StoreKind::Server(other) => panic!("a test cannot create a space on {other:?}"),
        };
        Self { folder, place, url, server: kept }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the URL of the store, as for `--store`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the test's own folder, which is on this machine for every store.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Returns the address of the server, for a proxy in front of it. Returns none without a server, or with several.
    #[must_use]
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        let (_, rest) = self.server.split_once("://")?;
        let authority = rest.split(['/', '?']).next()?;
        authority.rsplit('@').next()?.parse().ok()
    }

    /// Returns the environment variables that a program needs next to the URL.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        match self.place {
            Place::Objects { .. } => {
                let (id, secret) = credentials();
                vec![("AWS_ACCESS_KEY_ID", id), ("AWS_SECRET_ACCESS_KEY", secret)]
            }
            _ => Vec::new(),
        }
    }

    /// Opens the store in this process, to read the records of other processes.
    ///
    /// # Panics
    ///
    /// If the URL is rejected.
    #[must_use]
    pub fn open(&self) -> Arc<dyn CheckpointStore> {
        match &self.place {
            // A process cannot set its own environment, which would contain the credentials for the URL.
            Place::Objects { client, prefix } => {
                let store = S3Store::with_client(client.clone(), BUCKET, prefix, S3Options::default());
                Arc::new(store.unwrap())
            }
            _ => ferrata::connect(&self.url).unwrap(),
        }
    }

    /// Opens the store through a proxy in front of its server. `patience` is the time limit of each answer.
    ///
    /// # Panics
    ///
    /// If the URL is rejected.
    #[must_use]
    pub fn open_through(&self, proxy: &Proxy, patience: Duration) -> Arc<dyn CheckpointStore> {
        match &self.place {
            Place::Objects { prefix, .. } => {
                // The store's own checks of its server do not matter for such a test.
                let options = S3Options::default().with_request_timeout(patience);
                let options =
                    options.with_probe_rounds(NonZeroUsize::MIN).with_probe_writers(NonZeroUsize::MIN);
                let client = client(&proxy.url(&self.server));
                Arc::new(S3Store::with_client(client, BUCKET, prefix, options).unwrap())
            }
            _ => {
                let mut url =
                    format!("{}&response_timeout_ms={}", proxy.url(&self.url), patience.as_millis());
                if matches!(self.place, Place::Schema { .. }) {
                    url += &format!("&acquire_timeout_ms={}", 4 * patience.as_millis());
                }
                ferrata::connect(&url).unwrap()
            }
        }
    }

    /// Opens a store for large values in the bucket or the database of the space.
    ///
    /// # Panics
    ///
    /// If the space is on a server other than S3 or Postgres.
    #[must_use]
    pub fn bucket(&self, name: &str) -> Blobs {
        match &self.place {
            Place::Objects { prefix, .. } => {
                bucket::open(&self.server, BUCKET, &format!("{prefix}/{name}"), credentials())
            }
            Place::Schema { .. } => {
                let store = PostgresStore::from_url(&self.url, PostgresOptions::default()).unwrap();
                Blobs::new(Arc::new(PrefixStore::new(store.objects(), name)))
            }
            _ => panic!("{self:?} has no bucket"),
        }
    }

    /// Changes a byte in the body of a run's last record, without the store.
    ///
    /// # Panics
    ///
    /// If the run does not exist, or the space is a folder of files.
    pub async fn damage_last(&self, run: &RunKey) {
        match &self.place {
            Place::Folder if self.url.starts_with("sqlite:") => {
                let options = SqliteConnectOptions::new().filename(self.folder.path().join("runs.db"));
                let mut connection = options.connect().await.unwrap();
                let its = "run = (SELECT key FROM ferrata_runs WHERE tenant = ?1 AND run = ?2)";
                let sql = format!(
                    "UPDATE ferrata_records SET body = CAST('x' || substr(body, 2) AS BLOB) \
                     WHERE {its} AND seq = (SELECT max(seq) FROM ferrata_records WHERE {its})"
                );
                let query = sqlx::query(AssertSqlSafe(sql)).bind(run.tenant.as_str()).bind(run.run.as_str());
                assert_eq!(query.execute(&mut connection).await.unwrap().rows_affected(), 1);
                connection.close().await.unwrap();
            }
            Place::Folder => panic!("a test changes files itself"),
            Place::Schema { server, name } => {
                let mut connection = PgConnection::connect(server).await.unwrap();
                let its = format!("run = (SELECT key FROM {name}.runs WHERE tenant = $1 AND run = $2)");
                let sql = format!(
                    "UPDATE {name}.records SET body = set_byte(body, 0, get_byte(body, 0) # 1) \
                     WHERE {its} AND seq = (SELECT max(seq) FROM {name}.records WHERE {its})"
                );
                let query = sqlx::query(AssertSqlSafe(sql)).bind(run.tenant.as_str()).bind(run.run.as_str());
                assert_eq!(query.execute(&mut connection).await.unwrap().rows_affected(), 1);
                connection.close().await.unwrap();
            }
            Place::Streams { server, namespace } => streams::damage_last(server, namespace, run).await,
            Place::Keys { server, prefix } => {
                let key = format!("{prefix}:{{{},{}}}", run.tenant, run.run);
                // In a cluster, one of the servers has the key, and the others return an error.
                for mut node in nodes(server).await {
                    let found: Result<Option<Vec<u8>>, _> =
                        redis::cmd("LINDEX").arg(&key).arg(-1).query_async(&mut node).await;
                    let Ok(Some(mut body)) = found else { continue };
                    body[0] ^= 1;
                    redis::cmd("LSET")
                        .arg(&key)
                        .arg(-1)
                        .arg(body)
                        .query_async::<()>(&mut node)
                        .await
                        .unwrap();
                    return;
                }
                panic!("no server has {key}");
            }
            Place::Objects { client, prefix } => {
                let begin = format!("{prefix}/log/{}/{}/", run.tenant, run.run);
                let listed = client.list_objects_v2().bucket(BUCKET).prefix(begin).send().await.unwrap();
                // The newest object is listed first, and ends with the body of its last record.
                let newest = listed.contents()[0].key().unwrap();
                let object = client.get_object().bucket(BUCKET).key(newest).send().await.unwrap();
                let mut bytes = object.body.collect().await.unwrap().to_vec();
                *bytes.last_mut().unwrap() ^= 1;
                let put = client.put_object().bucket(BUCKET).key(newest);
                put.body(ByteStream::from(bytes)).send().await.unwrap();
            }
        }
    }

    async fn remove(&self) {
        match &self.place {
            Place::Folder => {}
            Place::Schema { server, name } => {
                let mut connection = PgConnection::connect(server).await.unwrap();
                let sql = format!("SET client_min_messages = error; DROP SCHEMA IF EXISTS {name} CASCADE");
                connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
                connection.close().await.unwrap();
            }
            Place::Streams { server, namespace } => streams::remove(server, namespace).await,
            Place::Keys { server, prefix } => {
                for mut node in nodes(server).await {
                    remove_keys(&mut node, prefix).await;
                }
            }
            Place::Objects { client, prefix } => remove_objects(client, &format!("{prefix}/")).await,
        }
    }
}

/// The credentials of the environment, or any, because a test server accepts all.
fn credentials() -> (String, String) {
    let said = |variable| std::env::var(variable).unwrap_or_else(|_| "test".to_owned());
    (said("AWS_ACCESS_KEY_ID"), said("AWS_SECRET_ACCESS_KEY"))
}

fn client(endpoint: &str) -> aws_sdk_s3::Client {
    let (id, secret) = credentials();
    let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(Credentials::new(id, secret, None, None, "test"))
        .region(Region::from_static("us-east-1"))
        .endpoint_url(endpoint)
        .force_path_style(true)
        .http_client(http);
    aws_sdk_s3::Client::from_conf(config.build())
}

async fn remove_objects(client: &aws_sdk_s3::Client, prefix: &str) {
    loop {
        let listed = client.list_objects_v2().bucket(BUCKET).prefix(prefix).send().await.unwrap();
        for object in listed.contents() {
            client.delete_object().bucket(BUCKET).key(object.key().unwrap()).send().await.unwrap();
        }
        if !listed.is_truncated().unwrap_or(false) {
            return;
        }
    }
}

/// Connects to every server that stores keys: the single one, or the masters of its cluster.
pub(crate) async fn nodes(server: &str) -> Vec<MultiplexedConnection> {
    let client = redis::Client::open(server).unwrap();
    let mut first = client.get_multiplexed_async_connection().await.unwrap();
    let slots = redis::cmd("CLUSTER").arg("SLOTS").query_async::<Vec<Vec<redis::Value>>>(&mut first).await;
    // A server without cluster mode returns an error.
    let Ok(slots) = slots else { return vec![first] };
    let mut masters = Vec::new();
    for row in slots {
        let master: Vec<redis::Value> = redis::from_redis_value(row[2].clone()).unwrap();
        let host: String = redis::from_redis_value(master[0].clone()).unwrap();
        let port: u16 = redis::from_redis_value(master[1].clone()).unwrap();
        masters.push(format!("redis://{host}:{port}"));
    }
    masters.sort();
    masters.dedup();
    let mut nodes = Vec::new();
    for master in masters {
        let client = redis::Client::open(master).unwrap();
        nodes.push(client.get_multiplexed_async_connection().await.unwrap());
    }
    nodes
}

async fn remove_keys(node: &mut MultiplexedConnection, prefix: &str) {
    let mut cursor = 0_u64;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{prefix}:*")).arg("COUNT").arg(10_000);
        let (next, keys): (u64, Vec<String>) = scan.query_async(node).await.unwrap();
        // One command per key, because keys of a cluster may be in different slots.
        for key in keys {
            redis::cmd("UNLINK").arg(key).query_async::<u64>(node).await.unwrap();
        }
        cursor = next;
        if cursor == 0 {
            return;
        }
    }
}
