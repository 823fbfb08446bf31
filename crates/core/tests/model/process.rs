//! The processes of a world and their handles of runs.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Graph};
use ferrata_core::runtime::{RunHandle, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Clock, RunId, RunKey};
use ferrata_store_sharded::ShardedStore;
use ferrata_testing::SeqIds;

use crate::graphs::Family;
use crate::oracle::Generation;
use crate::weather::Weather;
use crate::world::{MAX_BODY, World, now};

/// Timeout of a store call.
pub(crate) const SILENCE: Duration = Duration::from_secs(4);

/// The settings of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) often: Often,
    /// Whether the run is in one of two shards.
    pub(crate) is_sharded: bool,
}

/// The checkpoint frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Often {
    EveryNode,
    EveryThird,
    StatusChanges,
    Disabled,
}

impl Often {
    pub(crate) fn policy(self) -> CheckpointPolicy {
        CheckpointPolicy::default().with_frequency(match self {
            Self::EveryNode => CheckpointFrequency::EveryNode,
            Self::EveryThird => CheckpointFrequency::EveryNth(3.try_into().unwrap()),
            Self::StatusChanges => CheckpointFrequency::StatusChangeOnly,
            Self::Disabled => CheckpointFrequency::Disabled,
        })
    }
}

/// A process. Dropping it drops all its tasks at once.
pub(crate) struct Process {
    pub(crate) tasks: tokio::runtime::Runtime,
    pub(crate) runtime: Runtime,
    pub(crate) weather: Arc<Weather>,
    pub(crate) handle: Option<RunHandle<Context>>,
}

/// The two shards. Without sharding, only the first is used.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    pub(crate) near: MemoryStore,
    far: MemoryStore,
}

impl Stores {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        let store = || MemoryStore::with_clock(Arc::clone(clock));
        Self { near: store(), far: store() }
    }

    /// The store as a process sees it.
    fn reach(&self, is_sharded: bool) -> Arc<dyn CheckpointStore> {
        if !is_sharded {
            return Arc::new(self.near.clone());
        }
        let store = ShardedStore::builder().shard("near", self.near.clone()).shard("far", self.far.clone());
        Arc::new(store.generation(["near", "far"]).build().unwrap())
    }
}

/// Graphs with the code of the first, second and third revision. The third revision has its state in another form.
static GRAPHS: LazyLock<Vec<[Graph<Context>; 3]>> =
    LazyLock::new(|| Family::ALL.iter().map(|family| ["1", "2", "3"].map(|of| family.graph(of))).collect());

pub(crate) fn graph(family: Family, revision: &str) -> &'static Graph<Context> {
    let at = Family::ALL.iter().position(|other| *other == family).unwrap();
    &GRAPHS[at][revision.parse::<usize>().unwrap() - 1]
}

/// Ids of runs that belong to the first shard.
static NAMES: LazyLock<Vec<RunKey>> = LazyLock::new(|| {
    let clock: Arc<dyn Clock> = Arc::new(ferrata_testing::ManualClock::default());
    let stores = Stores::new(&clock);
    let tasks = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let keys: Vec<RunKey> = (0..64).map(|n| RunKey::from(RunId::new(format!("r{n}")).unwrap())).collect();
    tasks.block_on(async {
        let builder = Runtime::builder_with(stores.reach(true)).clock(clock);
        let runtime = builder.ids(Arc::new(SeqIds::new(1))).build().await.unwrap();
        for key in &keys {
            let graph = graph(Family::Guarded, "1");
            let run = runtime.start(graph, Context::new()).id(key.run.as_str()).await.unwrap();
            run.wait().await.unwrap();
        }
    });
    keys.into_iter().filter(|key| now(stores.near.head(key)).unwrap().is_some()).collect()
});

/// The id of the n-th run of a case.
pub(crate) fn key(n: usize) -> RunKey {
    NAMES[n].clone()
}

impl World {
    pub(crate) fn process(&mut self, generation: Generation) -> Process {
        // A sharded store measures the time of its shards with Tokio's clock.
        let tasks = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let store = self.stores.reach(self.setting.is_sharded);
        let weather = Weather::new(store, Arc::clone(&clock), graph(self.family, "1"), Arc::clone(&self.met));
        let weather = Arc::new(weather);
        let builder = Runtime::builder_with(Arc::clone(&weather) as Arc<dyn CheckpointStore>)
            .clock(clock)
            .ids(Arc::new(SeqIds::new(generation)))
            .resource(self.outside.clone())
            .store_retries(8, Duration::ZERO)
            .store_timeout(SILENCE)
            .max_body(MAX_BODY);
        let runtime = tasks.block_on(builder.build()).unwrap();
        self.generations.insert(runtime.executor(), generation);
        Process { tasks, runtime, weather, handle: None }
    }
}
