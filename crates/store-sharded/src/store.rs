//! A store that spreads runs over several other stores, and finds each run where it was started.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::builder::ShardedStoreBuilder;
use crate::join_all::join_all;
use crate::known_places::KnownPlaces;
use crate::map::{RunPlaces, ShardMap};
use crate::shard::Shard;
use crate::shard_mark::{is_mark, map_key, may_be_signpost};
use ferrata_store::{
    At, Capabilities, CheckpointStore, Clock, Error, ErrorKind, ExecutorId, HeadRef, HeaderRange, Headers,
    Notices, Page, Paged, PruneCut, Record, RecordHeader, Removed, Result, RunAppend, RunHead, RunKey,
    RunQuery, Seq,
};

/// A store that spreads runs over several other stores, its *shards*.
///
/// Each run is in one shard, which its key selects. A *generation* lists the shards that share new runs, and the last generation applies. Runs of
/// an earlier generation stay in their shard and are found there, so adding a shard moves no data:
///
/// ```
/// use ferrata_store::{CheckpointStore, MemoryStore};
/// use ferrata_store_sharded::ShardedStore;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (a, b, c) = (MemoryStore::new(), MemoryStore::new(), MemoryStore::new());
/// let store = ShardedStore::builder()
///     .shard("a", a)
///     .shard("b", b)
///     .shard("c", c)
///     .generation(["a", "b"])
///     .generation(["a", "b", "c"]) // added later; the line above stays as it was
///     .build()?;
/// store.setup().await?;
/// # Ok::<(), ferrata_store::Error>(()) }).unwrap();
/// ```
///
/// Every process must use the same names for the shards, and must list the same generations in the same order. A process may lack the newest
/// generations. [`setup`](CheckpointStore::setup) writes the generations into each shard, and refuses a list that contradicts them.
///
/// A run never has two logs, even while processes disagree about the last generation. A process that lacks the last generation gets an error for a
/// run that it cannot find. `docs/how-to/sharding.md` explains the method, its cost, and the effect of an unavailable shard.
///
/// An error of a shard names the shard. A sharded store differs from a single store in these points:
///
/// - A heartbeat is `Ok` if at least one shard has it. The store waits for each shard at most a sixth of the heartbeat's lifetime. If a shard
///   missed the heartbeat, the store sends it again before the executor's next append to that shard. Until this succeeds, these appends fail with
///   [`ErrorKind::Unavailable`].
/// - A listing fails if a shard fails. Listings of orphaned or due runs are an exception: they return the runs of the other shards.
/// - Each shard is a [part](CheckpointStore::part): the runtime's appends to one shard never wait for another shard.
/// - The run `ferrata:shards` of the default tenant holds the map. Applications cannot use this id.
pub struct ShardedStore {
    pub(crate) map: ShardMap,
    /// The shards, in the order of the map's names.
    pub(crate) shards: Vec<Shard>,
    pub(crate) known: KnownPlaces,
    pub(crate) clock: Arc<dyn Clock>,
}

impl ShardedStore {
    /// Returns a builder for the shards and generations.
    pub fn builder() -> ShardedStoreBuilder {
        ShardedStoreBuilder::default()
    }

    /// Returns the name of the shard that has the run. Returns `None` if the run does not exist.
    ///
    /// # Errors
    ///
    /// The errors of [`CheckpointStore::head`], if the run was not found and a shard that may have it failed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the call changes nothing.
    pub async fn shard_of(&self, run: &RunKey) -> Result<Option<&str>> {
        let found = self.locate(run, &self.map.places(run)).await?;
        Ok(found.map(|shard| self.shards[shard].name.as_str()))
    }

    /// Returns the shard of the run, and how it is known. If only one shard is possible, returns that shard even if the run does not exist.
    /// Otherwise returns `None` for a run that does not exist.
    async fn shard(&self, run: &RunKey) -> Result<Option<(&Shard, ShardSource)>> {
        if map_key().is_ok_and(|key| key == *run) {
            return Ok(None);
        }
        let places = self.map.places(run);
        let known = || Some((self.known.get(run)?, ShardSource::Memory));
        let found = match places.only().map(|shard| (shard, ShardSource::Map)).or_else(known) {
            Some(found) => Some(found),
            None => self.locate(run, &places).await?.map(|shard| (shard, ShardSource::Look)),
        };
        Ok(found.map(|(shard, by)| (&self.shards[shard], by)))
    }

    /// Searches for a run in every possible shard.
    pub(crate) async fn locate(&self, run: &RunKey, places: &RunPlaces) -> Result<Option<usize>> {
        let (mut failed, mut is_beyond) = (None, false);
        for shard in places.likely() {
            match self.shards[shard].head(run).await {
                Ok(Some(head)) if is_mark(&head) => is_beyond |= places.shards.last() == Some(&shard),
                Ok(None) => {}
                Err(error) if !crate::append::exists(&error) => failed = failed.or(Some(error)),
                // An unreadable run exists, too.
                Ok(Some(_)) | Err(_) => {
                    self.known.put(run, shard);
                    return Ok(Some(shard));
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None if is_beyond => Err(unknown_generation_error("store.head", run)),
            None => Ok(None),
        }
    }

    /// Returns whether to search for a missing run: its shard came from the cache, which may be out of date.
    fn is_stale(&self, run: &RunKey, by: ShardSource) -> bool {
        by == ShardSource::Memory && self.known.remove(run)
    }

    /// Loads from the shard of the run. With `known`, loads only the records after it.
    async fn load_by(&self, run: &RunKey, at: At, known: Option<HeadRef>) -> Result<Option<Vec<Record>>> {
        while let Some((shard, by)) = self.shard(run).await? {
            let loaded = match known {
                Some(known) => shard.store.load_since(run, known).await,
                None => shard.store.load(run, at).await,
            };
            let loaded = loaded.map_err(|error| shard.name_error(error))?;
            let only =
                loaded.as_deref().filter(|records| records.len() == 1).and_then(|records| records.first());
            if self.is_signpost((shard, by), run, only.map(|record| &record.header)).await? {
                continue;
            }
            if loaded.is_some() || !self.is_stale(run, by) {
                return Ok(loaded);
            }
        }
        Ok(None)
    }

    /// Returns whether the log is a signpost and not a run. Fails if the run is in a shard that this process does not know.
    async fn is_signpost(
        &self,
        (shard, by): (&Shard, ShardSource),
        run: &RunKey,
        header: Option<&RecordHeader>,
    ) -> Result<bool> {
        if !header.is_some_and(may_be_signpost) {
            return Ok(false);
        }
        match shard.head(run).await? {
            Some(head) if is_mark(&head) && by == ShardSource::Map => {
                Err(unknown_generation_error("store.load", run))
            }
            Some(head) if is_mark(&head) => {
                self.known.remove(run);
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// How the store knows the shard of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShardSource {
    /// Only this shard is possible.
    Map,
    /// The run was in this shard earlier.
    Memory,
    /// A search has just found the run in this shard.
    Look,
}

impl fmt::Debug for ShardedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedStore")
            .field("generations", &self.map.generations().0)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for ShardedStore {
    /// Returns the abilities that all shards have.
    fn capabilities(&self) -> Capabilities {
        let all =
            |can: fn(&Capabilities) -> bool| self.shards.iter().all(|shard| can(&shard.store.capabilities()));
        Capabilities::new("sharded")
            .with_durable(all(|can| can.durable))
            .with_shared(all(|can| can.shared))
            .with_notices(all(|can| can.notices))
    }

    /// Sets up every shard. Writes the name of the shard and the generations into it.
    ///
    /// In addition to the errors of the contract, fails with [`ErrorKind::Invalid`] if a store was set up as another shard, or if its generations
    /// contradict the map. They contradict if neither list is the beginning of the other.
    async fn setup(&self) -> Result<()> {
        self.prepare().await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        self.append_all(batch).await
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.load_by(run, at, None).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.load_by(run, At::Latest, Some(known)).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        while let Some((shard, by)) = self.shard(run).await? {
            match shard.store.headers(run, range).await {
                Ok(listed) => {
                    let only = match listed.items.as_slice() {
                        [only] => Some(only.clone()),
                        // The range is after the only record, which may be a signpost.
                        [] if listed.last == Seq::new(0) => {
                            let first = shard.store.headers(run, HeaderRange::oldest(1)).await;
                            first.map_err(|error| shard.name_error(error))?.items.pop()
                        }
                        _ => None,
                    };
                    if !self.is_signpost((shard, by), run, only.as_ref()).await? {
                        return Ok(listed);
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound && self.is_stale(run, by) => {}
                Err(error) => return Err(shard.name_error(error)),
            }
        }
        Err(ferrata_store::refusal::no_run("store.headers", run))
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        while let Some((shard, by)) = self.shard(run).await? {
            match shard.head(run).await? {
                Some(head) if is_mark(&head) && by == ShardSource::Map => {
                    return Err(unknown_generation_error("store.head", run));
                }
                Some(head) if is_mark(&head) => _ = self.known.remove(run),
                None if self.is_stale(run, by) => {}
                found => return Ok(found),
            }
        }
        Ok(None)
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.list(query, page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        while let Some((shard, by)) = self.shard(run).await? {
            match shard.store.prune(run, cut.clone()).await {
                Err(error) if error.kind() == ErrorKind::NotFound && self.is_stale(run, by) => {}
                result => return result.map_err(|error| shard.name_error(error)),
            }
        }
        Err(ferrata_store::refusal::no_run("store.prune", run))
    }

    /// Removes the run, and then its signposts.
    ///
    /// If no head is expected and the run is started again in another shard meanwhile, that new run stays.
    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.remove(run, expected).await
    }

    /// Sends the heartbeat to all shards. Returns `Ok` if at least one shard has it.
    ///
    /// The store sends it to all shards at the same time. A shard that does not answer within a sixth of `ttl` has missed it. A shard that missed
    /// it regards the executor as dead after a while. Other executors may then claim the executor's runs in that shard, but only there. The store
    /// sends the heartbeat again before any append of the executor to that shard. A `ttl` of zero, which ends the executor, goes to all shards.
    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let beats = self.shards.iter().map(|shard| shard.heartbeat(executor, ttl, &*self.clock));
        let results = join_all(beats).await;
        let enough = if ttl.is_zero() { self.shards.len() } else { 1 };
        let count = results.iter().filter(|result| result.is_ok()).count();
        for error in results.into_iter().filter_map(Result::err) {
            if count < enough {
                return Err(error);
            }
            tracing::warn!(%executor, %error, "a shard missed a heartbeat; other processes may claim the runs of this process on that shard");
        }
        Ok(())
    }

    /// Asks one shard after the other. An executor is alive if at least one shard has its heartbeat.
    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        let mut unknown = None;
        for shard in &self.shards {
            match shard.store.is_alive(executor).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => unknown = Some(shard.name_error(error)),
            }
        }
        unknown.map_or(Ok(false), Err)
    }

    /// Returns no transactions, because a run may be in any shard.
    fn transactions(&self) -> Option<&dyn ferrata_store::Transactions> {
        None
    }

    /// Returns the number of the run's shard. If several shards are possible and the run's shard is not known, returns a number for these shards
    /// together.
    fn part(&self, run: &RunKey) -> u64 {
        let places = self.map.places(run);
        let shard = places.only().or_else(|| self.known.get(run));
        shard.map_or_else(|| places.combined_part(self.shards.len()), |shard| shard as u64)
    }

    /// Returns an implementation if every shard can replace envelopes.
    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        self.shards.iter().all(|shard| shard.store.resealing().is_some()).then_some(self)
    }

    /// Returns the relay of a shard that all processes know, if every shard has a relay. A message may belong to any run. If one shard encrypts and
    /// has no relay, its messages must not go through another shard.
    fn relay(&self) -> Option<&dyn ferrata_store::Relay> {
        if self.shards.iter().any(|shard| shard.store.relay().is_none()) {
            return None;
        }
        self.shards.get(self.map.first_shard())?.store.relay()
    }

    /// Returns the merged notices of all shards, if every shard sends notices.
    fn subscribe(&self) -> Option<Notices> {
        let all: Option<Vec<Notices>> = self.shards.iter().map(|shard| shard.store.subscribe()).collect();
        all.map(Notices::merged)
    }
}

/// Returns the error for a process that does not know the generation in which the run was started.
pub(crate) fn unknown_generation_error(operation: &'static str, run: &RunKey) -> Error {
    let message = "the shard of the run belongs to a generation that this process does not have; configure the newest generations";
    Error::new(ErrorKind::Unsupported, message).with_operation(operation).with_run(run)
}

#[async_trait]
impl ferrata_store::Resealing for ShardedStore {
    /// Reseals the records in the shard of the run.
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        while let Some((shard, by)) = self.shard(run).await? {
            let missing = || Error::new(ErrorKind::Unsupported, "the shard cannot replace encrypted records");
            let inside = shard.store.resealing().ok_or_else(missing)?;
            match inside.reseal(run, records).await {
                Err(error) if error.kind() == ErrorKind::NotFound && self.is_stale(run, by) => {}
                result => return result.map_err(|error| shard.name_error(error)),
            }
        }
        Err(ferrata_store::refusal::no_run("store.reseal", run))
    }
}
