//! Several servers: slots that move during writes, required replicas, and TLS.
use std::collections::HashSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use crate::common::author::{append_one, append_surely, eventually, is_kept, kind, log_of, spawn};
use crate::common::{Place, connect};
use ferrata_store::{At, CheckpointStore, Clock, ErrorKind, RunStatus, SystemClock, within};
use ferrata_store_redis::RedisStore;
use ferrata_test_servers::{RedisCluster, RedisServer, RedisServerOptions as Server};
use ferrata_testing::Log;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// A node of a cluster, for moves of slots.
struct Node {
    port: u16,
    id: String,
    connection: MultiplexedConnection,
}

impl Node {
    async fn of(redis: &RedisServer) -> Self {
        let mut connection = connect(&redis.url()).await;
        let id = redis::cmd("CLUSTER").arg("MYID").query_async(&mut connection).await.unwrap();
        Self { port: redis.port(), id, connection }
    }

    /// A server without cluster mode.
    async fn of_single(redis: &RedisServer) -> Self {
        Self { port: redis.port(), id: String::new(), connection: connect(&redis.url()).await }
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> redis::RedisResult<T> {
        let mut cmd = redis::cmd(words[0]);
        cmd.arg(&words[1..]);
        cmd.query_async(&mut self.connection).await
    }
}

/// The node that has a slot, and another node.
async fn from_and_to(cluster: &RedisCluster, slot: u16) -> (Node, Node) {
    let at = usize::from(slot) * 3 / 16_384;
    (Node::of(&cluster.nodes()[at]).await, Node::of(&cluster.nodes()[(at + 1) % 3]).await)
}

async fn slot_of(place: &Place, run: &Log) -> u16 {
    slot_of_key(place, &place.key(&run.key)).await
}

async fn slot_of_key(place: &Place, key: &str) -> u16 {
    let slot = place.ask(redis::cmd("CLUSTER").arg("KEYSLOT").arg(key)).await;
    redis::from_redis_value(slot).unwrap()
}

/// The keys of the index shard that contains this run.
async fn index_of(place: &Place, run: &Log) -> Vec<String> {
    let keys = place.keys().await;
    for catalog in keys.iter().filter(|key| key.ends_with(":catalog")) {
        let members = place.ask(redis::cmd("HKEYS").arg(catalog)).await;
        let members: Vec<String> = redis::from_redis_value(members).unwrap();
        if members.iter().any(|member| member.contains(run.key.run.as_str())) {
            let shard = catalog.strip_suffix("catalog").unwrap();
            return keys.iter().filter(|key| key.starts_with(shard)).cloned().collect();
        }
    }
    panic!("{} is in no shard of the index", run.key);
}

async fn move_keys(from: &mut Node, to: &Node, keys: &[String]) {
    for key in keys {
        let port = to.port.to_string();
        from.ask::<Value>(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await.unwrap();
    }
}

async fn begin(from: &mut Node, to: &mut Node, slot: &str) {
    to.ask::<()>(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &from.id]).await.unwrap();
    from.ask::<()>(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &to.id]).await.unwrap();
}

async fn finish(cluster: &RedisCluster, to: &mut Node, slot: &str) {
    let id = to.id.clone();
    to.ask::<()>(&["CLUSTER", "SETSLOT", slot, "NODE", &id]).await.unwrap();
    for node in cluster.nodes() {
        Node::of(node).await.ask::<()>(&["CLUSTER", "SETSLOT", slot, "NODE", &id]).await.unwrap();
    }
    // A node without the newest epoch would give its next slot back to the node with that epoch.
    eventually("one epoch", async || {
        let mut epochs = HashSet::new();
        for node in cluster.nodes() {
            let info: String = Node::of(node).await.ask(&["CLUSTER", "INFO"]).await.unwrap();
            let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
            epochs.insert(epoch.unwrap().to_owned());
        }
        epochs.len() == 1
    })
    .await;
}

/// Moves every key of a slot that is being moved.
async fn move_all(from: &mut Node, to: &Node, slot: &str) {
    let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", slot, "1000"]).await.unwrap();
    move_keys(from, to, &keys).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn a_run_is_followed_from_node_to_node() {
    let cluster = RedisCluster::start(3).unwrap();
    let place = Place::at(&cluster.url(), true);
    // This store learned the slots before the move.
    let store = place.store();
    store.setup().await.unwrap();
    let mut author = log_of("r-1");
    author.write(&store, 2).await;
    let number = slot_of(&place, &author).await;
    let slot = number.to_string();
    let (mut from, mut to) = from_and_to(&cluster, number).await;
    begin(&mut from, &mut to, &slot).await;
    // The key is still on the old node.
    author.write(&store, 1).await;
    // The key has moved, and its slot has not. The old node redirects with ASK.
    move_keys(&mut from, &to, &[place.key(&author.key)]).await;
    author.write(&store, 1).await;
    is_kept(&author, &store).await;
    finish(&cluster, &mut to, &slot).await;
    // The slot has moved. The old node redirects with MOVED.
    author.write(&store, 1).await;
    is_kept(&author, &store).await;
    is_kept(&author, &place.store()).await;
}

/// Guarantees: REDIS-14.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn slots_that_move_under_load_lose_nothing() {
    let cluster = RedisCluster::start(3).unwrap();
    let place = Place::at(&cluster.url(), true);
    let store = place.store();
    store.setup().await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..6 {
        let (store, over) = (store.clone(), Arc::clone(&over));
        writers.spawn(async move {
            let mut author = log_of(&format!("r-{n}"));
            while !over.load(Ordering::Relaxed) {
                let count = author.records.len();
                // The new status also moves the run in the index.
                let status =
                    if count.is_multiple_of(3) { RunStatus::Interrupted } else { RunStatus::InProgress };
                let append = author.next_as(1 + count % 2, b"", |header| header.status = status);
                append_surely(&store, &append).await.unwrap();
                author.note_append(&append);
            }
            author
        });
    }
    let mut moved = HashSet::new();
    for n in 0..6 {
        let author = log_of(&format!("r-{n}"));
        eventually("ten records", async || {
            let head = store.head(&author.key).await;
            head.is_ok_and(|head| head.is_some_and(|head| head.seq.get() > 10))
        })
        .await;
        let number = slot_of(&place, &author).await;
        let slot = number.to_string();
        let (mut from, mut to) = from_and_to(&cluster, number).await;
        begin(&mut from, &mut to, &slot).await;
        move_keys(&mut from, &to, &[place.key(&author.key)]).await;
        finish(&cluster, &mut to, &slot).await;
        let number = slot_of_key(&place, &index_of(&place, &author).await[0]).await;
        let slot = number.to_string();
        // Another run of the same shard may have moved it already.
        let (from, to) = from_and_to(&cluster, number).await;
        let (mut from, mut to) = if moved.insert(number) { (from, to) } else { (to, from) };
        begin(&mut from, &mut to, &slot).await;
        move_all(&mut from, &to, &slot).await;
        finish(&cluster, &mut to, &slot).await;
    }
    over.store(true, Ordering::Relaxed);
    for author in writers.join_all().await {
        is_kept(&author, &store).await;
    }
}

/// While the keys of an index shard are on two nodes, they cannot be changed atomically. The change is refused and retried, and creates no key that
/// blocks a later move.
///
/// Guarantees: REDIS-14.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn migrating_index_loses_no_entry() {
    let cluster = RedisCluster::start(3).unwrap();
    let place = Place::at(&cluster.url(), true);
    let store = place.store();
    store.setup().await.unwrap();
    for (run, catalog_first) in [("r-1", true), ("r-2", false)] {
        let mut author = log_of(run);
        author.write(&store, 1).await;
        let mut keys = index_of(&place, &author).await;
        keys.sort_by_key(|key| key.ends_with(":catalog") != catalog_first);
        let number = slot_of_key(&place, &keys[0]).await;
        let slot = number.to_string();
        let (mut from, mut to) = from_and_to(&cluster, number).await;
        begin(&mut from, &mut to, &slot).await;
        move_keys(&mut from, &to, &keys[..1]).await;
        let append = author.next_as(1, b"", |header| header.status = RunStatus::Interrupted);
        let refused = append_one(&store, &append).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{catalog_first}: {refused:?}");
        move_all(&mut from, &to, &slot).await;
        finish(&cluster, &mut to, &slot).await;
        append_surely(&store, &append).await.unwrap();
        author.note_append(&append);
        is_kept(&author, &store).await;
    }
}

/// A node stops and restarts during writes to other nodes: the runs on the others continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn restarted_node_preserves_acknowledged_records() {
    let cluster = RedisCluster::start(3).unwrap();
    for node in cluster.nodes() {
        // Otherwise the server may delay its writes to disk.
        Node::of(node).await.ask::<()>(&["CONFIG", "SET", "appendfsync", "always"]).await.unwrap();
    }
    let place = Place::at(&cluster.url(), true);
    let store = place.store();
    store.setup().await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..6 {
        let (store, over) = (store.clone(), Arc::clone(&over));
        writers.spawn(async move {
            let mut author = log_of(&format!("r-{n}"));
            while !over.load(Ordering::Relaxed) {
                let append = author.next(1);
                append_surely(&store, &append).await.unwrap();
                author.note_append(&append);
            }
            author
        });
    }
    for node in cluster.nodes() {
        eventually("ten more records", async || {
            let head = store.head(&log_of("r-0").key).await;
            head.is_ok_and(|head| head.is_some_and(|head| head.seq.get() > 10))
        })
        .await;
        node.kill().unwrap();
        node.restart().unwrap();
        // The node needs this configuration after its restart, too.
        Node::of(node).await.ask::<()>(&["CONFIG", "SET", "appendfsync", "always"]).await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let authors = writers.join_all().await;
    eventually("a whole cluster", async || store.load(&authors[0].key, At::Latest).await.is_ok()).await;
    for author in authors {
        is_kept(&author, &store).await;
    }
}

/// All runs of a node that hangs wait together: once for a reply and once for a connection.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn a_node_that_hangs_is_waited_for_once() {
    let cluster = RedisCluster::start(3).unwrap();
    let place = Place::at(&cluster.url(), true);
    // Long enough for a healthy node on a busy machine.
    let timeout = Duration::from_secs(5);
    let options = place.options().with_response_timeout(timeout).with_connect_timeout(timeout);
    let store = place.store_with(options);
    store.setup().await.unwrap();
    let mut authors: Vec<Log> = (0..120).map(|n| log_of(&format!("r-{n}"))).collect();
    for author in &mut authors {
        author.write(&store, 1).await;
    }
    let batch: Vec<_> = authors.iter().map(|author| author.next(1)).collect();
    // The node that is asked first for the slots.
    let hangs = cluster.nodes().iter().min_by_key(|node| node.port()).unwrap();
    hangs.suspend().unwrap();
    let clock = SystemClock::new();
    for _ in 0..2 {
        let began = clock.monotonic();
        let results = store.append(batch.clone()).await;
        let took = clock.monotonic() - began;
        let failed: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        // One after the other, they would wait for one reply per run.
        let most = timeout * u32::try_from(failed.len()).unwrap();
        assert!(took < most, "{took:?} for a batch with a third of its runs on the hanging node");
        assert!((20..60).contains(&failed.len()), "{} of 120 runs are on the hanging node", failed.len());
        assert!(failed.iter().all(|error| error.is_retryable()), "{failed:?}");
    }
    hangs.resume().unwrap();
    for (author, append) in authors.iter_mut().zip(batch) {
        append_surely(&store, &append).await.unwrap();
        author.note_append(&append);
    }
    for author in authors.iter().step_by(10) {
        is_kept(author, &store).await;
    }
}

/// Guarantees: REDIS-3.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn record_is_acknowledged_after_replica_has_it() {
    let primary = RedisServer::start(Server::default()).unwrap();
    let port = primary.port().to_string();
    let replica =
        RedisServer::start(Server::default().with_args(["--replicaof", "127.0.0.1", &port])).unwrap();
    let place = Place::at(&primary.url(), false);
    // A healthy replica may answer late on a busy machine. A suspended one never answers.
    let store = place.store_with(place.options().with_replicas(1, Duration::from_secs(5)));
    let mut author = log_of("r-1");
    let append = author.next(1);
    append_surely(&store, &append).await.unwrap();
    author.note_append(&append);
    let late = author.next(1);
    // Every acknowledged record is on the replica at once.
    for _ in 0..20 {
        author.write(&store, 1).await;
        let copy = Place::at(&replica.url(), false);
        let length = copy.ask(redis::cmd("LLEN").arg(place.key(&author.key))).await;
        assert_eq!(
            length,
            Value::Int(1 + 2 * author.records.len() as i64),
            "the facts of the run, its headers and bodies"
        );
    }
    replica.suspend().unwrap();
    let hasty = place.store_with(place.options().with_replicas(1, Duration::from_millis(300)));
    // A refused append is stored nowhere, and waits for no replica.
    let mut absent = log_of("r-2");
    absent.note_append(&absent.next(1));
    let said = hasty.append(vec![late, absent.next(1), log_of("r-3").next(1)]).await;
    let said: Vec<_> = said.into_iter().map(kind).collect();
    assert_eq!(said, [ErrorKind::Conflict, ErrorKind::Conflict, ErrorKind::Indeterminate]);
    let append = author.next(1);
    let error = append_one(&hasty, &append).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    assert_eq!(
        kind(append_one(&hasty, &append).await),
        ErrorKind::Indeterminate,
        "a repeat must wait for the replica, too"
    );
    // On a new connection, the server knows no write, and since version 7.2 it does not wait then. So a repeat must write.
    let repeats = async || {
        let said = place.ask(redis::cmd("INFO").arg("commandstats")).await;
        redis::from_redis_value::<String>(said).unwrap().contains("cmdstat_lset:")
    };
    assert!(repeats().await, "the repeat wrote nothing to wait for");
    let another = place.store_with(place.options().with_replicas(1, Duration::from_millis(300)));
    assert_eq!(
        kind(append_one(&another, &append).await),
        ErrorKind::Indeterminate,
        "a repeat on another connection must wait for the replica, too"
    );
    replica.resume().unwrap();
    append_surely(&store, &append).await.unwrap();
    author.note_append(&append);
    is_kept(&author, &store).await;
}

/// The server has lost its scripts, so the append is sent again with its script. It then waits until the replica has this append, although the
/// replica missed an earlier write of the connection.
///
/// Guarantees: REDIS-3.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn append_resent_with_script_waits_for_replicas() {
    let primary = RedisServer::start(Server::default()).unwrap();
    let port = primary.port().to_string();
    let replica =
        RedisServer::start(Server::default().with_args(["--replicaof", "127.0.0.1", &port])).unwrap();
    let place = Place::at(&primary.url(), false);
    let store = place.store_with(place.options().with_replicas(1, Duration::from_secs(3)));
    let mut author = log_of("r-1");
    let append = author.next(1);
    append_surely(&store, &append).await.unwrap();
    author.note_append(&append);
    replica.suspend().unwrap();
    let other = log_of("r-2").next(1);
    assert_eq!(kind(append_one(&store, &other).await), ErrorKind::Indeterminate, "without the replica");
    place.ask(redis::cmd("SCRIPT").arg("FLUSH")).await;
    let append = author.next(1);
    let length = 1 + 2 * (author.records.len() + 1);
    let resumes = async {
        // Once the record is stored, the wait for the replica has failed.
        while place.ask(redis::cmd("LLEN").arg(place.key(&author.key))).await != Value::Int(length as i64) {
            tokio::task::yield_now().await;
        }
        replica.resume().unwrap();
    };
    let (said, ()) = tokio::join!(append_one(&store, &append), resumes);
    said.unwrap();
    author.note_append(&append);
    is_kept(&author, &store).await;
}

/// Forwards new connections to the current port, like a DNS name that leads to another server after a failover.
async fn forwarder(to: Arc<AtomicU16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    drop(spawn(async move {
        let mut all = tokio::task::JoinSet::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let port = to.load(Ordering::Relaxed);
            all.spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                // Either side may close the connection.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    }));
    url
}

/// The old primary becomes a replica and keeps its connections: the store finds the new primary.
///
/// Guarantees: REDIS-7.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_failover_behind_a_name_is_followed() {
    let (before, after) =
        (RedisServer::start(Server::default()).unwrap(), RedisServer::start(Server::default()).unwrap());
    let (mut first, mut second) = (Node::of_single(&before).await, Node::of_single(&after).await);
    let (first_port, second_port) = (before.port().to_string(), after.port().to_string());
    second.ask::<()>(&["REPLICAOF", "127.0.0.1", &first_port]).await.unwrap();
    let to = Arc::new(AtomicU16::new(before.port()));
    let place = Place::at(&forwarder(Arc::clone(&to)).await, false);
    let store = place.store();
    store.setup().await.unwrap();
    let mut author = log_of("r-1");
    author.write(&store, 1).await;
    // The replica must have all records before it becomes the primary.
    let waits = place.store_with(place.options().with_replicas(1, Duration::from_secs(5)));
    let append = author.next(1);
    append_surely(&waits, &append).await.unwrap();
    author.note_append(&append);
    to.store(after.port(), Ordering::Relaxed);
    second.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    first.ask::<()>(&["REPLICAOF", "127.0.0.1", &second_port]).await.unwrap();
    let append = author.next(1);
    let refused = append_one(&waits, &append).await.unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::Unavailable,
        "nothing was written, so there is nothing to wait for: {refused:?}"
    );
    let written = within(&SystemClock::new(), Duration::from_secs(20), append_surely(&store, &append)).await;
    written.expect("the store must stay with the replica").unwrap();
    author.note_append(&append);
    is_kept(&author, &store).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn tls_server_requires_trusted_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let request = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=IP:127.0.0.1,DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
    ];
    let made =
        Command::new("openssl").args(request).args([&path("key"), "-out", &path("cert")]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let (key, cert) = (path("key"), path("cert"));
    let args = ["--tls-key-file", &key, "--tls-cert-file", &cert, "--tls-auth-clients", "no"];
    let server = RedisServer::start(Server::default().with_args(args).with_tls_port()).unwrap();
    let place = Place::at(&server.url(), false);
    let url = server.tls_url().unwrap();
    let pem = std::fs::read(cert).unwrap();
    let store = RedisStore::from_url(&url, place.options().with_root_certificates(pem)).unwrap();
    let mut author = log_of("r-1");
    author.write(&store, 2).await;
    is_kept(&author, &store).await;
    is_kept(&author, &place.store()).await;

    let error = RedisStore::from_url(&url, place.options()).unwrap().setup().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let source = format!("{error:?}").to_lowercase();
    assert!(source.contains("certificate"), "the chain of errors must name the cause: {source}");
    let bad = place.options().with_root_certificates("no certificate");
    assert_eq!(kind(RedisStore::from_url(&url, bad)), ErrorKind::Invalid);
}
