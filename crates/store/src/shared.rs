//! A shared store is a store: what lets wrappers hold an `Arc<dyn CheckpointStore>`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::contract::{Capabilities, CheckpointStore, Notices, PruneCut, Removed, RunAppend};
use super::query::{At, Page, Paged, RunHead, RunQuery};
use crate::error::Result;
use crate::headers::{HeaderRange, Headers};
use crate::id::{ExecutorId, HeadRef, RunKey};
use crate::record::Record;

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: CheckpointStore + ?Sized> CheckpointStore for Arc<S> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    async fn setup(&self) -> Result<()> {
        (**self).setup().await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        (**self).append(batch).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        (**self).load(run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        (**self).load_since(run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        (**self).headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        (**self).head(run).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        (**self).runs(query, page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        (**self).prune(run, cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        (**self).purge(run, expected).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        (**self).heartbeat(executor, ttl).await
    }

    fn transactions(&self) -> Option<&dyn crate::Transactions> {
        (**self).transactions()
    }

    fn part(&self, run: &RunKey) -> u64 {
        (**self).part(run)
    }

    fn resealing(&self) -> Option<&dyn crate::Resealing> {
        (**self).resealing()
    }

    fn relay(&self) -> Option<&dyn crate::Relay> {
        (**self).relay()
    }

    fn subscribe(&self) -> Option<Notices> {
        (**self).subscribe()
    }
}
