//! The differential test: makes random sequences of all calls, and compares the answers with those of a simple model.

mod calls;
mod chance;
mod oracle;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ferrata_store::{At as StoreAt, CheckpointStore, HeaderRange};

use self::calls::{CallAnswer, CallRefusal, ModelCall};
use self::chance::RandomChoices;
use self::oracle::ModelOracle;
use crate::factory::StoreFactory;
use crate::stage::{TestStage, ok};

/// A configuration of the differential test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelTest {
    /// The seed of all random choices. The same seed makes the same calls. The default is 1.
    pub seed: u64,
    /// The number of calls. The default is 400. With a smaller number, a kind of call may never succeed, and the test then fails.
    pub calls: u32,
    /// The number of instances of the store that take turns. The default is 1.
    pub instances: u32,
}

impl Default for ModelTest {
    fn default() -> Self {
        Self { seed: 1, calls: 400, instances: 1 }
    }
}

/// The number of calls after which the test compares the complete logs of all runs. It compares the heads after each call.
const EVERY: u32 = 20;

/// The environment variable with a seed. If it is set, the differential test of a suite runs only this seed.
pub const SEED_VARIABLE: &str = "STORE_SUITE_SEED";

impl ModelTest {
    /// Sets the seed of all random choices.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of calls.
    #[must_use]
    pub fn with_calls(mut self, calls: u32) -> Self {
        self.calls = calls;
        self
    }

    /// Sets the number of instances that take turns.
    #[must_use]
    pub fn with_instances(mut self, instances: u32) -> Self {
        self.instances = instances;
        self
    }

    /// Makes random calls in a fresh space. Compares each answer, and then the head of each run, with the model.
    ///
    /// # Panics
    ///
    /// Panics if an answer differs, or if a kind of call never succeeded. The message has the seed, the number of the call and the call itself. The
    /// same seed fails again at the same call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, but data of the space outside of the process may remain.
    pub async fn run(self, factory: &dyn StoreFactory) {
        let space: Arc<dyn crate::factory::Space> = factory.fresh().await.into();
        self.run_on(TestStage::prepared(Arc::clone(&space)).await).await;
        space.remove().await;
    }

    pub(crate) async fn run_on(self, stage: TestStage) {
        let mut stores = vec![stage.store()];
        for _ in 1..self.instances {
            stores.push(stage.another().await);
        }
        let mut chance = RandomChoices::new(self.seed);
        let mut oracle = ModelOracle::default();
        let mut succeeded = BTreeMap::new();
        for number in 0..self.calls {
            let store = chance.pick(&stores);
            let call = ModelCall::draw(&mut chance, &oracle, &stage);
            let wanted = oracle.answer(&call);
            let told = call.make(&**store).await;
            let at = TestPosition { test: self, number, call: &call };
            assert!(told == wanted, "{at}\n the store: {told:#?}\n the model: {wanted:#?}");
            if told.is_success() {
                *succeeded.entry(call.name()).or_insert(0_u32) += 1;
            }
            same_heads(&**store, &oracle, &at).await;
            if number % EVERY == EVERY - 1 || number + 1 == self.calls {
                same_logs(&**store, &mut oracle, &at).await;
            }
        }
        for name in ModelCall::NAMES {
            assert!(
                succeeded.contains_key(name),
                "seed {}: no {name} has succeeded in {} calls; make more of them",
                self.seed,
                self.calls
            );
        }
    }
}

/// Removes the data of a test, so that the next test begins with an empty store.
pub(crate) async fn clear(stage: &TestStage) {
    for run in calls::runs() {
        ok(stage.store().purge(&run, None).await, "purging what a test left");
    }
    for executor in calls::executors() {
        ok(stage.store().heartbeat(&executor, Duration::ZERO).await, "ending an executor of a test");
    }
}

async fn same_heads(store: &dyn CheckpointStore, oracle: &ModelOracle, at: &TestPosition<'_>) {
    for run in calls::runs() {
        let told = store.head(&run).await.map_err(CallRefusal::from);
        let wanted = Ok(oracle.head(&run));
        assert!(told == wanted, "{at}\n the head of {run} after it: {told:#?}\n in the model: {wanted:#?}");
    }
}

/// Compares the complete logs of all runs.
async fn same_logs(store: &dyn CheckpointStore, oracle: &mut ModelOracle, at: &TestPosition<'_>) {
    for run in calls::runs() {
        for look in [
            ModelCall::Headers(run.clone(), HeaderRange::oldest(50), true),
            ModelCall::Load(run.clone(), StoreAt::Latest),
        ] {
            let (wanted, told) = (oracle.answer(&look), look.make(store).await);
            assert!(told == wanted, "{at}\n {look:?} after it: {told:#?}\n in the model: {wanted:#?}");
        }
    }
}

/// The position of the test, for the message of a failure.
struct TestPosition<'a> {
    test: ModelTest,
    number: u32,
    call: &'a ModelCall,
}

impl fmt::Display for TestPosition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, number, call } = self;
        write!(
            f,
            "seed {}: the store and the model differ at call {number}; replay with {SEED_VARIABLE}={} cargo test random_calls\n{call:#?}",
            test.seed, test.seed
        )
    }
}

impl CallAnswer {
    fn is_success(&self) -> bool {
        match self {
            Self::Heads(heads) => heads.iter().any(Result::is_ok),
            Self::Records(records) => records.as_ref().is_ok_and(Option::is_some),
            Self::Headers(headers) => headers.is_ok(),
            Self::Head(head) => head.as_ref().is_ok_and(Option::is_some),
            Self::Runs(runs) => runs.as_ref().is_ok_and(|runs| !runs.is_empty()),
            Self::Removed(removed) => removed.as_ref().is_ok_and(|removed| removed.0 > 0),
            Self::Done(done) => done.is_ok(),
        }
    }
}
