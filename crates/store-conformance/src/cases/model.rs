//! The differential test as a property: always with some fixed seeds, and with another seed on request.

use crate::model::{ModelTest, SEED_VARIABLE, clear};
use crate::stage::TestStage;

/// The seeds of the property. More seeds take longer and find little more; `ModelTest` runs any seed.
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

/// The store answers random calls like the model.
pub(crate) async fn random_calls_are_answered_like_the_model(stage: TestStage) {
    let seeds = &SEEDS[..stage.times(SEEDS.len(), 1)];
    agrees(stage, ModelTest::default(), seeds).await;
}

/// Several instances that take turns answer random calls like the model.
pub(crate) async fn random_calls_to_instances_in_turn_are_answered_like_the_model(stage: TestStage) {
    let seeds = &[4, 5][..stage.times(2, 1)];
    agrees(stage, ModelTest::default().with_instances(3), seeds).await;
}
