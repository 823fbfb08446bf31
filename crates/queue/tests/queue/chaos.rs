//! Random crashes, failed writes, and clocks that step and are up to ten minutes wrong: holders never exceed the slots, and every waiter gets a slot.
//!
//! `FERRATA_CHAOS=300 cargo test -p ferrata-queue --test queue chaos` runs more of it. Each failure prints its seed.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Clock, Epoch, Seq, Timestamp};
use ferrata_queue::{RuntimeQueueExt, StartQueueExt};
use ferrata_store_sharded::ShardedStore;
use ferrata_testing::{Fault, FaultPlan, FaultStore, SeqIds, World};

use crate::support::{MOMENT, WHILE, Witness, empty, in_a_place};

const GPUS: usize = 2;
const MAILS: usize = 3;

/// Random numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    /// Error of a clock, in milliseconds.
    fn off(&mut self) -> i64 {
        i64::try_from(self.below(1_200_000)).unwrap() - 600_000
    }
}

/// The wrong clock of one process, based on that of the world.
#[derive(Debug)]
struct WrongClock {
    truth: Arc<dyn Clock>,
    off_ms: AtomicI64,
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.truth.now().unix_ms() + self.off_ms.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.truth.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.truth.sleep(duration)
    }
}

/// A process with its own connection to the store, and its own clock.
struct Member {
    runtime: Runtime,
    line: Arc<FaultStore<Arc<dyn CheckpointStore>>>,
    clock: Arc<WrongClock>,
}

/// The stores and the clock of a simulation.
struct Ground {
    world: World,
    store: Arc<dyn CheckpointStore>,
    witness: Witness,
    /// The clock of the world.
    truth: Arc<dyn Clock>,
    started: u64,
}

impl Ground {
    /// On one store, or on three shards.
    async fn new(is_sharded: bool) -> Self {
        let world = World::new();
        let truth = Arc::clone(world.process().await.unwrap().clock());
        let shard = || MemoryStore::with_clock(Arc::clone(&truth));
        let store: Arc<dyn CheckpointStore> = match is_sharded {
            true => {
                let shards = ShardedStore::builder().clock(Arc::clone(&truth));
                let shards = shards.shard("one", shard()).shard("two", shard()).shard("three", shard());
                Arc::new(shards.generation(["one", "two", "three"]).build().unwrap())
            }
            false => Arc::new(shard()),
        };
        Self { world, store, witness: Witness::default(), truth, started: 0 }
    }

    async fn begin(&mut self, dice: &mut Dice) -> Member {
        self.started += 1;
        let line = Arc::new(FaultStore::new(Arc::clone(&self.store), FaultPlan::new()));
        let clock =
            Arc::new(WrongClock { truth: Arc::clone(&self.truth), off_ms: AtomicI64::new(dice.off()) });
        let builder = Runtime::builder_with(Arc::clone(&line) as _)
            .clock(Arc::clone(&clock) as _)
            .ids(Arc::new(SeqIds::new(self.started)))
            .heartbeat_ttl(WHILE)
            .sweep_interval(10 * MOMENT)
            .poll_interval(10 * MOMENT)
            .release_after(WHILE);
        let runtime = self.world.pass(builder.build()).await.unwrap();
        runtime.serve(&self.graph()).unwrap();
        let places = |places: usize| u32::try_from(places).unwrap();
        self.world.pass(runtime.queue("gpu").at_once(places(GPUS)).declare()).await.unwrap();
        self.world.pass(runtime.queue("mail").at_once(places(MAILS)).declare()).await.unwrap();
        Member { runtime, line, clock }
    }

    fn graph(&self) -> Graph<Context> {
        in_a_place(&self.witness, 5 * MOMENT)
    }

    /// Crashes a process, and waits until it counts as dead.
    async fn crash(&self, member: Member) {
        member.line.crash();
        // The shutdown of a dead process fails.
        let _ = self.world.pass(member.runtime.shutdown(Duration::ZERO)).await;
        drop(member);
        self.world.pass_for(2 * WHILE).await;
    }
}

/// Number of queued runs that have a slot and have not ended, by their records.
async fn let_in(process: &Runtime) -> usize {
    let heads = process.runs().label("queue", "mail").limit(1_000).await.unwrap().items;
    let is_in = |head: &ferrata_core::store::RunHead| {
        head.facts.workflow.as_str() == "in_a_place"
            && head.epoch != Epoch::NEVER
            && !head.status.is_finished()
    };
    heads.iter().filter(|head| is_in(head)).count()
}

async fn play(seed: u64, is_sharded: bool) {
    let (mut ground, mut dice) = (Ground::new(is_sharded).await, Dice(seed));
    let (graph, mut members) = (ground.graph(), Vec::new());
    for _ in 0..3 {
        members.push(ground.begin(&mut dice).await);
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
                let start = members[one].runtime.start(&graph, input).id(&id);
                let is_started = match dice.below(3) {
                    0 => ground.world.pass(start).await.is_ok(),
                    _ => {
                        let queued = start.queue("mail").key(format!("{}", dice.below(2)));
                        ground.world.pass(queued).await.is_ok()
                    }
                };
                if is_started {
                    started.insert(id);
                }
            }
            7 | 8 => ground.world.pass_for(u32::try_from(dice.below(20)).unwrap() * MOMENT).await,
            9 => {
                let faults = [Fault::Before, Fault::After];
                members[one].fail_write(dice.below(4), faults[usize::try_from(dice.below(2)).unwrap()]);
            }
            // Set a wrong clock, because the limit of slots does not depend on clocks.
            10 => members[one].clock.off_ms.store(dice.off(), Ordering::Relaxed),
            _ => {
                if dice.below(2) == 0 {
                    let faults = [Fault::CrashBefore, Fault::CrashAfter];
                    members[one].fail_write(dice.below(3), faults[usize::try_from(dice.below(2)).unwrap()]);
                    ground.world.pass_for(10 * MOMENT).await;
                }
                ground.crash(members.remove(one)).await;
                members.push(ground.begin(&mut dice).await);
            }
        }
        assert!(ground.witness.most() <= GPUS, "seed {seed}: {:?}", ground.witness.came());
        if let Some(member) = members.iter().find(|member| !member.line.is_crashed()) {
            let inside = let_in(&member.runtime).await;
            assert!(inside <= MAILS, "seed {seed}: {inside} runs have a slot");
        }
    }
    let last = ground.begin(&mut dice).await.runtime;
    let gpu = last.queue("gpu").find().await.unwrap().unwrap();
    let mail = last.queue("mail").find().await.unwrap().unwrap();
    ground.world.pass_for(10 * WHILE).await;
    for id in &started {
        let run = id.as_str().try_into().unwrap();
        let status = last.head(&run).await.unwrap().map(|head| head.status);
        if status != Some(RunStatus::Completed) {
            let (gpu, mail) = (gpu.status().await.unwrap(), mail.status().await.unwrap());
            let lines = last.timeline(&run, Seq::new(0)).await.unwrap();
            let story: Vec<_> = lines.iter().map(|line| &line.text).collect();
            panic!("seed {seed}: {id} is {status:?}\n{story:#?}{gpu:#?}\n{mail:#?}");
        }
    }
    assert!(ground.witness.most() <= GPUS, "seed {seed}: {:?}", ground.witness.came());
    empty(&ground.world, &gpu).await;
    empty(&ground.world, &mail).await;
}

impl Member {
    fn fail_write(&self, n: u64, fault: Fault) {
        self.line.plan(self.line.operations() + n, fault);
    }
}

async fn play_all(first: u64, is_sharded: bool) {
    let rounds = std::env::var("FERRATA_CHAOS").ok().and_then(|rounds| rounds.parse::<u64>().ok());
    for seed in first..first + rounds.unwrap_or(1) {
        play(seed, is_sharded).await;
    }
}

/// Guarantees: QUEUE-1, QUEUE-2.
#[tokio::test]
async fn chaos_preserves_slots_and_grants_every_waiter() {
    // With seed 22, a process with a fast clock granted the slot of a start while that start was being recorded.
    play_all(22, false).await;
}

/// The queue is in one shard, and its runs are in all shards.
///
/// Guarantees: QUEUE-1, QUEUE-2.
#[tokio::test]
async fn chaos_in_shards_preserves_slots_and_grants() {
    play_all(17, true).await;
}
