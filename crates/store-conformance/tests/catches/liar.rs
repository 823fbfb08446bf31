//! A store that meets the contract except for one fault: its calls, and where the fault acts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ferrata_store::{
    At, Capabilities, CheckpointStore, Error, ErrorKind, ExecutorId, HeadRef, HeaderRange, Headers, Notice,
    Notices, Page, Paged, PruneCut, Record, Relay, RelayTexts, Removed, Resealing, Result, RunAppend,
    RunHead, RunId, RunKey, RunQuery, Seq, TenantId, check_texts,
};
use tokio::sync::broadcast;

use super::lie::Lie;
use super::space::Shared;

/// One instance of a store with one fault.
#[derive(Debug)]
pub(crate) struct Liar {
    pub(super) shared: Arc<Shared>,
    /// The number of this instance on its space, from 0.
    pub(super) instance: usize,
    /// Heads as this instance first saw them.
    cache: Mutex<HashMap<RunKey, RunHead>>,
    /// Keeps the channel open for a store that never sends notices.
    silence: broadcast::Sender<Notice>,
}

impl Liar {
    pub(super) fn new(shared: Arc<Shared>, instance: usize) -> Self {
        let (silence, _) = broadcast::channel(1);
        Self { shared, instance, cache: Mutex::default(), silence }
    }

    pub(super) fn tells(&self, lie: Lie) -> bool {
        self.shared.lie == lie
    }

    fn cache(&self) -> MutexGuard<'_, HashMap<RunKey, RunHead>> {
        self.cache.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the id under which a run is stored.
    pub(super) fn name(&self, run: &RunKey) -> RunKey {
        let short = |text: &str| RunId::new(&text[..text.len().min(128)]).unwrap();
        match self.shared.lie {
            Lie::FoldsCase => RunKey::new(
                TenantId::new(run.tenant.as_str().to_lowercase()).unwrap(),
                short(&run.run.as_str().to_lowercase()),
            ),
            Lie::JoinsNames => short(&format!("{}:{}", run.tenant, run.run)).into(),
            Lie::IgnoresTenant => run.run.clone().into(),
            _ => run.clone(),
        }
    }

    /// Yields in the middle of a call, as a store on a network does.
    ///
    /// Yields twice, because tasks that yielded continue in reverse order. A single yield may let no other task run.
    pub(super) async fn pause(&self) {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }

    /// Changes a head as this fault does.
    pub(super) fn told(&self, mut head: RunHead) -> RunHead {
        let owner = head.owner;
        match self.shared.lie {
            Lie::ForgetsTheUser => head.facts.user = None,
            Lie::FactsDieWithTheFirst if head.first.get() > 0 => head.facts.labels = <_>::default(),
            Lie::NobodyLives => head.owner_alive = false,
            Lie::EverybodyLives => head.owner_alive = true,
            Lie::HeartbeatsPerInstance => {
                let notes = self.shared.notes();
                let told = owner.and_then(|owner| notes.beats.get(&owner)).map(|(_, instance)| *instance);
                head.owner_alive &= told == Some(self.instance);
            }
            _ => {}
        }
        head
    }

    /// Changes an error as this fault does. Returns `None` if the fault hides the error.
    fn excuse(&self, error: Error) -> Option<Error> {
        match (self.shared.lie, error.kind()) {
            (Lie::ReadsDamageAsEmpty, ErrorKind::Corrupt | ErrorKind::Unsupported) => None,
            (Lie::ReadsNewerAsDamage, ErrorKind::Unsupported) => {
                Some(Error::new(ErrorKind::Corrupt, error.message()).with_run(error.run().unwrap()))
            }
            _ => Some(error),
        }
    }
}

#[async_trait::async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Liar {
    fn capabilities(&self) -> Capabilities {
        let honest = self.shared.store.capabilities();
        match self.shared.lie {
            Lie::AnnouncesFalsely => honest.with_notices(false),
            Lie::ChangesItsMind => honest.with_durable(!self.shared.notes().written.is_empty()),
            _ => honest,
        }
    }

    async fn setup(&self) -> Result<()> {
        let setups = {
            let mut notes = self.shared.notes();
            notes.setups += 1;
            notes.setups
        };
        match self.shared.lie {
            Lie::SetupErases => {
                let runs = self.shared.store.runs(&RunQuery::default(), Page::first(1_000)).await?;
                for head in runs.items {
                    self.shared.store.purge(&head.run, None).await?;
                }
                Ok(())
            }
            Lie::SetupOnce if setups > 1 => Err(Error::new(ErrorKind::AlreadyExists, "there is one")),
            _ => self.shared.store.setup().await,
        }
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.append_falsely(batch).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        let name = self.name(run);
        if self.tells(Lie::ForgetsWhatWasRead) && !self.shared.notes().read.insert(name.clone()) {
            return Ok(None);
        }
        match self.load_falsely(&name, at).await {
            Ok(loaded) => Ok(loaded),
            Err(error) => self.excuse(error).map_or(Ok(None), Err),
        }
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.load_since_falsely(run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        let name = self.name(run);
        match self.headers_falsely(&name, range).await {
            Ok(listed) => Ok(listed),
            Err(error) => self
                .excuse(error)
                .map_or(Ok(Headers { first: Seq::new(0), last: Seq::new(0), items: Vec::new() }), Err),
        }
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        let name = self.name(run);
        if let Some(head) = self.shared.notes().shown.get(&name) {
            return Ok(Some(head.clone()));
        }
        if let Some(head) = self.cache().get(&name).filter(|_| self.tells(Lie::CachesHeads)) {
            return Ok(Some(head.clone()));
        }
        let head = match self.shared.store.head(&name).await {
            Ok(head) => head,
            Err(error) => return self.excuse(error).map_or(Ok(None), Err),
        };
        if self.tells(Lie::ReadsAStartInTwo) && head.is_none() {
            self.pause().await;
            if self.shared.store.head(&name).await?.is_some() {
                return Err(Error::new(ErrorKind::Corrupt, "record 0 is missing").with_run(run));
            }
        }
        if self.tells(Lie::InventsHeads) && head.is_none() {
            let runs = self.shared.store.runs(&RunQuery::default(), Page::default()).await?;
            return Ok(runs.items.into_iter().next());
        }
        let head = head.map(|head| self.told(head));
        if let Some(head) = &head {
            self.cache().insert(name, head.clone());
        }
        Ok(head)
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.runs_falsely(query, page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.prune_falsely(&self.name(run), cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.purge_falsely(&self.name(run), expected).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let before = self.shared.notes().beats.insert(*executor, (ttl, self.instance)).map(|(ttl, _)| ttl);
        let told = match self.shared.lie {
            Lie::NeverExpires if !ttl.is_zero() => Duration::MAX,
            Lie::FirstHeartbeatWins if before.is_some() => return Ok(()),
            Lie::LongestHeartbeatWins if before.is_some_and(|before| before > ttl) => return Ok(()),
            Lie::IgnoresZero if ttl.is_zero() => return Ok(()),
            Lie::RefusesLongHeartbeats if ttl > Duration::from_secs(1 << 32) => {
                return Err(Error::new(ErrorKind::Invalid, "so long lives nobody"));
            }
            Lie::ExpiresEarly => ttl.saturating_sub(Duration::from_millis(2)),
            Lie::ExpiresLate => ttl.saturating_add(Duration::from_millis(2)),
            _ => ttl,
        };
        self.shared.store.heartbeat(executor, told).await
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        Ok(self.shared.lie == Lie::TakesAllForAlive || self.shared.store.is_alive(executor).await?)
    }

    fn transactions(&self) -> Option<&dyn ferrata_store::Transactions> {
        Some(self)
    }

    fn part(&self, run: &RunKey) -> u64 {
        self.shared.store.part(run)
    }

    fn resealing(&self) -> Option<&dyn Resealing> {
        Some(self)
    }

    fn relay(&self) -> Option<&dyn Relay> {
        Some(self)
    }

    fn subscribe(&self) -> Option<Notices> {
        match self.shared.lie {
            Lie::NeverTells => Some(Notices::new(self.silence.subscribe())),
            _ => self.shared.store.subscribe(),
        }
    }
}

#[async_trait::async_trait]
impl Resealing for Liar {
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        self.reseal_falsely(&self.name(run), records).await
    }
}

#[async_trait::async_trait]
impl Relay for Liar {
    async fn publish(&self, mut texts: Vec<String>) -> Result<()> {
        let said = self.shared.store.relay().unwrap();
        match self.shared.lie {
            Lie::NeverSays => return check_texts(&texts),
            Lie::SaysAnything if check_texts(&texts).is_err() => return Ok(()),
            Lie::SaysInAnyOrder => texts.reverse(),
            // Only the longest text has this many bytes.
            Lie::CutsWhatItSays => {
                texts.iter_mut().for_each(|text| drop(text.drain(text.len().min(6_000)..)))
            }
            _ => {}
        }
        said.publish(texts).await
    }

    async fn listen(&self) -> Result<RelayTexts> {
        self.shared.store.relay().unwrap().listen().await
    }
}
