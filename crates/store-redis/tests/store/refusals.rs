//! Errors of real servers, row by row: the error kind, that nothing was written, and that the store recovers with the server.
use std::time::Duration;

use crate::common::author::{append_one, append_surely, eventually, fresh_id, is_kept, kind, log_of, spawn};
use crate::common::{Place, connect};
use ferrata_store::{At, CheckpointStore, Error, ErrorKind, ExecutorId, Page, Result, RunQuery};
use ferrata_store_redis::{Persistence, RedisOptions, RedisStore};
use ferrata_store_sharded::ShardedStore;
use ferrata_test_servers::{AppendFsync, RedisCluster, RedisServer, RedisServerOptions as Server};
use ferrata_testing::Log;

/// Starts a server with these arguments.
fn server(args: &[&str]) -> RedisServer {
    RedisServer::start(Server::default().with_args(args.iter().copied())).unwrap()
}

/// Sends commands, whose words are separated by bars.
async fn send(url: &str, commands: &[&str]) {
    let mut connection = connect(url).await;
    for command in commands {
        let words: Vec<&str> = command.split('|').collect();
        redis::cmd(words[0]).arg(&words[1..]).exec_async(&mut connection).await.unwrap();
    }
}

fn says(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error:?}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} in {error}");
    }
}

/// Writes a run, makes the server refuse writes, checks the error, and makes the server accept again. Checks that nothing was written in between, and
/// that the same records can then be appended.
async fn refused_while(url: &str, refuse: &[&str], accept: &[&str], kind: ErrorKind, words: &[&str]) {
    let place = Place::at(url, false);
    let store = place.store();
    store.setup().await.unwrap();
    let mut author = log_of("r-1");
    author.write(&store, 2).await;
    send(url, refuse).await;
    let mut plain = connect(url).await;
    eventually("a refusal of any write", async || {
        let mut plain = plain.clone();
        redis::cmd("SET").arg("any").arg(1).exec_async(&mut plain).await.is_err()
    })
    .await;
    let next = author.next(2);
    says(&append_one(&store, &next).await.unwrap_err(), kind, words);
    let started = log_of("r-2");
    says(&append_one(&store, &started.next(1)).await.unwrap_err(), kind, words);
    send(url, accept).await;
    redis::cmd("PING").exec_async(&mut plain).await.unwrap();
    is_kept(&author, &store).await;
    is_kept(&started, &store).await;
    append_surely(&store, &next).await.unwrap();
    author.note_append(&next);
    is_kept(&author, &store).await;
}

/// Guarantees: REDIS-6.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_full_memory_is_unavailable() {
    let server = server(&[]);
    let (refuse, accept) = (["CONFIG|SET|maxmemory|1"], ["CONFIG|SET|maxmemory|0"]);
    refused_while(&server.url(), &refuse, &accept, ErrorKind::Unavailable, &["OOM", "maxmemory"]).await;
}

/// Guarantees: REDIS-6.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_replica_is_unavailable() {
    let server = server(&[]);
    // It becomes a replica of an absent primary, so that its data stays.
    let (refuse, accept) = (["REPLICAOF|127.0.0.1|1"], ["REPLICAOF|NO|ONE"]);
    refused_while(&server.url(), &refuse, &accept, ErrorKind::Unavailable, &["READONLY", "replica"]).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn too_few_replicas_are_unavailable() {
    let server = server(&[]);
    let (refuse, accept) = (["CONFIG|SET|min-replicas-to-write|1"], ["CONFIG|SET|min-replicas-to-write|0"]);
    refused_while(&server.url(), &refuse, &accept, ErrorKind::Unavailable, &["NOREPLICAS"]).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_disk_that_takes_no_snapshot_is_unavailable() {
    let server = server(&["--dbfilename", "blocked"]);
    // A folder has the snapshot's name, so the snapshot cannot be renamed to it.
    std::fs::create_dir(server.folder().join("blocked")).unwrap();
    let refuse = ["CONFIG|SET|save|3600 1", "BGSAVE"];
    let accept = ["CONFIG|SET|stop-writes-on-bgsave-error|no"];
    refused_while(&server.url(), &refuse, &accept, ErrorKind::Unavailable, &["MISCONF", "disk"]).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_server_busy_with_a_script_is_unavailable() {
    let server = server(&["--busy-reply-threshold", "20"]);
    let mut other = connect(&server.url()).await;
    let url = server.url();
    let place = Place::at(&url, false);
    let store = place.store();
    store.setup().await.unwrap();
    let mut author = log_of("r-1");
    author.write(&store, 1).await;
    let endless = spawn(async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<redis::Value>(&mut other).await
    });
    eventually("a busy server", async || {
        let said = store.head(&author.key).await;
        said.is_err_and(|error| error.to_string().contains("BUSY"))
    })
    .await;
    says(
        &append_one(&store, &author.next(1)).await.unwrap_err(),
        ErrorKind::Unavailable,
        &["BUSY", "SCRIPT KILL"],
    );
    send(&url, &["SCRIPT|KILL"]).await;
    endless.await.unwrap().unwrap_err();
    author.write(&store, 1).await;
    is_kept(&author, &store).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_server_that_reads_its_data_is_unavailable() {
    // Loading each command of the file takes longer. The server checks its connections at every 1,024th command.
    let slow = ["--key-load-delay", "300"];
    let options = Server::default().with_appendfsync(AppendFsync::Always).with_args(slow);
    let server = RedisServer::start(options).unwrap();
    let place = Place::at(&server.url(), false);
    let store = place.store();
    store.setup().await.unwrap();
    let mut author = log_of("r-1");
    author.write(&store, 2).await;
    let mut plain = connect(&server.url()).await;
    let mut fill = redis::pipe();
    for n in 0..10_000 {
        fill.cmd("SET").arg(format!("other-{n}")).arg("x".repeat(50)).ignore();
    }
    fill.exec_async(&mut plain).await.unwrap();
    drop(plain);
    server.kill().unwrap();
    let next = author.next(1);
    let gone = append_one(&store, &next).await.unwrap_err();
    assert!(gone.is_retryable(), "{gone:?}");
    let restarting = tokio::task::spawn_blocking(move || {
        server.restart().unwrap();
        server
    });
    let is_loading = async || match store.head(&author.key).await {
        Ok(_) => panic!("the server was ready before the test saw it loading"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            error.to_string().contains("LOADING")
        }
    };
    eventually("a server that is loading", is_loading).await;
    says(&append_one(&store, &next).await.unwrap_err(), ErrorKind::Unavailable, &["LOADING"]);
    let _server = restarting.await.unwrap();
    append_surely(&store, &next).await.unwrap();
    author.note_append(&next);
    is_kept(&author, &store).await;
}

/// The memory fills up during writes: acknowledged records exist, refused ones do not, and reads succeed.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn full_memory_loses_no_acknowledged_record() {
    let server = RedisServer::start(Server::default().with_maxmemory(8_000_000)).unwrap();
    let place = Place::at(&server.url(), false);
    let store = place.store();
    store.setup().await.unwrap();
    let mut authors: Vec<Log> = (0..4).map(|n| log_of(&format!("r-{n}"))).collect();
    let body = vec![b'x'; 20_000];
    let mut refused = 0;
    while refused < 8 {
        // One script for all of them, which is refused at its first write or not at all.
        let batch: Vec<_> = authors.iter().map(|author| author.next_as(3, &body, |_| {})).collect();
        for ((author, append), result) in authors.iter_mut().zip(batch.clone()).zip(store.append(batch).await)
        {
            match result {
                Ok(_) => author.note_append(&append),
                Err(error) => {
                    says(&error, ErrorKind::Unavailable, &["OOM"]);
                    refused += 1;
                }
            }
        }
    }
    for author in &authors {
        assert!(!author.records.is_empty(), "each must write before the memory is full");
        is_kept(author, &store).await;
    }
    // Free memory as the error advises.
    store.purge(&authors.remove(0).key, None).await.unwrap();
    authors[0].write(&store, 1).await;
    is_kept(&authors[0], &store).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn missing_write_permission_is_reported_without_retry() {
    let server = server(&["--requirepass", "sesame"]);
    let at = |user: &str| server.url().replace("redis://", &format!("redis://{user}"));
    let url = at(":sesame@");
    send(&url, &["ACL|SETUSER|reader|on|>look|~*|&*|+@read|+@connection|+info"]).await;
    send(&url, &["ACL|SETUSER|half|on|>look|~*|&*|+@all|-hset"]).await;
    for (user, words) in [
        ("", ["NOAUTH", "password"]),
        (":secret@", ["WRONGPASS", "password"]),
        ("nobody:secret@", ["WRONGPASS", "password"]),
        ("reader:look@", ["NOPERM", "lacks permission"]),
        // The probe of `setup` detects this, before any run is written partially.
        ("half:look@", ["NOPERM", "lacks permission"]),
    ] {
        let store = RedisStore::from_url(&at(user), RedisOptions::default()).unwrap();
        let error = store.setup().await.unwrap_err();
        says(&error, ErrorKind::Invalid, &words);
        let shown = format!("{error:?} {store:?}");
        assert!(!shown.contains("secret") && !shown.contains("look@"), "{shown}");
    }
    RedisStore::from_url(&url, RedisOptions::default()).unwrap().setup().await.unwrap();
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn absent_server_is_unavailable_absent_database_is_invalid() {
    let server = server(&["--databases", "2"]);
    let in_database =
        |n| RedisStore::from_url(&format!("{}/{n}", server.url()), RedisOptions::default()).unwrap();
    in_database(1).setup().await.unwrap();
    assert_eq!(kind(in_database(7).setup().await), ErrorKind::Invalid);
    let cluster = server.url().replace("redis://", "redis-cluster://");
    let error = RedisStore::from_url(&cluster, RedisOptions::default()).unwrap().setup().await.unwrap_err();
    says(&error, ErrorKind::Invalid, &["not a cluster", "redis://"]);

    let store = in_database(1);
    let mut author = log_of("r-1");
    author.write(&store, 1).await;
    server.stop().unwrap();
    assert!(append_one(&store, &author.next(1)).await.unwrap_err().is_retryable());
    // Without a connection, the outcome is known.
    says(
        &append_one(&store, &author.next(1)).await.unwrap_err(),
        ErrorKind::Unavailable,
        &["127.0.0.1", "cannot reach"],
    );
    assert_eq!(kind(store.load(&author.key, At::Latest).await), ErrorKind::Unavailable);
    assert_eq!(kind(store.runs(&RunQuery::default(), Page::default()).await), ErrorKind::Unavailable);
    server.restart().unwrap();
    eventually("the way back", async || store.head(&author.key).await.is_ok()).await;
    author.write(&store, 1).await;
    is_kept(&author, &store).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_server_that_lets_nobody_in_is_unavailable() {
    let server = server(&["--maxclients", "2"]);
    let store = Place::at(&server.url(), false).store();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let refused = store.setup().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    drop((first, second));
    eventually("a free place", async || store.setup().await.is_ok()).await;
}

/// Guarantees: REDIS-4.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn setup_refuses_server_that_may_evict_runs() {
    let server = server(&["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"]);
    let store = Place::at(&server.url(), false).store();
    says(&store.setup().await.unwrap_err(), ErrorKind::Unsupported, &["allkeys-lru", "noeviction"]);
    send(&server.url(), &["CONFIG|SET|maxmemory-policy|noeviction"]).await;
    store.setup().await.unwrap();
}

/// A full server with `volatile-ttl` would remove heartbeats, so that living processes lose their runs. The store refuses it.
///
/// Guarantees: REDIS-4.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn server_that_may_evict_heartbeats_is_refused() {
    let server = server(&["--maxmemory", "50mb", "--maxmemory-policy", "volatile-ttl"]);
    let store = Place::at(&server.url(), false).store();
    says(&store.setup().await.unwrap_err(), ErrorKind::Unsupported, &["volatile-ttl", "noeviction"]);
    send(&server.url(), &["CONFIG|SET|maxmemory-policy|noeviction"]).await;
    store.setup().await.unwrap();
    let (executor, ttl) = (ExecutorId::from_uuid(*fresh_id().as_uuid()), Duration::from_secs(9));
    store.heartbeat(&executor, ttl).await.unwrap();
    send(&server.url(), &["CONFIG|SET|maxmemory-policy|volatile-lru"]).await;
    eventually("the refusal", async || store.heartbeat(&executor, ttl).await.is_err()).await;
    let refused = store.heartbeat(&executor, ttl).await.unwrap_err();
    says(&refused, ErrorKind::Unsupported, &["volatile-lru", "noeviction"]);
    store.heartbeat(&executor, Duration::ZERO).await.unwrap();
    send(&server.url(), &["CONFIG|SET|maxmemory-policy|noeviction"]).await;
    eventually("heartbeats again", async || store.heartbeat(&executor, ttl).await.is_ok()).await;
}

/// The record is stored, but the server does not report the number of replicas: the error must not claim that the record is missing.
///
/// Guarantees: REDIS-3.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn refused_replica_wait_is_indeterminate() {
    let server = server(&[]);
    let place = Place::at(&server.url(), false);
    send(&server.url(), &["ACL|SETUSER|few|on|>word|~*|&*|+@all|-wait"]).await;
    let url = server.url().replacen("redis://", "redis://few:word@", 1);
    let options = place.options().with_replicas(1, Duration::from_millis(50));
    let store = RedisStore::from_url(&url, options).unwrap();
    let mut author = log_of("r-1");
    let append = author.next(1);
    says(&append_one(&store, &append).await.unwrap_err(), ErrorKind::Indeterminate, &["NOPERM", "stored"]);
    author.note_append(&append);
    is_kept(&author, &place.store()).await;
    says(&store.setup().await.unwrap_err(), ErrorKind::Invalid, &["NOPERM", "lacks permission"]);
}

/// If `CONFIG` is forbidden, the sync interval of the server is unknown, and the store reports that.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn unknown_sync_policy_promises_minimum_durability() {
    let server = server(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let grant = "ACL|SETUSER|few|on|>word|~*|&*|+@all|-config";
    send(&server.url(), &[grant]).await;
    let url = server.url().replacen("redis://", "redis://few:word@", 1);
    let store = Place::at(&url, false).store();
    store.setup().await.unwrap();
    assert_eq!(store.persistence(), Some(Persistence::SyncUnknown));
    assert!(store.capabilities().durable);
}

/// A shard marker is a cancelled run, and must not expire after `keep_secs`. Otherwise the run could be started in a second shard. The same holds for
/// the map.
///
/// Guarantees: SHARD-11.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn sharded_store_marks_never_expire() {
    let server = server(&[]);
    let place = |_| Place::at(&server.url(), false);
    let places = [(); 2].map(place);
    let keep = |place: &Place| place.store_with(place.options().with_keep_finished(Duration::from_secs(1)));
    let open = |generations: &[&[&str]]| {
        let mut builder = ShardedStore::builder().shard("a", keep(&places[0]));
        if generations.len() > 1 {
            builder = builder.shard("b", keep(&places[1]));
        }
        generations
            .iter()
            .fold(builder, |builder, shards| builder.generation(shards.iter().copied()))
            .build()
            .unwrap()
    };
    open(&[&["a"]]).setup().await.unwrap();
    // The map is written again after the first time.
    let newest = open(&[&["a"], &["a", "b"]]);
    newest.setup().await.unwrap();
    let mut authors: Vec<Log> = (0..8).map(|n| log_of(&format!("r-{n}"))).collect();
    for author in &mut authors {
        append_one(&newest, &author.next(1)).await.unwrap();
    }
    let (mut redis, mut marks) = (connect(&server.url()).await, 0);
    let kept = places[0].store();
    for run in kept.runs(&RunQuery::default(), Page::first(100)).await.unwrap().items {
        if run.facts.workflow.is_reserved() {
            let ttl: i64 =
                redis::cmd("PTTL").arg(places[0].key(&run.run)).query_async(&mut redis).await.unwrap();
            assert_eq!(ttl, -1, "{} expires", run.run);
            marks += 1;
        }
    }
    assert!(marks > 2, "a map and shard markers: {marks}");
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn foreign_value_is_corrupt_and_hides_no_run() {
    let server = server(&[]);
    let place = Place::at(&server.url(), false);
    let store = place.store();
    store.setup().await.unwrap();
    let (mut author, mut other) = (log_of("r-1"), log_of("r-2"));
    author.write(&store, 1).await;
    other.write(&store, 1).await;
    let key = place.key(&author.key);
    send(&server.url(), &[&format!("SET|{key}|strange")]).await;
    says(&append_one(&store, &author.next(1)).await.unwrap_err(), ErrorKind::Corrupt, &["WRONGTYPE"]);
    assert_eq!(kind(store.head(&author.key).await), ErrorKind::Corrupt);
    assert_eq!(kind(store.load(&author.key, At::Latest).await), ErrorKind::Corrupt);
    is_kept(&other, &store).await;
    store.purge(&author.key, None).await.unwrap();
    author.records.clear();
    author.write(&store, 1).await;
    // A list of another program, and one without its records: both are errors, and not missing runs.
    for parts in ["{}|x|y", "{}"] {
        send(&server.url(), &[&format!("DEL|{key}"), &format!("RPUSH|{key}|{parts}")]).await;
        let refused = append_one(&store, &author.next(1)).await.unwrap_err();
        says(&refused, ErrorKind::Corrupt, &["unreadable"]);
        says(&store.load(&author.key, At::Latest).await.unwrap_err(), ErrorKind::Corrupt, &["no record"]);
        assert_eq!(kind(store.head(&author.key).await), ErrorKind::Corrupt);
        is_kept(&other, &store).await;
    }
    store.purge(&author.key, None).await.unwrap();
    assert_eq!(store.load(&author.key, At::Latest).await.unwrap(), None);
}

/// Guarantees: REDIS-8.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_record_over_the_limit_is_too_large() {
    let (server, author) = (server(&[]), log_of("r-1"));
    let store = Place::at(&server.url(), false).store();
    let append = author.next_as(1, vec![0; (64 << 20) + 1], |_| {});
    says(&append_one(&store, &append).await.unwrap_err(), ErrorKind::TooLarge, &["67108865"]);
    assert_eq!(store.head(&author.key).await.unwrap(), None);
}

#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn another_layout_is_unsupported_for_every_call() {
    let server = server(&[]);
    for (marker, remedy) in [(r#"{"version":2,"shards":1}"#, "upgrade"), ("2 1", "use another prefix")] {
        let place = Place::at(&server.url(), false);
        send(&server.url(), &[&format!("SET|{}:layout|{marker}", place.prefix)]).await;
        let (store, author) = (place.store(), log_of("r-1"));
        says(&store.setup().await.unwrap_err(), ErrorKind::Unsupported, &[remedy]);
        says(&append_one(&store, &author.next(1)).await.unwrap_err(), ErrorKind::Unsupported, &[remedy]);
        let listed = store.runs(&RunQuery::default(), Page::default()).await;
        says(&listed.unwrap_err(), ErrorKind::Unsupported, &[remedy]);
    }
    let keys: u64 = redis::cmd("DBSIZE").query_async(&mut connect(&server.url()).await).await.unwrap();
    assert_eq!(keys, 2, "only the markers may exist");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn cluster_without_node_is_unavailable_until_it_returns() {
    let cluster = RedisCluster::start(3).unwrap();
    for node in cluster.nodes() {
        send(&node.url(), &["CONFIG|SET|appendfsync|always"]).await;
    }
    // A plain URL leads to one node, which redirects to the others.
    let plain = Place::at(&cluster.url(), false).store();
    let mut told = 0;
    for n in 0..20 {
        let result: Result<_> = plain.head(&log_of(&format!("r-{n}")).key).await;
        if let Err(error) = result {
            says(&error, ErrorKind::Invalid, &["MOVED", "redis-cluster://"]);
            told += 1;
        }
    }
    assert!(told > 0, "two thirds of the runs are on other nodes");

    let place = Place::at(&cluster.url(), true);
    let (store, hasty) =
        (place.store(), place.store_with(place.options().with_response_timeout(Duration::from_secs(3))));
    store.setup().await.unwrap();
    let mut authors: Vec<Log> = (0..12).map(|n| log_of(&format!("r-{n}"))).collect();
    for author in &mut authors {
        author.write(&store, 1).await;
    }
    let missed_after = async |time: &str| {
        for node in cluster.nodes() {
            send(&node.url(), &[&format!("CONFIG|SET|cluster-node-timeout|{time}")]).await;
        }
    };
    // The prefix decides which node has the layout. An instance that has not read the layout appends nothing, because that node may be the killed
    // one.
    hasty.runs(&RunQuery::default(), Page::default()).await.unwrap();
    // The other nodes must detect the failure soon, and later must not report a node of a busy machine.
    missed_after("2000").await;
    cluster.nodes()[1].kill().unwrap();
    let appends: Vec<_> = authors.iter().map(|author| author.next(1)).collect();
    eventually("the cluster's word that it is down", async || {
        let results = hasty.append(appends.clone()).await;
        results.into_iter().any(|result| match result {
            Ok(_) => false,
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                error.to_string().contains("CLUSTERDOWN")
            }
        })
    })
    .await;
    cluster.nodes()[1].restart().unwrap();
    eventually("a whole cluster", async || hasty.runs(&RunQuery::default(), Page::default()).await.is_ok())
        .await;
    missed_after("60000").await;
    // The connections of the earlier store are broken, and report this at their next use.
    let fresh = place.store();
    for (author, append) in authors.iter_mut().zip(appends) {
        append_surely(&store, &append).await.unwrap();
        author.note_append(&append);
        is_kept(author, &fresh).await;
    }
}

/// The documented command gives a user all permissions that the store needs, and the store uses no others.
///
/// Guarantees: REDIS-16.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn the_rights_that_the_documentation_lists_are_enough() {
    let page = include_str!("../../../../docs/reference/store-redis.md");
    let start = page.find("ACL SETUSER ferrata").unwrap();
    let command = &page[start..start + page[start..].find("```").unwrap()];
    let command = command.split_whitespace().collect::<Vec<_>>();
    let server = server(&[]);
    let mut connection = connect(&server.url()).await;
    redis::cmd(command[0]).arg(&command[1..]).exec_async(&mut connection).await.unwrap();
    let url = server.url().replace("redis://", "redis://ferrata:secret@");
    let store = RedisStore::from_url(&url, RedisOptions::default()).unwrap();
    store.setup().await.unwrap();
    assert_ne!(
        store.persistence(),
        Some(ferrata_store_redis::Persistence::Unknown),
        "the user may read the configuration"
    );
    // A store announces its own appends without the server.
    let reader = RedisStore::from_url(&url, RedisOptions::default()).unwrap();
    let mut notices = reader.subscribe().unwrap();
    let mut author = log_of("r-1");
    author.write(&store, 3).await;
    author.write_with(&store, 1, |header| header.status = ferrata_store::RunStatus::Interrupted).await;
    is_kept(&author, &store).await;
    let mut base = author.records[2].clone();
    base.header.base = true;
    let cut = ferrata_store::PruneCut { at: base.header.seq, base: Some(base) };
    store.prune(&author.key, cut).await.unwrap();
    store
        .heartbeat(&"019aa4b6-4500-768c-931c-6e7d5b8ea912".parse().unwrap(), Duration::from_secs(1))
        .await
        .unwrap();
    assert_eq!(store.repair().await.unwrap(), 1);
    let told = async {
        loop {
            assert!(author.records.len() < 100, "no notice of a hundred changes");
            author.write(&store, 1).await;
            tokio::select! {
                notice = notices.next() => break notice.unwrap(),
                () = eventually_later() => {}
            }
        }
    };
    assert!(told.await.is_none_or(|notice| notice.run.run.as_str() == "r-1"));
    store.purge(&ferrata_store::RunId::new("r-1").unwrap().into(), None).await.unwrap();
    let kept = RedisStore::from_url(&format!("{url}/0?prefix=ferrata&keep_secs=60"), RedisOptions::default())
        .unwrap();
    let mut finished = log_of("r-2");
    finished.write_with(&kept, 1, |header| header.status = ferrata_store::RunStatus::Failed).await;
    finished.write(&kept, 1).await;
    is_kept(&finished, &kept).await;
}

/// Waits for a moment in which a notice may arrive.
async fn eventually_later() {
    use ferrata_store::Clock as _;
    ferrata_store::SystemClock::new().sleep(Duration::from_millis(500)).await;
}
