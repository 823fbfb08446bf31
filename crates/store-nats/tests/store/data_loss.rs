//! A server that restarts without its last messages, as after a power loss or from a backup: cached heads of other processes neither overwrite nor
//! hide new messages.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::fs;
use std::path::Path;

use ferrata_store::{CheckpointStore, ErrorKind, Page, RunQuery};
use ferrata_store_nats::NatsStore;
use ferrata_test_servers::{NatsServer, NatsServerOptions as Server, Proxy};

use crate::common::Place;
use crate::surely::{append_one, is_kept, log_of, surely};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let copied = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &copied),
            false => drop(fs::copy(entry.path(), copied).unwrap()),
        }
    }
}

/// Saves a copy of a server's data.
fn save(server: &NatsServer) {
    server.stop().unwrap();
    copy(&server.folder().join("jetstream"), &server.folder().join("saved"));
    server.restart().unwrap();
}

/// Restarts a server with the saved copy.
fn lose(server: &NatsServer) {
    server.kill().unwrap();
    fs::remove_dir_all(server.folder().join("jetstream")).unwrap();
    copy(&server.folder().join("saved"), &server.folder().join("jetstream"));
    server.restart().unwrap();
}

/// Guarantees: NATS-9.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn append_to_lost_head_is_refused() {
    let server = NatsServer::start(Server::default()).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let place = Place::at(&server.url());
    // The second store reconnects only when it appends.
    let waits = NatsStore::from_url(&proxy.url(&server.url()), place.options()).unwrap();
    let writers = [place.store(), waits];
    writers[0].setup().await.unwrap();
    let mut kept = [log_of("r-1"), log_of("r-2")];
    for (writer, log) in writers.iter().zip(&mut kept) {
        log.write(writer, 1).await;
    }
    save(&server);
    let mut lost = kept.clone();
    for (writer, log) in writers.iter().zip(&mut lost) {
        let append = log.next(1);
        surely(async || append_one(writer, &append).await).await.unwrap();
        log.note_append(&append);
    }
    proxy.refuse();
    lose(&server);
    let other = place.store();
    let late = lost.map(|log| log.next(1));
    let others_write = async {
        for log in &mut kept {
            let append = log.next(1);
            surely(async || append_one(&other, &append).await).await.unwrap();
            log.note_append(&append);
        }
        proxy.accept().unwrap();
    };
    let (refused, ()) = tokio::join!(surely(async || append_one(&writers[1], &late[1]).await), others_write);
    let refused = [surely(async || append_one(&writers[0], &late[0]).await).await, refused];
    for (refused, log) in refused.into_iter().zip(&kept) {
        let refused = refused.expect_err("the append follows a lost record");
        assert_eq!((refused.kind(), refused.actual_head()), (ErrorKind::Conflict, Some(log.head())));
        is_kept(log, &other).await;
    }
}

/// Guarantees: NATS-9.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(store_test_nats), ignore = "set STORE_TEST_NATS_URL")]
async fn listing_omits_lost_runs_and_shows_newer() {
    let server = NatsServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url());
    let (lists, writes) = (place.store(), place.store());
    lists.setup().await.unwrap();
    let listed = async || {
        let listed = surely(async || lists.runs(&RunQuery::default(), Page::first(10)).await).await.unwrap();
        let mut runs: Vec<_> = listed.items.iter().map(|head| head.run.run.to_string()).collect();
        runs.sort();
        runs
    };
    let write = async |name| {
        let append = log_of(name).next(1);
        surely(async || append_one(&writes, &append).await).await.unwrap();
    };
    write("kept").await;
    save(&server);
    write("lost").await;
    assert_eq!(listed().await, ["kept", "lost"]);
    lose(&server);
    // The position of the lost run.
    write("new").await;
    assert_eq!(listed().await, ["kept", "new"]);
}
