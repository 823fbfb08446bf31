//! The connection is cut before, during and after every request: no record is lost or doubled, and a repeated append finds its record by id.
use std::num::NonZeroU32;
use std::time::Duration;

use crate::common::author::{Author, append, is_kept};
use crate::common::proxy::{Cut, Proxy};
use crate::common::{Schema, retried, until};
use ferrata_store::{
    At, CheckpointStore, ErrorKind, ExecutorId, PruneCut, RunAppend, Seq, SystemClock, within,
};
use ferrata_store_postgres::PostgresStore;
use ferrata_test_servers::{FaultEffect, FaultPosition, FaultTrigger, ProxyFault};

/// Appends a batch, and what was not acknowledged again.
async fn appended(store: &PostgresStore, batch: &[RunAppend]) {
    let results = retried(async || {
        let results = store.append(batch.to_vec()).await;
        for result in &results {
            if let Err(error) = result
                && error.is_retryable()
            {
                return Err(error.clone());
            }
        }
        Ok(results)
    })
    .await;
    for (entry, result) in batch.iter().zip(results) {
        // A conflict here would be with our own record, of the try whose reply was lost.
        assert_eq!(result.unwrap(), entry.records.last().unwrap().header.head());
    }
}

/// What a process does with its store, from the first setup on.
async fn work(store: &PostgresStore) -> [Author; 3] {
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(Author::new);
    retried(async || store.setup().await).await;
    appended(store, &[a.next(1), b.next(3)]).await;
    appended(store, &[a.next(2), c.next(1), b.next(1)]).await;
    appended(store, &[a.next(1)]).await;
    retried(async || {
        store.heartbeat(&ExecutorId::from_uuid(*c.head().unwrap().id.as_uuid()), Duration::ZERO).await
    })
    .await;
    appended(store, &[c.next(6)]).await;
    let cut = PruneCut { at: Seq::new(5), base: None };
    retried(async || store.prune(&c.key, cut.clone()).await).await;
    retried(async || store.purge(&b.key, None).await).await;
    let loaded = retried(async || store.load(&a.key, At::Latest).await).await.unwrap();
    assert_eq!(loaded, a.records);
    [a, b, c]
}

async fn survives(cut: Cut) {
    let mut at = 0;
    loop {
        let direct = Schema::new();
        let proxy = Proxy::before(&direct.url).await;
        let through = Schema { name: direct.name.clone(), url: proxy.url(&direct.url) };
        proxy.cut_at(at, cut);
        // One connection, so that the requests come one after the other.
        let options = through.options().with_connections(NonZeroU32::MIN).with_notices(false);
        let store = PostgresStore::from_url(&through.url, options).unwrap();
        let [a, b, mut c] = work(&store).await;

        let store = direct.store();
        is_kept(&store, &a).await;
        assert!(store.head(&b.key).await.unwrap().is_none(), "purged, cut {cut:?} at {at}");
        let kept = c.records.split_off(5);
        assert_eq!(store.load(&c.key, At::Latest).await.unwrap().unwrap(), kept[..], "cut {cut:?} at {at}");
        assert_eq!(store.head(&c.key).await.unwrap().unwrap().first, Seq::new(5));
        let has_cut = proxy.has_cut();
        direct.remove().await;
        if !has_cut {
            // Fewer would mean that the proxy no longer sees the requests.
            assert!(at > 20, "{at} requests were cut");
            return;
        }
        at += 1;
    }
}

#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn connection_cut_before_any_request_applies_once() {
    survives(Cut::Before).await;
}

/// Guarantees: POSTGRES-1.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn connection_cut_during_any_request_applies_once() {
    survives(Cut::During).await;
}

#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn connection_cut_after_any_request_applies_once() {
    survives(Cut::After).await;
}

/// The reply to an append is lost: the store does not know, says so, and does not try again by itself.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn repeated_append_settles_lost_reply() {
    for cut in [Cut::Before, Cut::During, Cut::After] {
        let direct = Schema::new();
        let proxy = Proxy::before(&direct.url).await;
        let through = Schema { name: direct.name.clone(), url: proxy.url(&direct.url) };
        let options = through.options().with_connections(NonZeroU32::MIN).with_notices(false);
        let store = PostgresStore::from_url(&through.url, options).unwrap();
        store.setup().await.unwrap();
        let mut author = Author::new("r");
        append(&store, author.next(1)).await.unwrap();
        // Prepares the statement, so that the request which is cut is the append itself.
        append(&store, author.next(2)).await.unwrap();
        let entry = author.next(2);
        proxy.cut_at(0, cut);
        let lost = append(&store, entry.clone()).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Indeterminate, "{cut:?}: {lost:?}");
        assert_eq!(proxy.take_requests(), 1, "{cut:?}: one try");
        let head = direct.store().head(&author.key).await.unwrap().unwrap().seq;
        assert_eq!(head, Seq::new(if cut == Cut::After { 4 } else { 2 }), "{cut:?}");
        append(&store, entry).await.unwrap();
        is_kept(&direct.store(), &author).await;
        direct.remove().await;
    }
}

/// The body of the record that meets the silence.
const SILENT: &[u8] = br#"{"silent": true}"#;

/// Every connection goes silent at once, as behind a proxy during a failover: each call ends within its time limit, and the next calls use new
/// connections. The driver alone would keep the dead connections in the pool until the system's timeout.
///
/// Guarantees: STORE-3.
#[tokio::test]
#[cfg_attr(not(store_test_postgres), ignore = "set STORE_TEST_POSTGRES_URL")]
async fn silent_connections_time_out_and_free_pool() {
    for (prepared, connections) in [(true, 1), (true, 3), (false, 2)] {
        let direct = Schema::new();
        direct.store().setup().await.unwrap();
        let address = direct.url.parse::<sqlx::postgres::PgConnectOptions>().unwrap();
        let server = format!("{}:{}", address.get_host(), address.get_port()).parse().unwrap();
        let proxy = ferrata_test_servers::Proxy::start(server).unwrap();
        // Long enough for a new connection and its answer on a busy machine.
        let patience = Duration::from_millis(1_500);
        let options = direct.options().with_connections(NonZeroU32::new(connections).unwrap());
        let options = options.with_notices(false).with_prepared(prepared).with_response_timeout(patience);
        let store = PostgresStore::from_url(&proxy.url(&direct.url), options).unwrap();
        let mut author = Author::new("r");
        append(&store, author.next(1)).await.unwrap();
        let heads = async |is_dropped: bool| {
            let mut heads = tokio::task::JoinSet::new();
            for _ in 0..2 * connections {
                let (store, run) = (store.clone(), author.key.clone());
                heads.spawn(async move { store.head(&run).await.map(drop) });
            }
            if is_dropped {
                // On their way, and then nobody waits for them any more.
                let _ = within(&SystemClock::new(), patience / 3, heads.join_all()).await;
                return Vec::new();
            }
            heads.join_all().await
        };
        for round in 0..2 {
            assert!(heads(false).await.iter().all(Result::is_ok), "round {round}");
            proxy.silence();
            // A read goes over another connection by itself.
            assert!(heads(false).await.iter().all(Result::is_ok), "round {round}");
            proxy.silence();
            heads(true).await;
            assert!(
                heads(false).await.iter().all(Result::is_ok),
                "round {round}: dropped calls leave no hole"
            );
        }
        // An append whose reply does not come is in doubt. The silence begins at the append itself: before it sends anything, the store asks a
        // connection that was idle for a second whether it is there, so an earlier silence might meet that question instead.
        let entry = author.next_as(1, SILENT, |_| ());
        let fault =
            ProxyFault { place: FaultPosition::RequestByte(0), act: FaultEffect::Delay(Duration::MAX) };
        proxy.arm(FaultTrigger::containing(SILENT), fault);
        let mut first = tokio::task::JoinSet::new();
        first.spawn({
            let (store, entry) = (store.clone(), entry.clone());
            async move { append(&store, entry).await }
        });
        until("the append to be sent", async || !proxy.done().is_empty()).await;
        proxy.silence();
        let (mut result, mut lost) = (first.join_all().await.remove(0), 0);
        while let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
            assert!(error.to_string().contains("response_timeout"), "{error}");
            lost += 1;
            result = append(&store, entry.clone()).await;
        }
        assert!((1..=connections).contains(&lost), "{lost}");
        is_kept(&direct.store(), &author).await;
        // The server holds the tables for a silent transaction until its connection ends.
        drop((store, proxy));
        direct.remove().await;
    }
}
