//! Changes by another process between two reads of one log.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ferrata_core::record::Record;
use ferrata_core::runtime::{RetentionPolicy, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{
    At, CheckpointStore, HeaderRange, Headers, MemoryStore, PruneCut, Removed, delegate,
};
use ferrata_core::{Result, RunKey, Seq};

use super::kept::chain;
use super::races::rounds;
use super::random_runs::{key, records};

type Hook = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A store that runs a hook before its next load. Its prunes only make the oldest retained record a base, and drop nothing.
#[derive(Clone, Default)]
struct Between {
    inner: MemoryStore,
    cut: Arc<Mutex<Option<PruneCut>>>,
    before_load: Arc<Mutex<Option<Hook>>>,
}

impl Between {
    fn before_load(&self, hook: impl Future<Output = ()> + Send + 'static) {
        *self.before_load.lock().unwrap() = Some(Box::pin(hook));
    }

    /// The base that the prune wrote for this record, if any.
    fn base(&self, seq: Seq) -> Option<Record> {
        let cut = self.cut.lock().unwrap();
        cut.as_ref().filter(|cut| cut.at == seq).and_then(|cut| cut.base.clone())
    }
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Between").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl CheckpointStore for Between {
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let hook = self.before_load.lock().unwrap().take();
        if let Some(hook) = hook {
            hook.await;
        }
        let Some(mut records) = self.inner.load(run, at).await? else { return Ok(None) };
        let cut = records.iter().position(|record| self.base(record.header.seq).is_some());
        if let Some(cut) = cut {
            records.drain(..cut);
            records[0] = self.base(records[0].header.seq).unwrap();
        }
        Ok(Some(records))
    }
    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let mut found = self.inner.headers(run, range).await?;
        for header in &mut found.items {
            header.base |= self.base(header.seq).is_some();
        }
        Ok(found)
    }
    async fn prune(&self, _run: &RunKey, cut: PruneCut) -> Result<Removed> {
        *self.cut.lock().unwrap() = Some(cut);
        Ok(Removed::default())
    }

    delegate! { |this| this.inner; capabilities, setup, append, head, runs, purge, heartbeat }
}

/// A store on S3 is in this state between the two writes of a prune.
#[tokio::test]
async fn log_stays_readable_between_prune_writes() {
    let store = Between::default();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    runtime.start(&rounds(40), Context::new()).id("r").await.unwrap().wait().await.unwrap();
    let log = records(&store.inner, &key("r")).await;
    let plain = runtime.check_log(&key("r")).await.unwrap();
    assert!(plain.bases > 1, "{plain:?}");
    let mut cuts = 0;
    for keep in 1..=10 {
        let policy = RetentionPolicy::keep_all().keep_last(keep);
        let pruning = Runtime::builder(store.clone()).build().await.unwrap();
        store.before_load(async move {
            pruning.apply_retention(&key("r"), &policy).await.unwrap();
        });
        let checked = runtime.check_log(&key("r")).await.unwrap_or_else(|error| panic!("{keep}: {error}"));
        assert_eq!((checked.records, checked.first), (log.len() as u64, Seq::new(0)), "{keep}");
        cuts += u32::from(store.cut.lock().unwrap().take().is_some_and(|cut| cut.base.is_some()));
    }
    assert!(cuts > 5, "{cuts}");
}

/// If another process purges and restarts the run during an export, the file contains one run only.
///
/// Guarantees: COPY-1.
#[tokio::test]
async fn export_contains_one_generation() {
    let store = Between::default();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let other = Runtime::builder(store.inner.clone()).build().await.unwrap();
    runtime.start(&chain(3), Context::new()).id("r").await.unwrap().wait().await.unwrap();
    store.before_load(async move {
        other.purge(&key("r")).await.unwrap();
        let mut input = Context::new();
        input.set("anew", true).unwrap();
        other.start(&chain(5), input).id("r").await.unwrap().wait().await.unwrap();
    });
    let raced = runtime.export(&key("r")).await.unwrap();
    assert_eq!(raced, runtime.export(&key("r")).await.unwrap());
}
