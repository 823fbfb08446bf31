//! Faults with runs whose records are under another id, or whose last record is missing. A correct store refuses such a run.

use std::time::Duration;

use ferrata_store::{
    At, CheckpointStore, Error, ErrorKind, ExecutorId, HeadRef, HeaderRange, Headers, Page, Paged, PruneCut,
    Record, Removed, Result, RunAppend, RunHead, RunKey, RunQuery, delegate,
};

use super::liar::Liar;
use super::lie::Lie;

/// A faulty store for calls about runs with this damage.
#[derive(Debug)]
pub(crate) struct Guard(pub(super) Liar);

impl Guard {
    /// Refuses a run with this damage, unless the fault is about it.
    fn check(&self, run: &RunKey) -> Result<()> {
        let notes = self.0.shared.notes();
        let is_swapped = notes.swapped.contains_key(run) && !self.0.tells(Lie::ReadsTheOtherRun);
        let is_short = notes.tails.contains(run) && !self.0.tells(Lie::ReadsShorterLogs);
        match is_swapped || is_short {
            true => Err(Error::new(ErrorKind::Corrupt, "the log is not the run's").with_run(run)),
            false => Ok(()),
        }
    }
}

#[async_trait::async_trait]
impl CheckpointStore for Guard {
    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        let checks: Vec<_> = batch
            .iter()
            .map(|entry| match self.0.tells(Lie::WritesBehindLostTails) {
                true => Ok(()),
                false => self.check(&entry.run),
            })
            .collect();
        if checks.iter().all(Result::is_ok) {
            return self.0.append(batch).await;
        }
        let sound = match self.0.tells(Lie::DamageRefusesAll) {
            true => Vec::new(),
            false => {
                batch.into_iter().zip(&checks).filter(|(_, check)| check.is_ok()).map(|(e, _)| e).collect()
            }
        };
        let mut written = self.0.append(sound).await.into_iter();
        let unwritten = || Err(Error::new(ErrorKind::Corrupt, "another run is damaged"));
        checks
            .into_iter()
            .map(|check| check.and_then(|()| written.next().unwrap_or_else(unwritten)))
            .collect()
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.check(run)?;
        self.0.load(run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.check(run)?;
        self.0.load_since(run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.check(run)?;
        self.0.headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.check(run)?;
        self.0.head(run).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let mut listed = self.0.runs(query, page).await?;
        let refused = listed.items.iter().find_map(|head| self.check(&head.run).err());
        if let Some(refused) = refused.filter(|_| query.complete) {
            return Err(refused);
        }
        listed.items.retain(|head| self.check(&head.run).is_ok());
        Ok(listed)
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.check(run)?;
        self.0.prune(run, cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        if expected.is_some() {
            self.check(run)?;
        }
        let other = self.0.shared.notes().swapped.get(run).cloned();
        let run = other.as_ref().filter(|_| self.0.tells(Lie::PurgesTheOtherRun)).unwrap_or(run);
        let purged = self.0.purge(run, expected).await?;
        let mut notes = self.0.shared.notes();
        notes.swapped.remove(run);
        notes.tails.remove(run);
        Ok(purged)
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        self.0.heartbeat(executor, ttl).await
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        self.0.is_alive(executor).await
    }

    fn transactions(&self) -> Option<&dyn ferrata_store::Transactions> {
        self.0.transactions()
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        self.0.resealing()
    }

    fn relay(&self) -> Option<&dyn ferrata_store::Relay> {
        self.0.relay()
    }

    delegate! { |this| this.0; capabilities, setup, part, subscribe }
}
