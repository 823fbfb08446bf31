//! The differential test: random sequences of all calls, against a model so simple that it is plainly right.

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

/// One run of the differential test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelTest {
    /// The seed of every choice; the same seed makes the same calls. 1 by default.
    pub seed: u64,
    /// The number of calls: 400 by default. With fewer, a kind of call may never succeed, which the model checks.
    pub calls: u32,
    /// How many instances of the store take turns: 1 by default.
    pub instances: u32,
}

impl Default for ModelTest {
    fn default() -> Self {
        Self { seed: 1, calls: 400, instances: 1 }
    }
}

/// After how many calls the logs of all runs are compared whole, beside the heads after each call.
const EVERY: u32 = 20;

/// The variable that makes the differential test of a suite run with this seed and no other.
pub const SEED_VARIABLE: &str = "STORE_SUITE_SEED";

impl ModelTest {
    /// Sets the seed.
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

    /// Sets how many instances take turns.
    #[must_use]
    pub fn with_instances(mut self, instances: u32) -> Self {
        self.instances = instances;
        self
    }

    /// Makes random calls in a fresh space, and compares each answer, and each run's head after it, with the model's.
    ///
    /// # Panics
    ///
    /// If an answer differs, or if one of the calls never succeeded. The message says the seed, the number of the call and
    /// the call itself; the same seed fails again at the same place.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, but what the space holds outside the process may be left.
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

/// Removes what a test left, so that the next begins with nothing.
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

/// Compares the whole logs of all runs.
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

/// Where the test is, for the message of a failure.
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
