//! Crashes at every write: the next process continues the run, and recorded work never runs again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod enough;
mod families;
mod graphs;
mod ledger;
mod log;
mod paused_runs;

mod others;
mod pausing;
mod signals;
mod subgraphs;
#[path = "../support/mod.rs"]
mod support;
mod trees;
mod world;

use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy};
use ferrata_testing::Fault;

use self::graphs::Case;
use self::world::World;

/// The faults: crash before a write, crash after it, failed write, and lost reply.
const ENDS: [Fault; 4] = Fault::ALL;

fn policies() -> [CheckpointPolicy; 3] {
    let frequencies = [
        CheckpointFrequency::EveryNode,
        CheckpointFrequency::EveryNth(3.try_into().unwrap()),
        CheckpointFrequency::StatusChangeOnly,
    ];
    frequencies.map(|frequency| CheckpointPolicy::default().with_frequency(frequency))
}

/// Runs a case without faults. Returns the final state and the number of writes.
async fn calm(case: &Case, policy: CheckpointPolicy) -> (serde_json::Value, u64) {
    let world = World::new(case, policy, "calm");
    let state = world.live(&[]).await;
    world.check();
    (state, world.operations())
}

async fn crash_once(case: &Case) {
    for policy in policies() {
        let (wanted, writes) = calm(case, policy).await;
        assert!(writes >= 2, "{}: only {writes} writes", case.name);
        for at in 0..writes {
            for fault in ENDS {
                let label = format!("{} {:?} {fault:?} at {at}", case.name, policy.frequency);
                let world = World::new(case, policy, &label);
                let state = world.live(&[(at, fault)]).await;
                world.check();
                assert_eq!(state, wanted, "{label}");
            }
        }
    }
}

/// Crashes at every write, and in the next process again at every write. `stride` skips pairs evenly if there are too many.
async fn crash_twice(case: &Case, stride: u64) {
    let policy = CheckpointPolicy::default();
    let (wanted, writes) = calm(case, policy).await;
    for first in 0..writes {
        // The second process writes a claim and the answers, in addition to the remaining records.
        for second in (first % stride..writes + 4).step_by(usize::try_from(stride).unwrap()) {
            let faults = [Fault::CrashBefore, Fault::CrashAfter];
            let pick = |n: u64| faults[usize::from(n.is_multiple_of(2))];
            let crashes = [(first, pick(first + second)), (second, pick(second / 2))];
            let label = format!("{} twice {crashes:?}", case.name);
            let world = World::new(case, policy, &label);
            let state = world.live(&crashes).await;
            world.check();
            assert_eq!(state, wanted, "{label}");
        }
    }
}

macro_rules! cases {
    ($module:ident, $stride:literal: $($case:ident),*) => {$(
        mod $case {
            /// Guarantees: COMPOSE-2, DURABLE-1, ONCE-1, STEP-1.
            #[tokio::test]
            async fn goes_on_after_a_crash_at_every_write() {
                super::crash_once(&crate::$module::$case()).await;
            }

            /// Guarantees: COMPOSE-2, DURABLE-1.
            #[tokio::test]
            async fn goes_on_after_two_crashes() {
                super::crash_twice(&crate::$module::$case(), $stride).await;
            }
        }
    )*};
}

cases!(graphs, 1: chain, diamond, rounds, replans, fan_out, flaky, external, hazards);
cases!(subgraphs, 11: nested);
cases!(pausing, 11: gates, talk, steps, sleeps, mixed);

/// A lost reply or a short outage causes no restart, because the same append is repeated.
///
/// Guarantees: DURABLE-8.
#[tokio::test]
async fn repeated_append_recovers_lost_reply() {
    for case in graphs::all().into_iter().chain(pausing::all()).chain([subgraphs::nested()]) {
        let policy = CheckpointPolicy::default();
        let (wanted, writes) = calm(&case, policy).await;
        for at in 0..writes {
            for fault in [Fault::Before, Fault::After] {
                let label = format!("{} {fault:?} at {at}, tried again", case.name);
                let world = World::new(&case, policy, &label).patient();
                let state = world.live(&[(at, fault)]).await;
                world.check();
                assert_eq!(world.lives(), 1, "{label}");
                assert_eq!(state, wanted, "{label}");
            }
        }
    }
}
