//! Sources of keyrings: one ring for all tenants, one for each tenant, or a key management service.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{Clock, Error, ErrorKind, Result, SystemClock, TenantId, within};

use crate::keys::Keyring;

/// The time that the cache keeps a result that is otherwise not cacheable: an error, or a ring that lacks a key. It limits the requests to a key
/// service if a stranger writes key names into a store.
const PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of cached rings. A ring with two keys takes about 400 bytes.
const MOST: usize = 10_000;

/// Gives the keys of a tenant. A [`Keyring`] gives itself, to each tenant.
///
/// A store asks it for each append and each load, so what takes time belongs behind [`CachedKeys`].
///
/// # Errors
///
/// If it returns an error, the append or the load fails with that error and writes nothing. The runtime retries [`ErrorKind::Unavailable`]. For a
/// tenant with erased keys return [`ErrorKind::Unsupported`], as for a key that no ring has: the runtime then skips its runs.
///
/// # Cancel safety
///
/// Its futures are dropped where the caller's are.
#[async_trait]
pub trait KeyProvider: fmt::Debug + Send + Sync + 'static {
    /// Returns the ring of a tenant.
    async fn keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>>;

    /// Returns the ring of a tenant after a record named a key that the last one lacked: the key may be new.
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
/// - The cache requests a ring again when its lifetime is over, and at once when a record names a key that the ring lacks. So a new key needs no
///   restart.
/// - The cache never uses a ring after its lifetime, even if the provider does not answer. Every process loses an erased key within that time.
/// - The cache keeps an error for a second. It continues to use a valid ring, unless the error is [`ErrorKind::Unsupported`], which means that its
///   keys were erased. An answer that takes longer than the patience, by default five seconds, is [`ErrorKind::Unavailable`].
/// - Callers of one tenant share one request. Callers of other tenants do not wait for it, and neither do callers that find a valid ring.
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
    /// The requesting caller locks it during the request.
    asking: tokio::sync::Mutex<()>,
}

/// The provider's last answer for a tenant.
#[derive(Default)]
struct TenantKeys {
    /// The newest ring, and since when it is known.
    ring: Option<(Arc<Keyring>, Duration)>,
    /// The error of the last request, if it failed, and its time.
    failed: Option<(Error, Duration)>,
}

impl<P: KeyProvider> CachedKeys<P> {
    /// Keeps each ring for `life`.
    pub fn new(provider: P, life: Duration) -> Self {
        Self {
            provider,
            life,
            patience: Duration::from_secs(5),
            clock: Arc::new(SystemClock::new()),
            known: Mutex::default(),
        }
    }

    /// Sets how long an answer of the provider is waited for.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the clock, which is that of the machine by default.
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
            // Pending requests keep their own entry.
            known.clear();
        }
        Arc::clone(known.entry(tenant.clone()).or_default())
    }

    /// Returns an answer younger than `life`, and otherwise requests the ring.
    async fn fresh_keyring(&self, tenant: &TenantId, life: Duration) -> Result<Arc<Keyring>> {
        let entry = self.entry(tenant);
        if let Some(said) = self.valid_answer(&entry, life) {
            return said;
        }
        let _asking = entry.asking.lock().await;
        // Another caller requested it meanwhile.
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
                // A question that fails says nothing of the ring that was known, unless that its keys were erased.
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
