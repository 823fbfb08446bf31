//! Keys per tenant from an external provider: changed and erased.
#![expect(clippy::disallowed_methods, reason = "callers that ask at once are tasks")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    At, CheckpointStore, Error, ErrorKind, HeaderRange, MemoryStore, Page, PruneCut, Result, RunId, RunKey,
    RunQuery, TenantId, Timestamp,
};
use ferrata_store_envelope::{CachedKeys, EnvelopeOptions, EnvelopeStore, KeyProvider, Keyring};
use ferrata_testing::{Log, ManualClock};
use futures_util::FutureExt as _;

use super::keys;

/// A key service that counts its calls, can be unavailable, and answers slowly.
#[derive(Debug, Default)]
struct Service {
    rings: Mutex<HashMap<String, Keyring>>,
    asked: AtomicUsize,
    is_away: Mutex<bool>,
    is_slow_for: Mutex<Vec<&'static str>>,
}

impl Service {
    fn set(&self, tenant: &str, names: &[&str]) {
        self.rings.lock().unwrap().insert(tenant.to_owned(), keys(names));
    }

    fn erase(&self, tenant: &str) {
        self.rings.lock().unwrap().remove(tenant);
    }

    fn asked(&self) -> usize {
        self.asked.swap(0, Ordering::Relaxed)
    }
}

#[async_trait]
impl KeyProvider for Service {
    async fn keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        // Other tasks run in between.
        tokio::task::yield_now().await;
        if self.is_slow_for.lock().unwrap().contains(&tenant.as_str()) {
            std::future::pending::<()>().await;
        }
        if *self.is_away.lock().unwrap() {
            return Err(Error::new(ErrorKind::Unavailable, "the service of keys is away"));
        }
        let ring = self.rings.lock().unwrap().get(tenant.as_str()).cloned();
        let erased = || Error::new(ErrorKind::Unsupported, format!("the keys of {tenant} were erased"));
        ring.map(Arc::new).ok_or_else(erased)
    }
}

fn log(tenant: &str, run: &str) -> Log {
    Log::new(RunKey::new(tenant.parse::<TenantId>().unwrap(), RunId::new(run).unwrap()))
}

fn store_with(keys: impl KeyProvider, inner: &MemoryStore) -> EnvelopeStore<MemoryStore> {
    EnvelopeStore::new(inner.clone(), EnvelopeOptions::default().with_keys(keys))
}

async fn kind(store: &dyn CheckpointStore, run: &RunKey) -> std::result::Result<(), ErrorKind> {
    store.load(run, At::Latest).await.map(drop).map_err(|error| {
        assert_eq!(error.run(), Some(run), "{error}");
        error.kind()
    })
}

const LIFE: Duration = Duration::from_secs(300);

fn cached(service: &Arc<Service>) -> (ManualClock, Arc<CachedKeys<Arc<Service>>>) {
    let clock = ManualClock::new(Timestamp::from_unix_ms(0));
    let cached = CachedKeys::new(Arc::clone(service), LIFE).with_clock(Arc::new(clock.clone()));
    (clock, Arc::new(cached))
}

/// Guarantees: AT-REST-10.
#[tokio::test]
async fn erased_keys_make_only_their_tenant_unreadable() {
    let (service, inner) = (Arc::new(Service::default()), MemoryStore::new());
    service.set("acme", &["a"]);
    service.set("bolt", &["b"]);
    let store = store_with(Arc::clone(&service), &inner);
    let (mut acme, mut bolt) = (log("acme", "r").with_bases_every(2), log("bolt", "r"));
    acme.write(&store, 4).await;
    bolt.write(&store, 4).await;
    for (reads, log) in [(["a"], &acme), (["b"], &bolt)] {
        assert_eq!(kind(&store_with(keys(&reads), &inner), &log.key).await, Ok(()));
    }
    assert_eq!(kind(&store_with(keys(&["b"]), &inner), &acme.key).await, Err(ErrorKind::Unsupported));
    service.erase("acme");
    assert_eq!(kind(&store, &acme.key).await, Err(ErrorKind::Unsupported));
    assert_eq!(kind(&store, &bolt.key).await, Ok(()));
    // In a batch, the other runs are written, and nothing of the tenant without keys.
    let (refused, written) = (acme.next(1), bolt.next(1));
    let answers = store.append(vec![refused, written]).await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(answers[1].is_ok());
    // Calls that need no body succeed.
    let page = store.runs(&RunQuery::default(), Page::first(10)).await.unwrap();
    assert_eq!(page.items.len(), 2);
    assert_eq!(store.head(&acme.key).await.unwrap().unwrap().seq.get(), 3);
    let headers = store.headers(&acme.key, HeaderRange::oldest(10)).await.unwrap();
    assert_eq!(headers.items.len(), 4);
    let based = headers.items.iter().rev().find(|header| header.base && header.seq.get() > 0).unwrap();
    let removed = store.prune(&acme.key, PruneCut { at: based.seq, base: None }).await.unwrap();
    assert_eq!(removed.records, based.seq.get());
    store.purge(&acme.key, None).await.unwrap();
    assert!(store.head(&acme.key).await.unwrap().is_none());
}

#[tokio::test]
async fn concurrent_requests_fetch_keyring_once_per_lifetime() {
    let service = Arc::new(Service::default());
    service.set("acme", &["a"]);
    let (clock, cached) = cached(&service);
    let acme: TenantId = "acme".parse().unwrap();
    let many = (0..20).map(|_| {
        let (cached, acme) = (Arc::clone(&cached), acme.clone());
        tokio::spawn(async move { cached.keyring(&acme).await.map(drop) })
    });
    for one in many.collect::<Vec<_>>() {
        one.await.unwrap().unwrap();
    }
    assert_eq!(service.asked(), 1);
    clock.advance(LIFE - Duration::from_millis(1));
    cached.keyring(&acme).await.unwrap();
    assert_eq!(service.asked(), 0);
    // Keys are erased, or the service is unavailable: in both cases, processes keep a key no longer than its lifetime.
    *service.is_away.lock().unwrap() = true;
    clock.advance(Duration::from_millis(1));
    for asked in [1, 0] {
        assert_eq!(cached.keyring(&acme).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(service.asked(), asked, "an error is cached for a second");
    }
    *service.is_away.lock().unwrap() = false;
    clock.advance(Duration::from_secs(1));
    cached.keyring(&acme).await.unwrap();
    service.erase("acme");
    clock.advance(LIFE);
    assert_eq!(cached.keyring(&acme).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(!format!("{cached:?}").contains("[7,"), "{cached:?}");
}

#[tokio::test]
async fn added_key_is_found_without_restart() {
    let (service, inner) = (Arc::new(Service::default()), MemoryStore::new());
    service.set("acme", &["a"]);
    let (clock, cached) = cached(&service);
    let store = store_with(cached, &inner);
    let mut log = log("acme", "r");
    log.write(&store, 1).await;
    clock.advance(Duration::from_secs(2));
    // Another process has the new key already.
    service.set("acme", &["new", "a"]);
    log.write(&store_with(Arc::clone(&service), &inner), 1).await;
    service.asked();
    assert_eq!(kind(&store, &log.key).await, Ok(()));
    assert_eq!(service.asked(), 1);
    log.write(&store, 1).await;
    let last = inner.load(&log.key, At::Latest).await.unwrap().unwrap().pop().unwrap();
    assert_eq!(&last.body[4..7], b"new");
    // An unknown key name asks the service at most once per second.
    service.asked();
    log.write(&store_with(keys(&["stranger"]), &inner), 1).await;
    for _ in 0..5 {
        assert_eq!(kind(&store, &log.key).await, Err(ErrorKind::Unsupported));
    }
    clock.advance(Duration::from_secs(1));
    for _ in 0..5 {
        assert_eq!(kind(&store, &log.key).await, Err(ErrorKind::Unsupported));
    }
    assert!(service.asked() <= 2);
}

/// A record with an unknown key must not evict the tenant's cached keyring, which other runs need.
#[tokio::test]
async fn unknown_key_does_not_evict_cached_keyring() {
    let (service, inner) = (Arc::new(Service::default()), MemoryStore::new());
    service.set("acme", &["a"]);
    let (clock, cached) = cached(&service);
    let store = store_with(Arc::clone(&cached), &inner);
    let (mut good, mut strange) = (log("acme", "r"), log("acme", "s"));
    good.write(&store, 1).await;
    strange.write(&store_with(keys(&["stranger"]), &inner), 1).await;
    service.asked();
    *service.is_away.lock().unwrap() = true;
    clock.advance(Duration::from_secs(2));
    for asked in [1, 0, 0] {
        // Whether this key exists is unknown.
        assert_eq!(kind(&store, &strange.key).await, Err(ErrorKind::Unavailable));
        assert_eq!(service.asked(), asked);
        good.write(&store, 1).await;
        assert_eq!(kind(&store, &good.key).await, Ok(()));
    }
    // A tenant with a cached keyring does not wait for the request of another tenant.
    *service.is_slow_for.lock().unwrap() = vec!["acme"];
    clock.advance(Duration::from_secs(1));
    let asking = tokio::spawn({
        let (cached, acme) = (Arc::clone(&cached), good.key.tenant.clone());
        async move { cached.refresh_keyring(&acme).await.map(drop) }
    });
    clock.until_sleepers(1).await;
    assert!(cached.keyring(&good.key.tenant).now_or_never().is_some_and(|ring| ring.is_ok()));
    clock.advance(Duration::from_secs(5));
    assert_eq!(asking.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    service.is_slow_for.lock().unwrap().clear();
    clock.advance(LIFE - Duration::from_secs(8));
    assert_eq!(kind(&store, &good.key).await, Err(ErrorKind::Unavailable), "its lifetime is over");
    *service.is_away.lock().unwrap() = false;
    clock.advance(Duration::from_secs(1));
    assert_eq!(kind(&store, &good.key).await, Ok(()));
    // An erased key is a valid answer, and takes effect as soon as it is known.
    service.erase("acme");
    clock.advance(Duration::from_secs(1));
    assert_eq!(kind(&store, &strange.key).await, Err(ErrorKind::Unsupported));
    assert_eq!(kind(&store, &good.key).await, Err(ErrorKind::Unsupported));
}

#[tokio::test]
async fn unresponsive_key_service_times_out() {
    let service = Arc::new(Service::default());
    service.set("acme", &["a"]);
    service.set("bolt", &["b"]);
    *service.is_slow_for.lock().unwrap() = vec!["acme"];
    let (clock, cached) = cached(&service);
    let (acme, bolt): (TenantId, TenantId) = ("acme".parse().unwrap(), "bolt".parse().unwrap());
    let waiting = tokio::spawn({
        let (cached, acme) = (Arc::clone(&cached), acme.clone());
        async move { cached.keyring(&acme).await.map(drop) }
    });
    clock.until_sleepers(1).await;
    cached.keyring(&bolt).await.unwrap();
    clock.advance(Duration::from_secs(5));
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("acme"), "{error}");
    // If a caller drops its request, the next caller can send one.
    let dropped = tokio::spawn({
        let (cached, acme) = (Arc::clone(&cached), acme.clone());
        async move { cached.keyring(&acme).await.map(drop) }
    });
    clock.advance(Duration::from_secs(1));
    dropped.abort();
    let _ = dropped.await;
    service.is_slow_for.lock().unwrap().clear();
    clock.advance(Duration::from_secs(1));
    cached.keyring(&acme).await.unwrap();
}

/// The keyrings of a batch's tenants are fetched concurrently, so that slow tenants do not add up.
#[tokio::test]
async fn batch_fetches_keyrings_of_tenants_concurrently() {
    let (service, inner) = (Arc::new(Service::default()), MemoryStore::new());
    for tenant in ["acme", "bolt", "cord"] {
        service.set(tenant, &["a"]);
    }
    *service.is_slow_for.lock().unwrap() = vec!["acme", "bolt"];
    let (clock, cached) = cached(&service);
    let store = store_with(cached, &inner);
    let runs = [("acme", "r"), ("bolt", "r"), ("cord", "r"), ("bolt", "s"), ("cord", "s")];
    let batch = runs.map(|(tenant, run)| log(tenant, run).next(1)).to_vec();
    let appending = tokio::spawn(async move { store.append(batch).await });
    clock.until_sleepers(1).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(service.asked(), 3, "one request per tenant");
    clock.advance(Duration::from_secs(5));
    let answers = appending.await.unwrap();
    let kinds = answers.iter().map(|answer| answer.as_ref().err().map(|error| error.kind()));
    let refused = Some(ErrorKind::Unavailable);
    assert_eq!(kinds.collect::<Vec<_>>(), [refused, refused, None, refused, None]);
    for (answer, (tenant, run)) in answers.iter().zip(runs) {
        let named = answer.as_ref().err().map(|error| error.run().unwrap().to_string());
        assert!(named.is_none_or(|named| named == format!("{tenant}/{run}")));
        assert_eq!(inner.head(&log(tenant, run).key).await.unwrap().is_some(), answer.is_ok());
    }
}
