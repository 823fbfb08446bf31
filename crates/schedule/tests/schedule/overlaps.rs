//! Ticks during an active run, and ticks while no process was running.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Draft};
use ferrata_schedule::{CatchUp, Overlap, RuntimeScheduleExt, TickEnd};
use ferrata_testing::World;

use crate::support::{DAY, HOUR, MINUTE, calm, day, lively, mortal, report, runs, slow, text, ticks, world};

/// Half a day of an hourly schedule whose runs take `time`, with ticks from one o'clock on.
async fn half_a_day(world: &World, overlap: Overlap, time: Duration) -> ferrata_schedule::Schedule {
    let process = calm(world).await;
    let hourly = process.schedule("hourly").cron("0 * * * *").overlap(overlap);
    let hourly = hourly.start(&slow(time), Context::new()).await.unwrap();
    world.pass_for(12 * HOUR + 10 * MINUTE).await;
    hourly
}

fn hours(hours: &[u32]) -> Vec<(String, ferrata_core::Timestamp)> {
    hours.iter().map(|hour| (text(day(0).plus(HOUR * *hour)), day(0).plus(HOUR * *hour))).collect()
}

/// Guarantees: SCHEDULE-7.
#[tokio::test]
async fn skip_policy_skips_tick_during_run() {
    let world = world();
    let hourly = half_a_day(&world, Overlap::Skip, 150 * MINUTE).await;
    let found: Vec<_> = runs(&hourly).await.into_iter().map(|run| (run.0, run.1)).collect();
    assert_eq!(found, hours(&[1, 4, 7, 10]));
    let status = hourly.status().await.unwrap();
    assert_eq!((status.progress.started, status.progress.skipped, status.progress.missed), (4, 8, 0));
    assert_eq!(status.progress.recent[0].end, TickEnd::Completed);
    assert_eq!((&status.progress.recent[1].end, status.progress.recent[1].count), (&TickEnd::Skipped, 2));
}

/// Guarantees: SCHEDULE-7.
#[tokio::test]
async fn ticks_wait_in_a_line_of_so_many() {
    let world = world();
    let hourly = half_a_day(&world, Overlap::Queue(2), 150 * MINUTE).await;
    let found = runs(&hourly).await;
    // Tick 1 runs until 3:30, while 2 and 3 wait. Tick 2 runs until 6:00: 4 waits, 5 and 6 are skipped. Tick 3 runs until 8:30: 7 waits, 8 is
    // skipped.
    let wanted = ["01:00", "02:00", "03:00", "04:00", "07:00"];
    let found: Vec<_> = found.iter().map(|run| &run.0[11..16]).collect();
    assert_eq!(found, wanted);
}

/// Guarantees: SCHEDULE-7.
#[tokio::test]
async fn cancel_old_policy_cancels_previous_run() {
    let world = world();
    let hourly = half_a_day(&world, Overlap::CancelOld, 150 * MINUTE).await;
    let found = runs(&hourly).await;
    assert_eq!(found.len(), 12);
    let (last, old) = found.split_last().unwrap();
    assert!(old.iter().all(|run| run.2 == RunStatus::Cancelled), "{found:?}");
    assert_eq!(last.2, RunStatus::InProgress);
    // A run is cancelled before its successor starts, so two are never active together.
    assert!(
        found.iter().zip(1_u32..).all(|(run, n)| run.1.since(day(0).plus(HOUR * n)) < MINUTE),
        "{found:?}"
    );
}

/// Guarantees: SCHEDULE-7.
#[tokio::test]
async fn allow_policy_runs_ticks_concurrently() {
    let world = world();
    let hourly = half_a_day(&world, Overlap::Allow, 150 * MINUTE).await;
    let found: Vec<_> = runs(&hourly).await.into_iter().map(|run| (run.0, run.1)).collect();
    assert_eq!(found, hours(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]));
}

/// A failed run has ended, so the next tick starts its own run.
///
/// Guarantees: SCHEDULE-7.
#[tokio::test]
async fn a_run_that_fails_holds_up_no_tick() {
    let world = world();
    let process = calm(&world).await;
    let broken = ferrata_core::graph::Graph::<Context>::builder("broken")
        .node("fail", async |_cx, _s| Err::<Draft<Context>, _>("as always".into()))
        .entry("fail")
        .build()
        .unwrap();
    let hourly = process.schedule("hourly").cron("0 * * * *").start(&broken, Context::new()).await.unwrap();
    world.pass_for(4 * HOUR + MINUTE).await;
    assert!(runs(&hourly).await.iter().all(|run| run.2 == RunStatus::Failed));
    let recent = hourly.status().await.unwrap().progress.recent;
    assert_eq!(recent.iter().map(|one| &one.end).collect::<Vec<_>>(), [&TickEnd::Failed; 4]);
}

/// No process is up from the first noon to the fifth.
///
/// Guarantees: SCHEDULE-6.
#[tokio::test]
async fn missed_ticks_catch_up_by_policy() {
    for (catch_up, wanted, missed) in [
        (CatchUp::None, vec![0, 5], 4),
        (CatchUp::Last, vec![0, 4, 5], 3),
        (CatchUp::All(2), vec![0, 3, 4, 5], 2),
        (CatchUp::All(1_000), vec![0, 1, 2, 3, 4, 5], 0),
    ] {
        let world = world();
        let process = mortal(&world).await;
        let noon = |process: &ferrata_testing::Process| {
            process.schedule("noon").cron("0 12 * * *").catch_up(catch_up)
        };
        noon(&process).start(&report(), Context::new()).await.unwrap();
        world.pass_for(DAY).await;
        process.crash().await;
        world.pass_for(4 * DAY).await;
        let process = mortal(&world).await;
        let noon = world.pass(noon(&process).start(&report(), Context::new())).await.unwrap();
        world.pass_for(DAY).await;
        let wanted: Vec<_> = wanted.into_iter().map(|n| text(day(n).plus(12 * HOUR))).collect();
        assert_eq!(ticks(&noon).await, wanted, "{catch_up:?}");
        assert_eq!(noon.status().await.unwrap().progress.missed, missed, "{catch_up:?}");
    }
}

/// A process that was away for three years does not enumerate or count every second.
///
/// Guarantees: SCHEDULE-6, FLEET-5.
#[tokio::test]
async fn years_without_a_process_are_over_at_once() {
    let world = world();
    let process = calm(&world).await;
    let seconds =
        process.schedule("seconds").cron("* * * * * *").catch_up(CatchUp::All(3)).overlap(Overlap::Allow);
    let seconds = seconds.start(&report(), Context::new()).await.unwrap();
    world.pass_for(Duration::from_millis(500)).await;
    let three_years = day(3 * 365);
    world.clock().set_now(three_years);
    world.pass_for(Duration::from_millis(600)).await;
    let status = seconds.status().await.unwrap();
    // The sixty ticks of the last minute are on time, and three are caught up. Of the others, a thousand were enumerated.
    assert_eq!(status.progress.started, 63, "{status:?}");
    assert_eq!(status.progress.missed, 937);
    assert!(ticks(&seconds).await.contains(&text(three_years)));
}

/// The run of the first tick hangs. Each later tick shows as it comes, before the run ends, and the counts after the end are the same.
#[tokio::test]
async fn status_shows_ticks_as_they_are_skipped() {
    for (overlap, queued) in [(Overlap::Skip, 0), (Overlap::Queue(2), 2)] {
        let world = world();
        let process = lively(&world).await;
        let hourly = process.schedule("hourly").cron("0 * * * *").overlap(overlap);
        let hourly = hourly.start(&slow(12 * HOUR + 30 * MINUTE), Context::new()).await.unwrap();
        for hour in 0..13_u32 {
            let status = hourly.status().await.unwrap();
            let (progress, case) = (&status.progress, format!("{overlap:?} at {hour}: {status:?}"));
            let since = u64::from(hour.saturating_sub(1));
            assert_eq!(progress.started, u64::from(hour.min(1)), "{case}");
            assert_eq!(progress.due.len() as u64, since.min(queued), "{case}");
            assert_eq!(progress.skipped, since.saturating_sub(queued), "{case}");
            assert_eq!(status.active.is_some(), hour > 0, "{case}");
            if let Some(active) = &status.active {
                assert_eq!(
                    (active.tick, active.run.run.as_str()),
                    (day(0).plus(HOUR), &*id(&hourly)),
                    "{case}"
                );
                assert!(active.started_at.since(active.tick) < MINUTE, "{case}");
            }
            if progress.skipped > 0 {
                let last = progress.recent.back().unwrap();
                assert_eq!((&last.end, last.count), (&TickEnd::Skipped, progress.skipped), "{case}");
                assert_eq!(last.tick, day(0).plus(HOUR * hour), "{case}");
            }
            // An operator's process reads the same status.
            let operator =
                Runtime::builder(world.store().clone()).clock(Arc::new(world.clock().clone())).operator();
            let other = operator.schedule("hourly").find().await.unwrap().unwrap();
            assert_eq!(other.status().await.unwrap(), status);
            world.pass_for(HOUR + MINUTE * u32::from(hour == 0)).await;
        }
        let before = hourly.status().await.unwrap().progress;
        world.pass_for(35 * MINUTE).await;
        let after = hourly.status().await.unwrap().progress;
        assert_eq!((after.skipped, after.missed), (before.skipped, before.missed), "{overlap:?}");
        assert_eq!(
            after.recent.iter().map(|one| &one.end).collect::<Vec<_>>(),
            [&TickEnd::Completed, &TickEnd::Skipped]
        );
    }
}

/// The id of the run of the first tick.
fn id(schedule: &ferrata_schedule::Schedule) -> String {
    format!("{}.{}", schedule.name(), text(day(0).plus(HOUR)))
}
