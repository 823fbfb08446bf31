//! Sources of keyrings: one ring for all tenants, one ring for each tenant, or a key management service.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{Clock, Error, ErrorKind, Result, SystemClock, TenantId, within};

use crate::keys::Keyring;

/// How long the cache keeps an error, or a ring that lacks a key. It limits the requests to a key service, for example if an attacker writes
/// records with unknown key names.
const PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of cached rings. A ring with two keys takes about 400 bytes.
const MOST: usize = 10_000;

/// A source of the keys of each tenant. A [`Keyring`] is itself a provider, which returns the same ring for every tenant.
///
/// A store asks the provider for each append and each load. So wrap a slow provider in [`CachedKeys`].
///
/// # Errors
///
/// If the provider returns an error, the append or the load fails with that error and writes nothing. The runtime retries
/// [`ErrorKind::Unavailable`]. For a tenant whose keys were erased, return [`ErrorKind::Unsupported`]: the runtime then skips the tenant's runs. A
/// store returns the same kind for a key that is not in the ring.
///
/// # Cancel safety
///
/// A caller may drop its future, which then drops the provider's future.
#[async_trait]
pub trait KeyProvider: fmt::Debug + Send + Sync + 'static {
    /// Returns the ring of a tenant.
    async fn keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>>;

    /// Returns the ring of a tenant again. The store calls it after a record named a key that the last ring lacked, because the key may be new.
    async fn refresh_keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>> {
        self.keyring(tenant).await
    }
}

#[async_trait]
impl KeyProvider for Keyring {
    async fn keyring(&self, _tenant: &TenantId) -> Result<Arc<Keyring>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl<P: KeyProvider + ?Sized> KeyProvider for Arc<P> {
    async fn keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>> {
        (**self).keyring(tenant).await
    }

    async fn refresh_keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>> {
        (**self).refresh_keyring(tenant).await
    }
}

/// Caches the answers of another provider.
///
/// - The cache requests a ring again when the ring's lifetime is over, and at once when a record names a key that the ring lacks. So a new key
///   needs no restart.
/// - The cache never uses a ring after its lifetime, even if the provider does not answer. So every process loses an erased key within the
///   lifetime.
/// - The cache keeps an error for a second, and continues to use a ring that is still valid. [`ErrorKind::Unsupported`] is an exception: it means
///   that the keys were erased, so the cache drops the ring.
/// - If an answer takes longer than the patience (by default five seconds), the call fails with [`ErrorKind::Unavailable`].
/// - Concurrent callers for one tenant share a request. Callers for other tenants, and callers for which the cache has a valid ring, do not wait
///   for it.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ferrata_store::{Result, TenantId};
/// use ferrata_store_envelope::{CachedKeys, KeyProvider, Keyring};
///
/// #[derive(Debug)]
/// struct Vault; // has a client of a service that unwraps the data key of a tenant
///
/// #[async_trait::async_trait]
/// impl KeyProvider for Vault {
///     async fn keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>> {
/// #       let _ = tenant;
///         // ... asks the service for the keys of `tenant`.
/// #       let keys = "1 = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
///         Keyring::parse(keys).map(Arc::new)
///     }
/// }
///
/// let keys = CachedKeys::new(Vault, Duration::from_secs(300));
/// # let _ = keys;
/// ```
pub struct CachedKeys<P> {
    provider: P,
    life: Duration,
    patience: Duration,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<TenantId, Arc<CachedKeyring>>>,
}

#[derive(Default)]
struct CachedKeyring {
    said: Mutex<TenantKeys>,
    /// Locked by the caller that makes the request.
    asking: tokio::sync::Mutex<()>,
}

/// The provider's last answer for a tenant.
#[derive(Default)]
struct TenantKeys {
    /// The newest ring, and the time at which it was received.
    ring: Option<(Arc<Keyring>, Duration)>,
    /// The error of the last request and its time, if that request failed.
    failed: Option<(Error, Duration)>,
}

impl<P: KeyProvider> CachedKeys<P> {
    /// Creates a cache that keeps each ring for `life`.
    pub fn new(provider: P, life: Duration) -> Self {
        Self {
            provider,
            life,
            patience: Duration::from_secs(5),
            clock: Arc::new(SystemClock::new()),
            known: Mutex::default(),
        }
    }

    /// Sets how long the cache waits for an answer of the provider.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the clock. The default is the system clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    fn lock_tenants(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<CachedKeyring>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, tenant: &TenantId) -> Arc<CachedKeyring> {
        let mut known = self.lock_tenants();
        if known.len() >= MOST && !known.contains_key(tenant) {
            // Requests in progress keep their own entry.
            known.clear();
        }
        Arc::clone(known.entry(tenant.clone()).or_default())
    }

    /// Returns a cached answer that is younger than `life`. Otherwise requests the ring.
    async fn fresh_keyring(&self, tenant: &TenantId, life: Duration) -> Result<Arc<Keyring>> {
        let entry = self.entry(tenant);
        if let Some(said) = self.valid_answer(&entry, life) {
            return said;
        }
        let _asking = entry.asking.lock().await;
        // Another caller has requested it meanwhile.
        if let Some(said) = self.valid_answer(&entry, life) {
            return said;
        }
        let slow = || {
            let message = format!(
                "the key provider did not return the keys of the tenant {tenant} within {:?}; retry",
                self.patience
            );
            Err(Error::new(ErrorKind::Unavailable, message))
        };
        let asked = self.provider.keyring(tenant);
        let ring = within(&*self.clock, self.patience, asked).await.unwrap_or_else(slow);
        let now = self.clock.monotonic();
        let mut said = entry.lock_keys();
        match &ring {
            Ok(ring) => *said = TenantKeys { ring: Some((Arc::clone(ring), now)), failed: None },
            Err(error) => {
                // A failed request does not invalidate the known ring, unless the error says that its keys were erased.
                let is_erased = error.kind() == ErrorKind::Unsupported;
                said.ring.take_if(|(_, at)| is_erased || now.saturating_sub(*at) >= self.life);
                said.failed = Some((error.clone(), now));
            }
        }
        ring
    }

    /// Returns the cached answer, if it is still valid.
    fn valid_answer(&self, entry: &CachedKeyring, life: Duration) -> Option<Result<Arc<Keyring>>> {
        let is_within = |life, at: Duration| self.clock.monotonic().saturating_sub(at) < life;
        match &*entry.lock_keys() {
            TenantKeys { ring: Some((ring, at)), .. } if is_within(life, *at) => Some(Ok(Arc::clone(ring))),
            TenantKeys { failed: Some((error, at)), .. } if is_within(PAUSE, *at) => Some(Err(error.clone())),
            _ => None,
        }
    }
}

impl CachedKeyring {
    fn lock_keys(&self) -> MutexGuard<'_, TenantKeys> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<P: KeyProvider> KeyProvider for CachedKeys<P> {
    async fn keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>> {
        self.fresh_keyring(tenant, self.life).await
    }

    async fn refresh_keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>> {
        self.fresh_keyring(tenant, self.life.min(PAUSE)).await
    }
}

impl<P: fmt::Debug> fmt::Debug for CachedKeys<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedKeys")
            .field("provider", &self.provider)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}
