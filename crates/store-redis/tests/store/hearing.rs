//! Notices between processes continue after the runtime of the first listener ends, and after a silent connection.
use std::time::Duration;

use crate::common::Place;
use crate::common::author::eventually;
use ferrata_store::{CheckpointStore, Relay, RelayTexts, SystemClock, within};
use ferrata_store_redis::RedisStore;
use ferrata_test_servers::{
    FaultEffect, FaultPosition as In, FaultTrigger, Proxy, ProxyFault, RedisServer,
    RedisServerOptions as Server,
};

fn relay(store: &RedisStore) -> &dyn Relay {
    store.relay().unwrap()
}

/// Checks that notices of another process arrive.
async fn is_heard(mut texts: RelayTexts, place: &Place) {
    relay(&place.store()).publish(vec!["word".to_owned()]).await.unwrap();
    let heard = within(&SystemClock::new(), Duration::from_secs(20), texts.next()).await;
    assert_eq!(heard.expect("no notice arrives").unwrap().as_deref(), Some("word"));
}

/// Guarantees: REDIS-17.
#[test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
fn who_listens_outlives_the_runtime_that_began_it() {
    let server = RedisServer::start(Server::default()).unwrap();
    let place = Place::at(&server.url(), false);
    let store = place.store();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let texts = relay(&store).listen().await.unwrap();
        is_heard(texts, &place).await;
    });
    drop(first);
    runtime().block_on(async {
        let texts = relay(&store).listen().await.unwrap();
        is_heard(texts, &place).await;
    });
}

/// A connection that is accepted and never answered is given up like any other.
///
/// Guarantees: REDIS-17.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn a_listener_on_a_silent_network_begins_anew() {
    let server = RedisServer::start(Server::default()).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let place = Place::at(&server.url(), false);
    let options = place.options().with_connect_timeout(Duration::from_millis(500));
    let store = RedisStore::from_url(&proxy.url(&server.url()), options).unwrap();
    // The first connection is the one that listens.
    proxy.arm(
        FaultTrigger::Connection(1),
        ProxyFault { place: In::RequestByte(0), act: FaultEffect::Delay(Duration::MAX) },
    );
    drop(relay(&store).listen().await);
    eventually("a listener", async || relay(&store).listen().await.is_ok()).await;
    assert_eq!(proxy.done().len(), 1, "the first connection must be silent");
    is_heard(relay(&store).listen().await.unwrap(), &place).await;
}

/// A network that drops everything without closing a connection is detected by a ping after 30 s of silence.
///
/// Guarantees: REDIS-17.
#[tokio::test]
#[cfg_attr(not(store_test_redis), ignore = "set STORE_TEST_REDIS_URL")]
async fn listener_reconnects_after_network_silence() {
    let server = RedisServer::start(Server::default()).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let place = Place::at(&server.url(), false);
    let options = place.options().with_connect_timeout(Duration::from_millis(500));
    let store = RedisStore::from_url(&proxy.url(&server.url()), options).unwrap();
    let mut texts = relay(&store).listen().await.unwrap();
    relay(&place.store()).publish(vec!["before".to_owned()]).await.unwrap();
    assert_eq!(texts.next().await.unwrap().as_deref(), Some("before"));
    let connections = proxy.connections();
    proxy.silence();
    // The half minute passes at once. Only the network takes real time.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    eventually("another connection", async || proxy.connections() > connections).await;
    drop(relay(&store).listen().await.unwrap());
    is_heard(texts, &place).await;
}
