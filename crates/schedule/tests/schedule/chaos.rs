//! Crashing processes with clocks that step and are hours wrong: each tick has exactly one run.
//!
//! `FERRATA_CHAOS=300 cargo test -p ferrata-schedule --test schedule chaos` runs more of it. Each failure prints its seed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_core::{Clock, Timestamp};
use ferrata_schedule::{CatchUp, Overlap, RuntimeScheduleExt, Schedule};
use ferrata_testing::{Fault, Process, World};

use crate::support::{DAY, HOUR, assert_healthy, minute_of_2026, report, runs, text, world};

/// Maximum error of a clock in minutes.
const OFF: u64 = 150;

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

    fn off(&mut self) -> i64 {
        60_000 * (i64::try_from(self.below(2 * OFF)).unwrap() - i64::try_from(OFF).unwrap())
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

/// Starts a process with the schedule and its own clock.
async fn begin(world: &World, truth: &Arc<dyn Clock>, dice: &mut Dice) -> (Process, Arc<WrongClock>) {
    let clock = Arc::new(WrongClock { truth: Arc::clone(truth), off_ms: AtomicI64::new(dice.off()) });
    let wrong = Arc::clone(&clock);
    let process = world.process_with(|b| {
        b.clock(wrong as _).heartbeat_ttl(2 * HOUR).sweep_interval(HOUR).poll_interval(HOUR)
    });
    let process = process.await.unwrap();
    world.pass(start(&process)).await.unwrap();
    (process, clock)
}

async fn start(process: &Process) -> ferrata_core::Result<Schedule> {
    let often = process.schedule("often").cron("0 */6 * * *").catch_up(CatchUp::All(100));
    often.overlap(Overlap::Allow).start(&report(), Context::new()).await
}

async fn play(seed: u64) {
    let (world, mut dice) = (world(), Dice(seed));
    let truth = Arc::clone(world.process().await.unwrap().clock());
    let mut members = Vec::new();
    for _ in 0..3 {
        members.push(begin(&world, &truth, &mut dice).await);
    }
    for _ in 0..20 {
        let one = usize::try_from(dice.below(3)).unwrap();
        match dice.below(8) {
            0..=2 => members[one].1.off_ms.store(dice.off(), Ordering::Relaxed),
            3 => {
                let faults = [Fault::Before, Fault::After];
                members[one].0.fail_write(dice.below(4), faults[usize::try_from(dice.below(2)).unwrap()]);
            }
            4 => {
                let faults = [Fault::CrashBefore, Fault::CrashAfter];
                members[one].0.fail_write(dice.below(4), faults[usize::try_from(dice.below(2)).unwrap()]);
                world.pass_for(7 * HOUR).await;
                members.remove(one).0.crash().await;
                members.push(begin(&world, &truth, &mut dice).await);
            }
            _ => world.pass_for(HOUR * u32::try_from(1 + dice.below(12)).unwrap()).await,
        }
    }
    for (_, clock) in &members {
        clock.off_ms.store(0, Ordering::Relaxed);
    }
    let last = begin(&world, &truth, &mut Dice(0)).await;
    last.1.off_ms.store(0, Ordering::Relaxed);
    world.pass_for(2 * DAY).await;

    let often = last.0.schedule("often").find().await.unwrap().unwrap();
    let found = runs(&often).await;
    assert!(found.iter().all(|run| run.2 == RunStatus::Completed), "seed {seed}: {found:?}");
    let ticks: Vec<_> = found.iter().map(|run| run.0.clone()).collect();
    let first: i64 =
        (0..200).find(|n| text(tick(*n)) == ticks[0]).unwrap_or_else(|| panic!("seed {seed}: {ticks:?}"));
    let all: Vec<_> = (first..).map(|n| text(tick(n))).take(ticks.len()).collect();
    assert_eq!(ticks, all, "seed {seed}");
    let now = world.clock().now();
    assert!(
        text(tick(first + i64::try_from(ticks.len()).unwrap())) > text(now),
        "seed {seed}: {now:?}, {ticks:?}"
    );
    let progress = often.status().await.unwrap().progress;
    assert_eq!((progress.started, progress.missed), (ticks.len() as u64, 0), "seed {seed}");
    assert_healthy(&last.0).await;
}

/// Every six hours, starting on the evening before 2026.
fn tick(n: i64) -> Timestamp {
    minute_of_2026((n - 1) * 6 * 60)
}

/// Guarantees: SCHEDULE-1.
#[tokio::test]
async fn chaos_gives_each_tick_one_run() {
    let rounds = std::env::var("FERRATA_CHAOS").ok().and_then(|rounds| rounds.parse::<u64>().ok());
    for seed in 1..=rounds.unwrap_or(2) {
        play(seed).await;
    }
}
