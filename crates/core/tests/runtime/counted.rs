//! A store that counts the bytes of its reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use ferrata_core::record::Record;
use ferrata_core::store::{At, CheckpointStore, MemoryStore, delegate};
use ferrata_core::{HeadRef, Result, RunKey};

/// Number of bytes that were read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) bytes: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) inner: MemoryStore,
    pub(crate) reads: Arc<Reads>,
}

impl Counted {
    fn read(&self, loaded: Option<Vec<Record>>) -> Option<Vec<Record>> {
        let bytes = loaded.iter().flatten().map(|record| record.body.len() as u64 + 100).sum();
        self.reads.bytes.fetch_add(bytes, Ordering::Relaxed);
        loaded
    }
}

#[async_trait]
impl CheckpointStore for Counted {
    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        Ok(self.read(self.inner.load(run, at).await?))
    }
    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        Ok(self.read(self.inner.load_since(run, known).await?))
    }

    delegate! {
        |this| this.inner;
        capabilities, setup, append, headers, head, runs, prune, purge, heartbeat
    }
}
