//! Processes that die at random, writes that fail, clocks that step: never more inside than there are places, and everybody has a turn.
//!
//! `FERRATA_CHAOS=300 cargo test -p ferrata-queue --test queue chaos` plays more of it; each failure names its seed.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeSet;

use ferrata_core::Epoch;
use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_core::testing::{Fault, Process, World};
use ferrata_queue::{Enqueue, Queues};

use crate::support::{MOMENT, WHILE, Witness, empty, in_a_place, process};

const GPUS: usize = 2;
const MAILS: usize = 3;

/// Numbers that follow from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

async fn begin(world: &World, witness: &Witness) -> Process {
    let process = process(world).await;
    process.serve(&in_a_place(witness, 5 * MOMENT)).unwrap();
    world.pass(process.queue("gpu").at_once(u32::try_from(GPUS).unwrap()).declare()).await.unwrap();
    world.pass(process.queue("mail").at_once(u32::try_from(MAILS).unwrap()).declare()).await.unwrap();
    process
}

/// How many queued runs were let in and have not ended, by their records.
async fn let_in(process: &Process) -> usize {
    let heads = process.runs().label("queue", "mail").limit(1_000).await.unwrap().items;
    let is_in = |head: &ferrata_core::store::RunHead| {
        head.facts.workflow.as_str() == "in_a_place"
            && head.epoch != Epoch::NEVER
            && !head.status.is_finished()
    };
    heads.iter().filter(|head| is_in(head)).count()
}

async fn play(seed: u64) {
    let (world, witness, mut dice) = (World::new(), Witness::default(), Dice(seed));
    let graph = in_a_place(&witness, 5 * MOMENT);
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(begin(&world, &witness).await);
    }
    let (mut started, mut next) = (BTreeSet::new(), 0);
    for _ in 0..24 {
        let one = usize::try_from(dice.below(3)).unwrap();
        match dice.below(12) {
            0..=6 => {
                let id = format!("run-{next}");
                next += 1;
                let mut input = Context::new();
                input.set("key", format!("key-{}", dice.below(3))).unwrap();
                input.set("priority", dice.below(3)).unwrap();
                let start = processes[one].start(&graph, input).id(&id);
                let is_started = match dice.below(3) {
                    0 => world.pass(start).await.is_ok(),
                    _ => world.pass(start.queue("mail").key(format!("{}", dice.below(2)))).await.is_ok(),
                };
                if is_started {
                    started.insert(id);
                }
            }
            7 | 8 => world.pass_for(u32::try_from(dice.below(20)).unwrap() * MOMENT).await,
            9 => {
                let faults = [Fault::Before, Fault::After];
                processes[one].fail_write(dice.below(4), faults[usize::try_from(dice.below(2)).unwrap()]);
            }
            10 => {
                // A clock is set back or forward: by which moment is counted is not what keeps places apart.
                let by = i64::try_from(dice.below(100_000)).unwrap() - 50_000;
                let now = processes[one].clock().now().unix_ms();
                world.clock().set_now(ferrata_core::Timestamp::from_unix_ms(now + by));
            }
            _ => {
                if dice.below(2) == 0 {
                    let faults = [Fault::CrashBefore, Fault::CrashAfter];
                    processes[one].fail_write(dice.below(3), faults[usize::try_from(dice.below(2)).unwrap()]);
                    world.pass_for(10 * MOMENT).await;
                }
                processes.remove(one).crash().await;
                processes.push(begin(&world, &witness).await);
            }
        }
        assert!(witness.most() <= GPUS, "seed {seed}: {:?}", witness.came());
        if let Some(process) = processes.iter().find(|process| !process.is_crashed()) {
            let inside = let_in(process).await;
            assert!(inside <= MAILS, "seed {seed}: {inside} runs were let in");
        }
    }
    let last = begin(&world, &witness).await;
    let gpu = last.queue("gpu").find().await.unwrap().unwrap();
    let mail = last.queue("mail").find().await.unwrap().unwrap();
    world.pass_for(10 * WHILE).await;
    for id in &started {
        let run = id.as_str().try_into().unwrap();
        let status = last.head(&run).await.unwrap().map(|head| head.status);
        if status != Some(RunStatus::Completed) {
            let (gpu, mail) = (gpu.status().await.unwrap(), mail.status().await.unwrap());
            let story = last.story(&run).await.unwrap();
            panic!("seed {seed}: {id} is {status:?}\n{story}{gpu:#?}\n{mail:#?}");
        }
    }
    assert!(witness.most() <= GPUS, "seed {seed}: {:?}", witness.came());
    empty(&world, &gpu).await;
    empty(&world, &mail).await;
}

#[tokio::test]
async fn whatever_dies_places_are_kept_and_everybody_has_a_turn() {
    // With 18, a run was seen at rest before its wait was on record.
    let rounds: u64 = std::env::var("FERRATA_CHAOS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    for seed in 17..17 + rounds {
        play(seed).await;
    }
}
