//! Helpers: a separate prefix per test, a plain connection to the server's keys, and damage.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

pub mod author;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{CheckpointStore, RunKey, Seq};
use ferrata_store_conformance::{Damage, Space, StoreFactory};
use ferrata_store_redis::{RedisOptions, RedisStore};
use ferrata_test_servers::{Service, service_url};
use redis::Value;
use redis::aio::MultiplexedConnection;
use std::sync::Arc;

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Creates spaces on the single server or on the cluster.
pub struct Servers(pub Service);

/// A prefix on a server.
pub struct Place {
    /// The URL of any node, as `redis://`.
    pub server: String,
    pub is_cluster: bool,
    pub prefix: String,
}

impl Place {
    /// A separate prefix on the server that all tests share.
    pub fn on(service: Service) -> Self {
        Self::at(&service_url(service), service == Service::RedisCluster)
    }

    pub fn at(server: &str, is_cluster: bool) -> Self {
        let server = server.replacen("redis-cluster://", "redis://", 1);
        let prefix = format!("test-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        Self { server, is_cluster, prefix }
    }

    pub fn options(&self) -> RedisOptions {
        RedisOptions::default().with_prefix(&self.prefix)
    }

    pub fn url(&self) -> String {
        let scheme = if self.is_cluster { "redis-cluster://" } else { "redis://" };
        self.server.replacen("redis://", scheme, 1)
    }

    pub fn store(&self) -> RedisStore {
        self.store_with(self.options())
    }

    pub fn store_with(&self, options: RedisOptions) -> RedisStore {
        RedisStore::from_url(&self.url(), options).unwrap()
    }

    /// Connects to every server that stores keys.
    pub async fn nodes(&self) -> Vec<MultiplexedConnection> {
        let mut first = connect(&self.server).await;
        if !self.is_cluster {
            return vec![first];
        }
        let nodes: Vec<Vec<Value>> =
            redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut first).await.unwrap();
        let mut ports = Vec::new();
        for row in nodes {
            let primary: Vec<Value> = redis::from_redis_value(row[2].clone()).unwrap();
            ports.push(redis::from_redis_value::<u16>(primary[1].clone()).unwrap());
        }
        ports.sort_unstable();
        ports.dedup();
        let mut nodes = Vec::new();
        for port in ports {
            nodes.push(connect(&format!("redis://127.0.0.1:{port}")).await);
        }
        nodes
    }

    /// Runs a command on the node that has its keys.
    pub async fn ask(&self, command: &redis::Cmd) -> Value {
        let mut last = None;
        for mut node in self.nodes().await {
            match command.query_async::<Value>(&mut node).await {
                Ok(value) => return value,
                Err(error) => last = Some(error),
            }
        }
        panic!("{:?}", last.unwrap());
    }

    /// Returns every key below the prefix.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for mut node in self.nodes().await {
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(format!("{}:*", self.prefix)).arg("COUNT").arg(10_000);
                let (next, found): (u64, Vec<String>) = scan.query_async(&mut node).await.unwrap();
                keys.extend(found);
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        keys.sort();
        keys
    }

    /// Removes these keys without the store.
    pub async fn delete(&self, keys: &[String]) {
        for mut node in self.nodes().await {
            for key in keys {
                // A node refuses the keys of other nodes.
                let _ = redis::cmd("DEL").arg(key).query_async::<u64>(&mut node).await;
            }
        }
    }

    pub async fn remove(&self) {
        self.delete(&self.keys().await).await;
    }

    pub fn key(&self, run: &RunKey) -> String {
        format!("{}:{{{},{}}}", self.prefix, run.tenant, run.run)
    }

    /// Changes the headers and bodies of a run, which alternate in its list after the run's facts. Removes those that become empty.
    async fn rewrite(&self, run: &RunKey, change: impl Fn(u64, &mut [Vec<u8>])) {
        let key = self.key(run);
        let parts = self.ask(redis::cmd("LRANGE").arg(&key).arg(0).arg(-1)).await;
        let mut parts: Vec<Vec<u8>> = redis::from_redis_value(parts).unwrap();
        self.ask(redis::cmd("DEL").arg(&key)).await;
        for record in parts[1..].chunks_mut(2) {
            change(seq_of(&record[HEADER]), record);
        }
        parts.retain(|part| !part.is_empty());
        self.ask(redis::cmd("RPUSH").arg(&key).arg(parts)).await;
    }

    async fn last(&self, run: &RunKey) -> u64 {
        let header = self.ask(redis::cmd("LINDEX").arg(self.key(run)).arg(-2)).await;
        seq_of(&redis::from_redis_value::<Vec<u8>>(header).unwrap())
    }
}

/// The sequence number in a header: a varint after the 16 bytes of the id.
fn seq_of(header: &[u8]) -> u64 {
    let mut seq = 0;
    for (n, byte) in header[16..].iter().enumerate() {
        seq |= u64::from(byte & 0x7f) << (7 * n);
        if *byte < 0x80 {
            break;
        }
    }
    seq
}

pub async fn connect(url: &str) -> MultiplexedConnection {
    // The driver's own limits are a second or less, which a busy machine can exceed.
    let patience = Some(Duration::from_secs(60));
    let config =
        redis::AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
    redis::Client::open(url).unwrap().get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// The two parts of a record.
const HEADER: usize = 0;
const BODY: usize = 1;

/// Increases the format in a header, which is one byte after a number below 128.
fn newer(header: &mut [u8]) {
    assert!(header[16] < 0x80, "a short log");
    header[17] += 1;
}

#[async_trait]
impl StoreFactory for Servers {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Place::on(self.0))
    }
}

#[async_trait]
impl Space for Place {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(self.store())
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let is = |seq: Seq, n: u64| seq.get() == n;
        match damage {
            Damage::Body(seq) => {
                self.rewrite(run, |n, record| {
                    if is(seq, n) {
                        record[BODY][0] ^= 1
                    }
                })
                .await;
            }
            Damage::Gone(seq) => {
                self.rewrite(run, |n, record| {
                    if is(seq, n) {
                        record.iter_mut().for_each(Vec::clear)
                    }
                })
                .await;
            }
            // The server writes an append completely or not at all. This state follows from a damaged and repaired file.
            Damage::Torn => {
                let last = self.last(run).await;
                self.rewrite(run, |n, record| {
                    if n == last {
                        let half = record[BODY].len() / 2;
                        record[BODY].truncate(half);
                    }
                })
                .await;
            }
            Damage::NewerFormat(seq) => {
                self.rewrite(run, |n, record| {
                    if is(seq, n) {
                        newer(&mut record[HEADER])
                    }
                })
                .await;
            }
            // Swap the values, because the two keys may be on two nodes.
            Damage::Swapped(other) => {
                let keys = [self.key(run), self.key(&other)];
                let mut lists = Vec::new();
                for key in &keys {
                    let parts = self.ask(redis::cmd("LRANGE").arg(key).arg(0).arg(-1)).await;
                    lists.push(redis::from_redis_value::<Vec<Vec<u8>>>(parts).unwrap());
                    self.ask(redis::cmd("DEL").arg(key)).await;
                }
                for (key, parts) in keys.iter().zip(lists.into_iter().rev()) {
                    self.ask(redis::cmd("RPUSH").arg(key).arg(parts)).await;
                }
            }
            _ => return false,
        }
        true
    }

    async fn remove(&self) {
        Self::remove(self).await;
    }
}
