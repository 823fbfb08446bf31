//! A tenant with erased keys, in a service that continues for other tenants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrata::prelude::*;
use ferrata::store::MemoryStore;
use ferrata::{EnvelopeOptions, EnvelopeStore, Error, ErrorKind, KeyProvider, Keyring, RunKey, TenantId};

/// Keys of all tenants, until those of `acme` are erased.
#[derive(Clone, Debug, Default)]
struct Vault(Arc<AtomicBool>);

#[async_trait::async_trait]
impl KeyProvider for Vault {
    async fn keyring(&self, tenant: &TenantId) -> Result<Arc<Keyring>, Error> {
        let digit = match tenant.as_str() {
            "acme" if self.0.load(Ordering::Relaxed) => {
                return Err(Error::new(ErrorKind::Unsupported, "the keys of acme were erased"));
            }
            "acme" => "1",
            _ => "2",
        };
        Keyring::parse(&format!("k = {}", digit.repeat(64))).map(Arc::new)
    }
}

async fn process(store: &MemoryStore, vault: &Vault) -> Runtime {
    let options = EnvelopeOptions::default().with_keys(vault.clone());
    let runtime = Runtime::builder(EnvelopeStore::new(store.clone(), options)).build().await.unwrap();
    runtime.serve(&graph()).unwrap();
    runtime
}

fn graph() -> Graph<Context> {
    Graph::<Context>::builder("hear")
        .node("hear", async |cx: NodeContext, mut s: Draft<Context>| {
            s.set("heard", cx.receive::<String>().await?)?;
            Ok(s)
        })
        .entry("hear")
        .build()
        .unwrap()
}

/// Guarantees: AT-REST-10.
#[tokio::test]
async fn runs_with_erased_keys_disturb_no_other_tenant() {
    let (store, vault) = (MemoryStore::new(), Vault::default());
    let before = process(&store, &vault).await;
    let mut runs = Vec::new();
    for tenant in ["acme", "bolt"] {
        let run = before.start(&graph(), Context::new()).tenant(tenant).id("r").await.unwrap();
        assert!(matches!(run.wait().await.unwrap(), Outcome::AwaitingInput));
        runs.push(run.run().clone());
    }
    let [acme, bolt]: [RunKey; 2] = runs.try_into().unwrap();
    // One run is due because of its message, and has no owner.
    before.shutdown(std::time::Duration::ZERO).await.unwrap();
    let options = EnvelopeOptions::default().with_keys(vault.clone());
    let operator = Runtime::builder(EnvelopeStore::new(store.clone(), options)).operator();
    operator.send(&acme, "too late").await.unwrap();
    vault.0.store(true, Ordering::Relaxed);

    let after = process(&store, &vault).await;
    let run = after.resume(&graph(), &bolt).await.unwrap();
    after.send(&bolt, "hello").await.unwrap();
    let state = run.completed().await.unwrap();
    assert_eq!(state.get::<String>("heard").unwrap().as_deref(), Some("hello"));
    assert_eq!(after.send(&acme, "again").await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(after.runs().await.unwrap().items.len(), 2);
    after.purge(&acme).await.unwrap();
    assert!(after.store().head(&acme).await.unwrap().is_none());
}
