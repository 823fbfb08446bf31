//! The differential test as a property: some seeds always, another one on demand.

use crate::model::{ModelTest, SEED_VARIABLE, clear};
use crate::stage::TestStage;

/// Seeds that are always tried. More take longer and find little that these do not; `ModelTest` runs any number.
const SEEDS: [u64; 3] = [1, 2, 3];

async fn agrees(stage: TestStage, test: ModelTest, seeds: &[u64]) {
    let test = test.with_calls(u32::try_from(stage.times(400, 160)).expect("a few hundred"));
    let asked = std::env::var(SEED_VARIABLE).ok();
    let asked = asked.map(|seed| seed.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE} is not a number")));
    for seed in asked.map_or_else(|| seeds.to_vec(), |seed: u64| vec![seed]) {
        test.with_seed(seed).run_on(stage.clone()).await;
        clear(&stage).await;
    }
}

/// Random calls are answered as the model answers them.
pub(crate) async fn random_calls_are_answered_like_the_model(stage: TestStage) {
    let seeds = &SEEDS[..stage.times(SEEDS.len(), 1)];
    agrees(stage, ModelTest::default(), seeds).await;
}

/// Random calls to several instances in turn are answered as if there were one.
pub(crate) async fn random_calls_to_instances_in_turn_are_answered_like_the_model(stage: TestStage) {
    let seeds = &[4, 5][..stage.times(2, 1)];
    agrees(stage, ModelTest::default().with_instances(3), seeds).await;
}
