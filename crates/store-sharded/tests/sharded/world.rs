//! Three stores with outages, maps over them, and runs written by hand.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::record::{FORMAT, Record, RecordHeader, RecordKind, RunFacts, RunStatus};
use ferrata_core::store::{
    At, CheckpointStore, HeaderRange, Headers, MemoryStore, Page, Paged, PruneCut, Removed, RunAppend,
    RunHead, RunQuery, delegate,
};
use ferrata_core::{
    Epoch, Error, ErrorKind, ExecutorId, Fingerprint, HeadRef, IdSource, RandomIds, Result, RunId, RunKey,
    Seq, Timestamp, WorkflowName,
};
use ferrata_store_sharded::ShardedStore;

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// A memory store that can be unavailable, miss heartbeats, and be slow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shaky {
    pub(crate) inner: MemoryStore,
    pub(crate) is_away: Arc<AtomicBool>,
    pub(crate) is_deaf: Arc<AtomicBool>,
    /// The source of random yields of each call, or none.
    pub(crate) dice: Option<Arc<Mutex<u64>>>,
    pub(crate) beats: Arc<AtomicU64>,
    pub(crate) silence: Arc<Mutex<Silence>>,
    pub(crate) before_purge: Once,
}

/// An event that happens once.
#[derive(Clone, Default)]
pub(crate) struct Once(Arc<Mutex<Option<Happening>>>);

type Happening = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Once {
    pub(crate) fn set(&self, what: impl Future<Output = ()> + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::pin(what));
    }

    async fn happen(&self) {
        let what = self.0.lock().unwrap().take();
        if let Some(what) = what {
            what.await;
        }
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}

/// The calls that a store never answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Silence {
    #[default]
    Answers,
    AnswersHeartbeats,
    AnswersListings,
    AnswersNothing,
}

impl Shaky {
    pub(crate) fn away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    async fn reach(&self) -> Result<()> {
        let turns = self.dice.as_ref().map_or(0, |dice| {
            let mut dice = dice.lock().unwrap();
            *dice ^= *dice << 13;
            *dice ^= *dice >> 7;
            *dice ^= *dice << 17;
            *dice % 5
        });
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        if *self.silence.lock().unwrap() != Silence::Answers {
            std::future::pending::<()>().await;
        }
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Unavailable, "nobody answers")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl CheckpointStore for Shaky {
    async fn setup(&self) -> Result<()> {
        self.reach().await?;
        self.inner.setup().await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        match self.reach().await {
            Ok(()) => self.inner.append(batch).await,
            Err(error) => batch.iter().map(|append| Err(error.clone().with_run(&append.run))).collect(),
        }
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.reach().await?;
        self.inner.load(run, at).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.reach().await?;
        self.inner.load_since(run, known).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.reach().await?;
        self.inner.headers(run, range).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.reach().await?;
        self.inner.head(run).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        if *self.silence.lock().unwrap() != Silence::AnswersListings {
            self.reach().await?;
        }
        self.inner.runs(query, page).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.reach().await?;
        self.inner.prune(run, cut).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.before_purge.happen().await;
        self.reach().await?;
        self.inner.purge(run, expected).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        if !matches!(*self.silence.lock().unwrap(), Silence::AnswersHeartbeats | Silence::AnswersListings) {
            self.reach().await?;
        }
        if self.is_deaf.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Indeterminate, "the reply was lost"));
        }
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.inner.heartbeat(executor, ttl).await
    }

    delegate! { |this| this.inner; capabilities, subscribe }
}

/// Three stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) stores: [Shaky; 3],
}

impl World {
    /// Opens the stores with these generations, each written as in `ab`.
    pub(crate) fn open(&self, generations: &[&str]) -> ShardedStore {
        let mut builder = ShardedStore::builder();
        for (name, store) in NAMES.iter().zip(&self.stores) {
            if generations.iter().any(|generation| generation.contains(name)) {
                builder = builder.shard(*name, store.clone());
            }
        }
        for generation in generations {
            builder = builder.generation(generation.chars().map(String::from));
        }
        builder.build().unwrap()
    }

    pub(crate) fn store(&self, name: &str) -> &Shaky {
        &self.stores[NAMES.iter().position(|known| *known == name).unwrap()]
    }

    /// The content of every store, including markers: run, workflow and number of records.
    pub(crate) async fn content(&self) -> Vec<Vec<(String, String, u64)>> {
        let mut content = Vec::new();
        for store in &self.stores {
            let heads = every(&store.inner, &RunQuery::default(), Page::first(1_000)).await.unwrap();
            let row = |head: RunHead| (head.run.to_string(), head.facts.workflow.to_string(), head.seq.get());
            content.push(heads.into_iter().map(row).collect());
        }
        content
    }
}

pub(crate) fn key(run: &str) -> RunKey {
    RunKey::from(RunId::new(run).unwrap())
}

/// Lists all pages.
pub(crate) async fn every(store: &dyn CheckpointStore, query: &RunQuery, page: Page) -> Result<Vec<RunHead>> {
    let (mut heads, mut page) = (Vec::new(), page);
    loop {
        let Paged { items, next } = store.runs(query, page.clone()).await?;
        heads.extend(items);
        match next {
            Some(cursor) => page.cursor = Some(cursor),
            None => return Ok(heads),
        }
    }
}

/// Creates the append that follows `head`, by this owner.
pub(crate) fn next(run: &str, head: Option<HeadRef>, created: i64, owner: Option<ExecutorId>) -> RunAppend {
    let id = ferrata_core::RecordId::from_uuid(RandomIds::new().next(Timestamp::default()));
    let header = RecordHeader {
        format: FORMAT,
        seq: head.map_or(Seq::new(0), |head| head.seq.next()),
        id,
        prev: head.map(|head| head.id),
        kind: if head.is_none() { RecordKind::Start } else { RecordKind::Node },
        status: RunStatus::InProgress,
        node: None,
        visit: None,
        epoch: Epoch::default(),
        owner,
        wake_at: None,
        at: Timestamp::from_unix_ms(created),
        base: head.is_none(),
        body_len: 0,
        body_crc: 0,
    };
    let record = Record::seal(header, b"{}".to_vec().into()).unwrap();
    let print = Fingerprint::of(b"");
    let workflow = WorkflowName::new("w").unwrap();
    let facts = RunFacts::new(workflow, "1", print, print, Timestamp::from_unix_ms(created)).unwrap();
    RunAppend { run: key(run), expected: head, records: vec![record], facts: head.is_none().then_some(facts) }
}

pub(crate) async fn append(store: &dyn CheckpointStore, append: RunAppend) -> Result<HeadRef> {
    store.append(vec![append]).await.pop().unwrap()
}

/// Starts `count` runs in one batch, each created a millisecond after the one before.
pub(crate) async fn start(store: &dyn CheckpointStore, what: &str, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|n| format!("{what}-{n}")).collect();
    for (n, names) in names.chunks(500).enumerate() {
        let created = |m: usize| i64::try_from(n * 500 + m).unwrap();
        let batch = names.iter().enumerate().map(|(m, name)| next(name, None, created(m), None)).collect();
        store.append(batch).await.into_iter().for_each(|result| _ = result.unwrap());
    }
    names
}
