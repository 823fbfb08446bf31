//! Run trees that are paused and unpaused around crashes at every write. A paused parent has paused its children, no run of the tree advances until
//! the unpause, and the result equals that without a pause.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrata_core::RunKey;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Position, Runtime};
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_testing::{Fault, FaultPlan, FaultStore};
use serde_json::Value;

use super::families::{Case, Family, asks, asks_at_rest, key, live, mapped, nested, nested_at_rest, three};
use super::log::records;
use super::support::dice::Dice;

/// Default number of random executions of each case. The environment can set this number and the first seed.
const LIVES: u64 = 20;
const MORE: &str = "FERRATA_HELD_LIVES";
const SEED: &str = "FERRATA_HELD_SEED";

/// Number of half seconds during which a paused run tree must not advance.
const STILL: u32 = 40;

const NONE: Case = Case { name: "none", graphs: Vec::new(), left: 0, rests: false };

async fn moment(family: &Family) {
    family.settle().await;
    family.clock.advance(Duration::from_millis(500));
}

/// Lets a process run until the first run is idle and paused, or has ended, or the process has crashed. Returns whether the run is paused or has
/// ended.
async fn until_held(
    family: &Family,
    case: &Case,
    store: &FaultStore<MemoryStore>,
    runtime: &Runtime,
) -> bool {
    let started = family.store.head(&key()).await.unwrap().is_some();
    if !(case.rests && started) {
        family.begin(case, runtime).await;
    }
    for _ in 0..2_000 {
        moment(family).await;
        if store.is_crashed() {
            return false;
        }
        let top = family.store.head(&key()).await.unwrap();
        let rests = |status: RunStatus| status == RunStatus::Interrupted || status.is_finished();
        if top.is_some_and(|top| rests(top.status)) {
            return true;
        }
        family.answer_all(store, runtime).await;
    }
    panic!("{}: the run tree is neither paused and idle nor ended", family.label);
}

/// The number of records and the pause reason of each run.
async fn stands(family: &Family, runtime: &Runtime) -> BTreeMap<RunKey, (usize, Option<String>)> {
    let mut all = BTreeMap::new();
    for head in family.runs().await {
        let paused = runtime.checkpoint(&head.run, Position::Latest).await.unwrap().paused;
        all.insert(head.run.clone(), (records(&family.store, &head.run).await.len(), paused));
    }
    all
}

/// Checks that every active run of a paused run tree is paused, and that none advances.
async fn check_held(family: &Family, runtime: &Runtime) {
    // Running nodes may still be recorded before their runs become idle.
    for _ in 0..STILL {
        moment(family).await;
    }
    let before = stands(family, runtime).await;
    for head in family.runs().await.iter().filter(|head| !head.status.is_finished()) {
        let label = &family.label;
        assert_eq!(head.status, RunStatus::Interrupted, "{label}: {}", head.run);
        assert!(before[&head.run].1.is_some(), "{label}: {} is not paused", head.run);
    }
    for _ in 0..STILL {
        moment(family).await;
    }
    assert_eq!(stands(family, runtime).await, before, "{}: a paused run tree advances", family.label);
}

async fn end(family: &Family, store: &FaultStore<MemoryStore>, runtime: Runtime) {
    store.crash();
    drop(runtime);
    moment(family).await;
    family.check().await;
    family.clock.advance(Duration::from_secs(4));
}

/// Returns whether the run tree was paused.
async fn pause_somewhere(case: &Case, (wanted, writes): &(Value, u64), seed: u64) -> bool {
    let dice = Dice::new(seed);
    let family = Family::new(format!("{SEED}={seed} {}", case.name));
    let (_, operator) = family.process(&NONE, FaultPlan::new()).await;
    let plan = |dice: &Dice, from: u64| match dice.below(3) {
        0 => FaultPlan::new(),
        _ => FaultPlan::new().with_fault(from + dice.below(12), *dice.pick(&Fault::ALL)),
    };
    let at = dice.below(*writes);
    let (store, runtime) = family.process(case, plan(&dice, at)).await;
    let pausing = operator.clone();
    store.before(at, async move {
        // The pause is refused if the run has not started or has ended.
        drop(pausing.pause(&key(), "lunch").await);
    });
    let mut rests = until_held(&family, case, &store, &runtime).await;
    end(&family, &store, runtime).await;
    if !rests {
        let (store, runtime) = family.process(case, FaultPlan::new()).await;
        rests = until_held(&family, case, &store, &runtime).await;
        end(&family, &store, runtime).await;
    }
    assert!(rests, "{}", family.label);
    let is_paused = family.store.head(&key()).await.unwrap().unwrap().status == RunStatus::Interrupted;
    if is_paused {
        let (store, runtime) = family.process(case, FaultPlan::new()).await;
        check_held(&family, &runtime).await;
        end(&family, &store, runtime).await;
        operator.unpause(&key()).await.unwrap();
        let (store, runtime) = family.process(case, plan(&dice, 0)).await;
        family.live(case, &store, &runtime).await;
        end(&family, &store, runtime).await;
    }
    let (store, runtime) = family.process(case, FaultPlan::new()).await;
    assert!(family.live(case, &store, &runtime).await, "{}", family.label);
    assert_eq!(family.ending(&runtime).await, *wanted, "{}", family.label);
    end(&family, &store, runtime).await;
    std::mem::forget(operator);
    is_paused
}

async fn pause_everywhere(case: Case) {
    let set = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = set(SEED).map_or(1..=set(MORE).unwrap_or(LIVES), |seed| seed..=seed);
    let usual = live(&case, &[]).await;
    let (mut paused, all) = (0, seeds.clone().count());
    for seed in seeds {
        paused += usize::from(pause_somewhere(&case, &usual, seed).await);
    }
    assert!(all == 1 || paused > 0, "{}: {paused} of {all} were paused", case.name);
}

macro_rules! cases {
    ($($case:ident),*) => {$(
        mod $case {
            /// Guarantees: CHILD-12.
            #[tokio::test]
            async fn run_tree_pauses_and_unpauses_despite_crashes() {
                super::pause_everywhere(super::$case()).await;
            }
        }
    )*};
}

cases!(three, nested, mapped, asks, nested_at_rest, asks_at_rest);
