//! Many runs in one script: an error of one run does not affect the others, and the script is short.
use std::collections::HashMap;

use crate::common::author::{append_one, append_surely, is_kept, log_of, mark};
use crate::common::{Place, connect};
use ferrata_store::{CheckpointStore, ErrorKind, HeadRef, Result, RunAppend, RunStatus};
use ferrata_store_redis::RedisStore;
use ferrata_test_servers::{
    FaultEffect, FaultPosition as In, FaultTrigger, Proxy, ProxyFault, RedisCluster, RedisServer,
    RedisServerOptions as Server, Service,
};
use ferrata_testing::Log;

/// Number of scripts that these servers ran.
async fn scripts(servers: &[RedisServer]) -> u64 {
    let mut sum = 0;
    for server in servers {
        let mut connection = connect(&server.url()).await;
        let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
        let of = |line: &str| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse().ok();
        sum += info.lines().find_map(of).unwrap_or(0);
    }
    sum
}

/// A space on a server that is set up, and runs that started together.
async fn begun(place: &Place, count: usize) -> (RedisStore, Vec<Log>) {
    let store = place.store_with(place.options().with_repair_every(std::time::Duration::ZERO));
    store.setup().await.unwrap();
    let mut authors: Vec<Log> = (0..count).map(|n| log_of(&format!("r-{n}"))).collect();
    let batch = authors.iter().map(|author| author.next(1)).collect();
    all_written(&store, &mut authors, batch).await;
    (store, authors)
}

async fn all_written(store: &RedisStore, authors: &mut [Log], batch: Vec<RunAppend>) {
    for ((author, append), result) in authors.iter_mut().zip(batch.clone()).zip(store.append(batch).await) {
        assert_eq!(result.unwrap(), append.records.last().unwrap().header.head());
        author.note_append(&append);
    }
}

async fn all_kept(store: &RedisStore, authors: &[Log]) {
    for author in authors {
        is_kept(author, store).await;
    }
}

/// In a batch of one script, every second run is refused for another reason. The other runs are written.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn refused_entry_spares_other_runs_in_script() {
    let server = RedisServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url(), false);
    let (store, mut authors) = begun(&place, 12).await;
    let mut plain = connect(&server.url()).await;
    // Two keys belong to another program: one is found at the first read, and one at a write of the index.
    let key = place.key(&authors[0].key);
    redis::cmd("SET").arg(&key).arg("strange").exec_async(&mut plain).await.unwrap();
    let set = format!("{}:{{index-0}}:s:failed", place.prefix);
    redis::cmd("SET").arg(&set).arg("strange").exec_async(&mut plain).await.unwrap();
    // One run that another writer continued, one that was purged, and one whose records are missing.
    let (mut other, stale) = (authors[4].clone(), authors[4].next(1));
    other.write(&place.store(), 1).await;
    let lost = authors[6].next(2);
    place.store().purge(&authors[6].key, None).await.unwrap();
    let bare = place.key(&authors[8].key);
    redis::cmd("LTRIM").arg(&bare).arg(0).arg(0).exec_async(&mut plain).await.unwrap();
    // One run that exists, and is started again.
    let mut again = log_of("r-10");
    again.facts.version = "2".into();

    let mut batch: Vec<RunAppend> = authors.iter().map(|author| author.next(1)).collect();
    batch[2] = authors[2].next_as(1, b"", |header| header.status = RunStatus::Failed);
    (batch[4], batch[6], batch[10]) = (stale, lost, again.next(1));
    let before = scripts(std::slice::from_ref(&server)).await;
    let results = store.append(batch.clone()).await;
    assert_eq!(scripts(std::slice::from_ref(&server)).await - before, 1, "all entries must be in one script");
    let kinds: Vec<Option<ErrorKind>> =
        results.iter().map(|result| result.as_ref().err().map(ferrata_store::Error::kind)).collect();
    let (corrupt, conflict) = (Some(ErrorKind::Corrupt), Some(ErrorKind::Conflict));
    let expected =
        [corrupt, None, corrupt, None, conflict, None, conflict, None, corrupt, None, conflict, None];
    assert_eq!(kinds, expected, "{results:?}");
    assert_eq!(results[4].as_ref().unwrap_err().actual_head(), Some(other.head()));

    redis::cmd("DEL").arg(&set).exec_async(&mut plain).await.unwrap();
    for (n, (author, append)) in authors.iter_mut().zip(batch).enumerate() {
        match n {
            0 | 8 => continue,
            4 => author.records.clone_from(&other.records),
            6 => author.records.clear(),
            n if n % 2 == 1 => author.note_append(&append),
            _ => {}
        }
        is_kept(author, &store).await;
    }
}

/// The connection is lost before, during and after a batch, and during its reply. A repetition of the batch completes it.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn repeated_batch_settles_lost_reply() {
    let server = RedisServer::start(Server::default()).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let place = Place::at(&proxy.url(&server.url()), false);
    let (store, mut authors) = begun(&place, 100).await;
    for (round, at) in In::ALL.into_iter().enumerate() {
        let batch: Vec<_> = authors
            .iter()
            .enumerate()
            .map(|(n, author)| {
                // Some runs also change their place in the index.
                let status = if n % 7 == round { RunStatus::Interrupted } else { RunStatus::InProgress };
                author.next_as(1 + n % 2, b"{}", |header| header.status = status)
            })
            .collect();
        proxy.arm(
            FaultTrigger::containing(mark(&batch[0])),
            ProxyFault { place: at, act: FaultEffect::Reset },
        );
        let results = store.append(batch.clone()).await;
        assert_eq!(proxy.done().len(), round + 1, "the connection was cut");
        let in_doubt = |result: &Result<HeadRef>| {
            result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate)
        };
        assert!(results.iter().all(in_doubt), "cut at {at:?}: {results:?}");
        for (author, append) in authors.iter_mut().zip(batch) {
            append_surely(&store, &append).await.unwrap();
            author.note_append(&append);
        }
        all_kept(&store, &authors).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn large_batch_is_split_to_unblock_server() {
    let server = RedisServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url(), false);
    let (store, mut authors) = begun(&place, 200).await;
    for (body, runs, expected) in [(10, 200, 4), (300 << 10, 9, 3), (600 << 10, 3, 3), (10, 1, 1)] {
        let body = vec![b'x'; body];
        let batch: Vec<_> = authors[..runs].iter().map(|author| author.next_as(1, &body, |_| {})).collect();
        let before = scripts(std::slice::from_ref(&server)).await;
        all_written(&store, &mut authors[..runs], batch).await;
        let ran = scripts(std::slice::from_ref(&server)).await - before;
        assert_eq!(ran, expected, "{runs} runs with bodies of {} bytes", body.len());
    }
    // One append with more records than Lua accepts values at once.
    let append = authors[0].next(1_700);
    append_one(&store, &append).await.unwrap();
    authors[0].note_append(&append);
    all_kept(&store, &authors[..12]).await;
}

/// Run ids. The first two share a slot of the cluster, and the others are in other slots.
async fn names_with_a_shared_slot(place: &Place) -> Vec<String> {
    let mut connection = connect(&place.server).await;
    let mut seen: HashMap<u16, String> = HashMap::new();
    for n in 0.. {
        let name = format!("r-{n}");
        let key = place.key(&log_of(&name).key);
        let slot = redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query_async(&mut connection).await.unwrap();
        if let Some(first) = seen.insert(slot, name.clone()) {
            let others = seen.into_values().filter(|other| *other != name).take(20);
            return [first, name.clone()].into_iter().chain(others).collect();
        }
    }
    unreachable!("there are fewer slots than numbers")
}

/// In a cluster, only runs of one slot share a script. The same holds for a plain URL of a server that refuses keys of several slots, such as a proxy
/// in front of a cluster.
async fn only_runs_of_one_slot_go_together(cluster: &RedisCluster, place: &Place) {
    let store = place.store_with(place.options().with_repair_every(std::time::Duration::ZERO));
    store.setup().await.unwrap();
    let names = names_with_a_shared_slot(place).await;
    let mut authors: Vec<Log> = names.iter().map(|name| log_of(name)).collect();
    let starts = authors.iter().map(|author| author.next(1)).collect();
    all_written(&store, &mut authors, starts).await;
    let before = scripts(cluster.nodes()).await;
    let batch: Vec<_> = authors.iter().map(|author| author.next(1)).collect();
    all_written(&store, &mut authors, batch).await;
    let ran = scripts(cluster.nodes()).await - before;
    assert_eq!(ran, authors.len() as u64 - 1, "two of {} runs are in the same slot", authors.len());
    // The second of the two runs with a common slot is refused, and one with its own slot.
    let mut batch: Vec<_> = authors.iter().map(|author| author.next(1)).collect();
    for n in [1, 3] {
        authors[n].write(&place.store(), 1).await;
    }
    let results = store.append(batch.clone()).await;
    for (n, ((author, append), result)) in authors.iter_mut().zip(batch.drain(..)).zip(results).enumerate() {
        match result {
            Ok(_) => author.note_append(&append),
            Err(error) => {
                assert_eq!((error.kind(), error.actual_head()), (ErrorKind::Conflict, Some(author.head())));
                assert!(matches!(n, 1 | 3), "run {n} was refused");
            }
        }
    }
    all_kept(&store, &authors).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn runs_of_one_cluster_slot_share_script() {
    let cluster = RedisCluster::start(3).unwrap();
    only_runs_of_one_slot_go_together(&cluster, &Place::at(&cluster.url(), true)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_redis_cluster), ignore = "set STORE_TEST_REDIS_CLUSTER_URL")]
async fn setup_detects_plain_url_of_cluster() {
    let cluster = RedisCluster::start(1).unwrap();
    only_runs_of_one_slot_go_together(&cluster, &Place::at(&cluster.url(), false)).await;
}

/// The server also sends a process its own notices. The store delivers one notice with the head, so its run need not read its own writes.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn store_announces_own_append_once_with_head() {
    let place = Place::on(Service::Redis);
    let (store, other) = (place.store(), place.store());
    store.setup().await.unwrap();
    let mut notices = store.subscribe().unwrap();
    let mut theirs = log_of("theirs");
    // Wait until the connection listens.
    let clock = ferrata_store::SystemClock::new();
    loop {
        theirs.write(&other, 1).await;
        if ferrata_store::within(&clock, std::time::Duration::from_millis(50), notices.next()).await.is_some()
        {
            break;
        }
    }
    let mut ours = log_of("ours");
    for _ in 0..20 {
        ours.write(&store, 1).await;
    }
    other.purge(&theirs.key, None).await.unwrap();
    let mut heads = Vec::new();
    loop {
        let heard = notices.next().await.unwrap().expect("no notice was missed");
        if heard.run == ours.key {
            heads.push(heard.head);
        } else if heads.len() >= 20 {
            break;
        }
    }
    let written = ours.records.iter().map(|record| Some(record.header.head()));
    assert_eq!(heads, written.collect::<Vec<_>>());
    place.remove().await;
}
