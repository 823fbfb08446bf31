//! Several processes with different definitions: the definition in effect, and rollouts.

use ferrata_core::ErrorKind;
use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_schedule::{CatchUp, Overlap, RuntimeScheduleExt, Schedule, TickEnd};
use ferrata_testing::Process;

use crate::support::{
    DAY, HOUR, MINUTE, assert_healthy, day, lively, mortal, report, runs, slow, text, ticks, world,
};

async fn start(process: &Process, version: u32, cron: &str) -> ferrata_core::Result<Schedule> {
    process.schedule("daily").version(version).cron(cron).start(&report(), Context::new()).await
}

fn at(days: &[i64], hour: u32) -> Vec<String> {
    days.iter().map(|n| text(day(*n).plus(HOUR * hour))).collect()
}

/// During a rollout, old processes also start. The newest version stays in effect, so the noon tick does not come back.
///
/// Guarantees: SCHEDULE-8.
#[tokio::test]
async fn highest_version_wins_over_last_process() {
    let world = world();
    let old = mortal(&world).await;
    let daily = start(&old, 1, "0 12 * * *").await.unwrap();
    world.pass_for(DAY).await;
    let new = mortal(&world).await;
    world.pass(start(&new, 3, "0 18 * * *")).await.unwrap();
    assert_eq!(daily.status().await.unwrap().definition.version, 3);
    // Old processes, started again or still running, change nothing.
    let restarted = mortal(&world).await;
    world.pass(start(&restarted, 1, "0 12 * * *")).await.unwrap();
    world.pass(start(&restarted, 2, "0 13 * * *")).await.unwrap();
    world.pass_for(2 * DAY).await;
    assert_eq!(ticks(&daily).await, [at(&[0], 12), at(&[1, 2], 18)].concat());
    // The only new process dies. The old ones do not replace it, and the next new one does.
    new.crash().await;
    world.pass_for(DAY).await;
    assert_eq!(ticks(&daily).await.len(), 3);
    let new = mortal(&world).await;
    world.pass(start(&new, 3, "0 18 * * *")).await.unwrap();
    world.pass_for(DAY).await;
    let found = ticks(&daily).await;
    assert_eq!(found[3..], at(&[3, 4], 18), "{found:?}");
}

/// Guarantees: SCHEDULE-9.
#[tokio::test]
async fn another_definition_of_the_same_version_is_refused() {
    let world = world();
    let first = mortal(&world).await;
    let daily = start(&first, 1, "0 12 * * *").await.unwrap();
    let second = mortal(&world).await;
    let error = start(&second, 1, "0 18 * * *").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("another cron"), "{error}");
    let mut other = Context::new();
    other.set("of", "another").unwrap();
    let same = second.schedule("daily").cron("0 12 * * *");
    let error = same.start(&report(), other).await.unwrap_err();
    assert!(error.to_string().contains("another input"), "{error}");
    start(&second, 1, "0 12 * * *").await.unwrap();
    assert_eq!(daily.status().await.unwrap().definition.cron, "0 12 * * *");
    // A process can start it again.
    start(&second, 1, "0 12 * * *").await.unwrap();
}

#[tokio::test]
async fn invalid_schedule_is_refused_without_trace() {
    let world = world();
    let process = mortal(&world).await;
    let long = "n".repeat(65);
    for name in ["", "a b", "a/b", "a:b", ".a", &long] {
        let started = process.schedule(name).cron("0 12 * * *").start(&report(), Context::new()).await;
        assert_eq!(started.unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
    }
    for version in [0, 1_001, u32::MAX] {
        assert_eq!(start(&process, version, "0 12 * * *").await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    for (policy, catch_up, overlap) in [
        ("CatchUp::All(0)", CatchUp::All(0), Overlap::Skip),
        ("CatchUp::All(1001)", CatchUp::All(1_001), Overlap::Skip),
        ("Overlap::Queue(0)", CatchUp::None, Overlap::Queue(0)),
        ("Overlap::Queue(1001)", CatchUp::None, Overlap::Queue(1_001)),
    ] {
        let daily = process.schedule("daily").cron("0 12 * * *").catch_up(catch_up).overlap(overlap);
        let error = daily.start(&report(), Context::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{policy}");
        assert!(error.to_string().contains(policy), "{error}");
    }
    let untimed = process.schedule("daily").start(&report(), Context::new()).await;
    assert_eq!(untimed.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(process.runs().await.unwrap().items, []);
    // All names have the maximum length.
    let name = "n".repeat(64);
    let longest = process
        .schedule(&name)
        .version(1_000)
        .cron("* * * * *")
        .catch_up(CatchUp::All(1_000))
        .overlap(Overlap::Queue(1_000))
        .start(&report(), Context::new())
        .await
        .unwrap();
    world.pass_for(2 * MINUTE - MINUTE / 2).await;
    assert_eq!(ticks(&longest).await.len(), 1);
}

/// Two processes start it at the same moment, with definitions of different versions.
///
/// Guarantees: SCHEDULE-8.
#[tokio::test]
async fn concurrent_starts_settle_on_newer_definition() {
    let world = world();
    let (one, two) = (mortal(&world).await, mortal(&world).await);
    let both = async { tokio::join!(start(&one, 1, "0 12 * * *"), start(&two, 2, "0 18 * * *")) };
    let (first, second) = world.pass(Box::pin(both)).await;
    let (first, second) = (first.unwrap(), second.unwrap());
    world.pass_for(2 * DAY).await;
    assert_eq!(first.status().await.unwrap().definition.version, 2);
    assert_eq!(ticks(&second).await, at(&[0, 1], 18));
}

/// A newer definition arrives while the run of a tick is active: that run is neither lost nor started again.
///
/// Guarantees: SCHEDULE-10.
#[tokio::test]
async fn new_definition_leaves_active_tick_run_alone() {
    let world = world();
    let old = mortal(&world).await;
    let work = slow(5 * HOUR);
    let begin = async |process: &Process, version, cron: &str| {
        process.schedule("daily").version(version).cron(cron).start(&work, Context::new()).await
    };
    let daily = begin(&old, 1, "0 12 * * *").await.unwrap();
    world.pass_for(14 * HOUR).await;
    let new = mortal(&world).await;
    world.pass(begin(&new, 2, "0 18 * * *")).await.unwrap();
    world.pass_for(DAY + 6 * HOUR).await;
    assert_eq!(ticks(&daily).await, [at(&[0], 12), at(&[0, 1], 18)].concat());
}

/// The newer definition has another policy or workflow. The schedule waits for the active run as it was started, and the next tick follows the new
/// definition.
///
/// Guarantees: SCHEDULE-10.
#[tokio::test]
async fn active_run_is_awaited_under_old_definition() {
    let before = [Overlap::CancelOld, Overlap::Skip, Overlap::Queue(1), Overlap::Allow];
    let after = [Overlap::Allow, Overlap::Skip, Overlap::CancelOld];
    let pairs = before.iter().flat_map(|before| after.iter().map(move |after| (*before, *after)));
    for (before, after, is_other) in pairs.flat_map(|(one, two)| [(one, two, false), (one, two, true)]) {
        let case = format!("{before:?} and then {after:?}, with another workflow: {is_other}");
        let world = world();
        let old = lively(&world).await;
        let work = slow(5 * HOUR);
        let daily = old.schedule("daily").cron("0 12 * * *").overlap(before);
        let daily = daily.start(&work, Context::new()).await.unwrap();
        world.pass_for(14 * HOUR + 30 * MINUTE).await;
        let new = lively(&world).await;
        let hourly = new.schedule("daily").version(2).cron("0 * * * *").overlap(after);
        let graph = if is_other { report() } else { work.clone() };
        world.pass(hourly.start(&graph, Context::new())).await.unwrap();
        world.pass_for(3 * HOUR).await;
        let status = daily.status().await.unwrap();
        let of_noon = runs(&daily).await.swap_remove(0);
        let (ended, end) = match before {
            Overlap::CancelOld => (RunStatus::Cancelled, TickEnd::Overtaken),
            _ => (RunStatus::Completed, TickEnd::Completed),
        };
        assert_eq!((of_noon.0, of_noon.2), (at(&[0], 12).swap_remove(0), ended), "{case}");
        if before != Overlap::Allow {
            // The first tick of the new definition is skipped, waits, or cancels the run.
            let next = if before == Overlap::Skip { Vec::new() } else { at(&[0], 15) };
            let found = ticks(&daily).await;
            assert!(found[1..].starts_with(&next) && found.len() > next.len(), "{case}: {found:?}");
            assert_eq!(status.definition.version, 2, "{case}: {status:?}");
            assert_eq!(status.progress.recent[0].end, end, "{case}");
            if before == Overlap::Skip {
                assert_eq!((found.len(), status.progress.skipped), (1, 3), "{case}: {status:?}");
            }
        }
        world.pass_for(HOUR).await;
        assert!(ticks(&daily).await.ends_with(&at(&[0], 18)) || after == Overlap::Skip, "{case}");
        let workflows = daily.runs().await.unwrap().items;
        let workflow = workflows[0].facts.workflow.as_str();
        assert_eq!(workflow, if is_other { "report" } else { "slow" }, "{case}");
        let recent = daily.status().await.unwrap().progress.recent;
        assert!(!recent.iter().any(|one| matches!(one.end, TickEnd::Refused(_))), "{case}: {recent:?}");
    }
}

/// The old times no longer apply. No later tick of the new times is lost.
///
/// Guarantees: SCHEDULE-10.
#[tokio::test]
async fn new_times_apply_from_definition_change() {
    let hours =
        |hours: &[u32]| -> Vec<_> { hours.iter().map(|hour| text(day(0).plus(HOUR * *hour))).collect() };
    for (overlap, started, skipped) in [
        (Overlap::CancelOld, hours(&[12, 15, 16, 17, 18]), 0),
        (Overlap::Skip, hours(&[12, 18]), 3),
        (Overlap::Queue(1), hours(&[12, 15]), 2),
    ] {
        let case = format!("{overlap:?}");
        let world = world();
        let old = lively(&world).await;
        let work = slow(5 * HOUR);
        let daily = old.schedule("daily").cron("0 12 * * *").overlap(overlap);
        let daily = daily.start(&work, Context::new()).await.unwrap();
        world.pass_for(14 * HOUR + 30 * MINUTE).await;
        let new = lively(&world).await;
        let hourly = new.schedule("daily").version(2).cron("0 * * * *").overlap(overlap);
        world.pass(hourly.start(&work, Context::new())).await.unwrap();
        world.pass_for(4 * HOUR).await;
        let progress = daily.status().await.unwrap().progress;
        assert_eq!(ticks(&daily).await, started, "{case}: {progress:?}");
        assert_eq!((progress.skipped, progress.missed), (skipped, 0), "{case}: {progress:?}");
    }
}

/// A process changes the definition of a schedule that it drives, whether the schedule waits in memory, is idle, has an active run, or is paused.
#[tokio::test]
async fn process_replaces_own_definition() {
    for (first_cron, is_paused) in [("* * * * *", false), ("0 12 * * *", false), ("0 12 * * *", true)] {
        for work in [report(), slow(90 * MINUTE)] {
            let case = format!("{first_cron}, paused: {is_paused}, {}", work.name());
            let world = world();
            let process = lively(&world).await;
            let begin = async |version, cron: &str| {
                let daily = process.schedule("daily").version(version).cron(cron);
                world.pass(daily.start(&work, Context::new())).await
            };
            let daily = begin(1, first_cron).await.unwrap();
            world.pass_for(12 * HOUR + MINUTE / 2).await;
            if is_paused {
                daily.pause("not now").await.unwrap().await.unwrap();
                world.pass_for(MINUTE).await;
            }
            begin(2, "0 18 * * *").await.unwrap_or_else(|error| panic!("{case}: {error}"));
            if is_paused {
                daily.unpause().await.unwrap().await.unwrap();
            }
            let before = ticks(&daily).await.len();
            world.pass_for(5 * HOUR).await;
            assert_eq!(daily.status().await.unwrap().definition.version, 2, "{case}");
            assert_eq!(ticks(&daily).await.len(), before, "{case}: the old times must not count");
            world.pass_for(DAY).await;
            assert_eq!(ticks(&daily).await[before..], at(&[0], 18), "{case}");
            assert_healthy(&process).await;
            // The previous definition has a lower version.
            begin(1, first_cron).await.unwrap();
            assert_eq!(daily.status().await.unwrap().definition.version, 2, "{case}");
        }
    }
}

/// A schedule is cancelled and purged. Its process starts it again, with the same definition or another one of the same version.
#[tokio::test]
async fn process_starts_purged_schedule_again() {
    for cron in ["0 12 * * *", "0 18 * * *"] {
        let world = world();
        let process = lively(&world).await;
        let daily = world.pass(start(&process, 1, "0 12 * * *")).await.unwrap();
        world.pass_for(14 * HOUR).await;
        let run = daily.status().await.unwrap().run;
        process.cancel(&run, "not needed").await.unwrap();
        world.pass_for(MINUTE).await;
        process.purge(&run).await.unwrap();
        let daily = world.pass(start(&process, 1, cron)).await.unwrap();
        world.pass_for(DAY).await;
        let second = if cron == "0 12 * * *" { at(&[1], 12) } else { at(&[0], 18) };
        assert_eq!(ticks(&daily).await, [at(&[0], 12), second].concat(), "{cron}");
        // Another process claims the schedule with the current definition.
        process.crash().await;
        let other = lively(&world).await;
        let daily = world.pass(start(&other, 1, cron)).await.unwrap();
        world.pass_for(DAY).await;
        assert_eq!(ticks(&daily).await.len(), 3, "{cron}");
    }
}
