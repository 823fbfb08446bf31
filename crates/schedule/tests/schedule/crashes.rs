//! A crash at any write, and lost replies: each tick still has exactly one run.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_schedule::{CatchUp, Overlap, RuntimeScheduleExt, Schedule, ScheduleProgress, TickEnd};
use ferrata_testing::{Fault, Process};

use crate::support::{DAY, HOUR, day, mortal, report, runs, slow, text, world};

async fn start(process: &Process, overlap: Overlap) -> ferrata_core::Result<Schedule> {
    let daily = process.schedule("daily").cron("0 12 * * *").catch_up(CatchUp::All(10)).overlap(overlap);
    match overlap {
        Overlap::Skip => daily.start(&slow(HOUR), Context::new()).await,
        _ => daily.start(&report(), Context::new()).await,
    }
}

/// Two ticks at noon, with a crash at each write of the first process. A second process starts later, with the same code.
async fn crash_at_each_write(overlap: Overlap, fault: Fault) {
    let mut crashes = 0;
    for n in 0.. {
        let world = world();
        let process = mortal(&world).await;
        process.fail_write(n, fault);
        let _ = world.pass(start(&process, overlap)).await;
        world.pass_for(DAY).await;
        let is_crashed = process.is_crashed();
        process.crash().await;
        let process = mortal(&world).await;
        let daily = world.pass(start(&process, overlap)).await.unwrap();
        world.pass_for(DAY).await;

        let said = format!("{fault:?} at write {n}, {overlap:?}");
        let found = runs(&daily).await;
        assert!(found.iter().all(|run| run.2 == RunStatus::Completed), "{said}: {found:?}");
        let status = daily.status().await.unwrap();
        // If the crash came before the schedule was recorded, the second process created the schedule.
        let noons = [0, 1].map(|n| text(day(n).plus(12 * HOUR)));
        let all = if n < 3 && found[0].0 == noons[1] { 1 } else { 2 };
        let ScheduleProgress { started, skipped, missed, .. } = status.progress;
        assert_eq!((started + skipped, missed), (all, 0), "{said}: {found:?}");
        // A run of the dead process stays active until another process claims it, and a tick in between is skipped.
        assert!(skipped == 0 || skipped == 1 && overlap == Overlap::Skip, "{said}: {found:?}");
        let ticks: Vec<_> = found.into_iter().map(|run| run.0).collect();
        assert_eq!(ticks.len() as u64, started, "{said}");
        let wanted: Vec<_> = noons.into_iter().filter(|tick| ticks.contains(tick)).collect();
        assert_eq!(ticks, wanted, "{said}");
        if !is_crashed {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 8, "{fault:?}: {crashes} writes");
}

/// Guarantees: SCHEDULE-1.
#[tokio::test]
async fn crash_at_any_write_starts_tick_once() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        crash_at_each_write(Overlap::Skip, fault).await;
    }
}

/// Guarantees: SCHEDULE-1.
#[tokio::test]
async fn crash_at_any_write_spawns_tick_once() {
    crash_at_each_write(Overlap::Allow, Fault::CrashAfter).await;
}

/// After the crash, a newer definition with another workflow arrives. If the tick's run was started, the schedule waits for it. Otherwise the newer
/// definition starts its own run.
///
/// Guarantees: SCHEDULE-1.
#[tokio::test]
async fn crash_before_new_definition_starts_tick_once() {
    let cases = [
        (Overlap::Skip, Fault::CrashBefore),
        (Overlap::Skip, Fault::CrashAfter),
        (Overlap::CancelOld, Fault::CrashBefore),
        (Overlap::Allow, Fault::CrashAfter),
    ];
    for (overlap, fault) in cases {
        let (mut of_both, mut n) = ([0, 0], 0);
        loop {
            let world = world();
            let process = mortal(&world).await;
            let work = slow(HOUR);
            let daily =
                |process: &Process| process.schedule("daily").cron("0 12 * * *").catch_up(CatchUp::All(10));
            daily(&process).overlap(overlap).start(&work, Context::new()).await.unwrap();
            world.pass_for(DAY).await;
            process.fail_write(n, fault);
            world.pass_for(DAY).await;
            let is_crashed = process.is_crashed();
            process.crash().await;
            let process = mortal(&world).await;
            process.serve(&work).unwrap();
            let other = report();
            let daily = daily(&process).version(2).start(&other, Context::new());
            let daily = world.pass(daily).await.unwrap();
            world.pass_for(2 * DAY).await;

            let said = format!("{fault:?} at write {n}, {overlap:?}");
            let runs = daily.runs().oldest_first().await.unwrap().items;
            assert!(runs.iter().all(|run| run.status == RunStatus::Completed), "{said}: {runs:?}");
            let progress = daily.status().await.unwrap().progress;
            let found = runs.len() as u64;
            assert_eq!((progress.started, progress.missed), (found, 0), "{said}: {progress:?}");
            let recent = &progress.recent;
            assert!(recent.iter().all(|one| !matches!(one.end, TickEnd::Refused(_))), "{said}: {recent:?}");
            assert_eq!(found + progress.skipped, 4, "{said}: {progress:?}");
            of_both[usize::from(runs[1].facts.workflow.as_str() == "slow")] += 1;
            if !is_crashed {
                break;
            }
            n += 1;
        }
        assert!(of_both.iter().all(|runs| *runs > 1), "{fault:?}, {overlap:?}: {of_both:?}");
    }
}

/// Guarantees: SCHEDULE-1.
#[tokio::test]
async fn failed_or_unanswered_write_is_repeated() {
    for fault in [Fault::Before, Fault::After] {
        for n in 0.. {
            let world = world();
            let process = mortal(&world).await;
            process.fail_write(n, fault);
            let Ok(daily) = world.pass(start(&process, Overlap::Skip)).await else { continue };
            world.pass_for(2 * DAY).await;
            let found = runs(&daily).await;
            assert_eq!(found.len(), 2, "{fault:?} at write {n}: {found:?}");
            let status = daily.status().await.unwrap();
            assert_eq!((status.progress.started, status.progress.missed), (2, 0), "{fault:?} at write {n}");
            if process.writes() < n {
                break;
            }
        }
    }
}

/// The runs of a removed schedule keep their ids. A new schedule with the same name does not start them again.
///
/// Guarantees: SCHEDULE-13.
#[tokio::test]
async fn purged_schedule_restarts_without_repeating_old_runs() {
    let world = world();
    let process = mortal(&world).await;
    let daily = start(&process, Overlap::Allow).await.unwrap();
    world.pass_for(2 * DAY).await;
    let run = daily.status().await.unwrap().run;
    process.cancel(&run, "not needed").await.unwrap();
    world.pass_for(HOUR).await;
    assert!(daily.status().await.unwrap().has_ended());
    process.purge(&run).await.unwrap();
    assert!(process.schedule("daily").find().await.unwrap().is_none());
    drop(process);

    let second = mortal(&world).await;
    world.clock().set_now(day(1));
    let daily = start(&second, Overlap::Allow).await.unwrap();
    world.pass_for(2 * DAY).await;
    let status = daily.status().await.unwrap();
    // After the clock was set back, the second noon comes again, and its run already exists.
    assert_eq!(runs(&daily).await.len(), 3);
    assert_eq!(status.progress.started, 1, "{status:?}");
    assert_eq!(format!("{:?}", status.progress.recent[0].end).split('(').next(), Some("Refused"));
}
