//! A year of ticks on a simulated clock.

use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::state::Context;
use ferrata_core::{Clock, ErrorKind, Timestamp};
use ferrata_schedule::{Overlap, RuntimeScheduleExt, Times};
use ferrata_testing::Process;

use crate::support::{DAY, HOUR, MINUTE, assert_healthy, calm, day, report, runs, slow, text, ticks, world};

/// The year contains both clock changes: one night has no 02:30, and another has two.
///
/// Guarantees: SCHEDULE-1.
#[tokio::test]
async fn every_night_of_a_year_has_one_run() {
    let world = world();
    let process = calm(&world).await;
    let nightly = process.schedule("nightly").cron("30 2 * * *").timezone("Europe/Zurich");
    let nightly = nightly.start(&report(), Context::new()).await.unwrap();
    for _ in 0..73 {
        world.pass_for(5 * DAY).await;
    }
    let found = runs(&nightly).await;
    assert_eq!(found.len(), 365);
    for (number, (tick, created, status)) in found.iter().enumerate() {
        // 01:30 UTC in winter, 00:30 in summer, and 01:00 in the night of the gap, which skips 02:30.
        let (hour, minute) = match number {
            87 => (1, 0),
            88..=297 => (0, 30),
            _ => (1, 30),
        };
        let wanted = day(number as i64).plus(hour * HOUR + minute * MINUTE);
        assert_eq!(
            (tick, *created, *status),
            (&text(wanted), wanted, RunStatus::Completed),
            "night {number}"
        );
    }
    assert_healthy(&process).await;
}

/// A schedule of minutes runs for months, because it continues in a new run before the history in its bases reaches a limit.
///
/// Guarantees: SCHEDULE-12.
#[tokio::test]
async fn schedule_continues_in_new_log_without_gap() {
    let world = world();
    let process = calm(&world).await;
    let often = process.schedule("often").cron("* * * * *").start(&report(), Context::new()).await.unwrap();
    let first = often.status().await.unwrap().run;
    world.pass_for(260 * MINUTE + Duration::from_secs(30)).await;
    let wanted: Vec<_> = Times::new("* * * * *", "UTC").unwrap().iter(day(0)).take(260).map(text).collect();
    assert_eq!(ticks(&often).await, wanted);
    let status = often.status().await.unwrap();
    assert_ne!(status.run, first);
    assert_eq!((status.progress.started, status.progress.missed), (260, 0));
    let logs = process.runs().workflow("schedule:often").await.unwrap().items;
    assert_eq!(logs.iter().filter(|head| !head.status.is_finished()).count(), 1);
    assert_eq!(logs.len(), 2);
    assert!(logs.iter().all(|head| head.seq.get() < 8_000), "{logs:?}");
    assert_healthy(&process).await;
}

/// Each run ends when the next tick is due, so a tick waits whenever a run has ended.
///
/// Guarantees: SCHEDULE-12.
#[tokio::test]
async fn busy_schedule_continues_in_new_log() {
    let world = world();
    let process = calm(&world).await;
    let often = process.schedule("often").cron("* * * * *").overlap(Overlap::Queue(2));
    let often = often.start(&slow(Duration::from_secs(90)), Context::new()).await.unwrap();
    let first = often.status().await.unwrap().run;
    world.pass_for(390 * MINUTE).await;
    let status = often.status().await.unwrap();
    assert_ne!(status.run, first, "{status:?}");
    let found = ticks(&often).await;
    let mut unique = found.clone();
    unique.dedup();
    assert_eq!(found, unique);
    // Each run starts as soon as the one before has ended, also when the schedule continues in a new log.
    assert_eq!(found.len(), 260, "{status:?}");
    assert_eq!(status.progress.started, 260, "{status:?}");
    assert!(status.active.is_some(), "{status:?}");
    assert_eq!(status.progress.missed, 0, "{status:?}");
    let logs = process.runs().workflow("schedule:often").await.unwrap().items;
    assert_eq!(logs.iter().filter(|head| !head.status.is_finished()).count(), 1, "{logs:?}");
    assert_healthy(&process).await;
}

/// The log of a stopped schedule remains and keeps its id, so a new schedule gets another id.
///
/// Guarantees: SCHEDULE-13.
#[tokio::test]
async fn purged_continued_schedule_restarts_with_new_id() {
    let world = world();
    let process = calm(&world).await;
    let start = async |process: &Process| {
        process.schedule("often").cron("* * * * *").start(&report(), Context::new()).await
    };
    let often = start(&process).await.unwrap();
    let first = often.status().await.unwrap().run;
    world.pass_for(255 * MINUTE + Duration::from_secs(30)).await;
    let second = often.status().await.unwrap().run;
    assert_ne!(first, second);
    world.pass(process.cancel(&second, "not needed")).await.unwrap();
    world.pass_for(MINUTE).await;
    drop(process);

    // The schedule is stopped, and stays stopped.
    let process = calm(&world).await;
    let often = start(&process).await.unwrap();
    world.pass_for(MINUTE).await;
    let status = often.status().await.unwrap();
    assert!(status.run == second && status.has_ended(), "{status:?}");
    process.purge(&second).await.unwrap();
    assert!(process.schedule("often").find().await.unwrap().is_none());
    assert_eq!(often.status().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(ticks(&often).await.len(), 255);

    let others = [calm(&world).await, calm(&world).await];
    let both = async { tokio::join!(start(&others[0]), start(&others[1])) };
    let (one, two) = world.pass(Box::pin(both)).await;
    let (one, two) = (one.unwrap(), two.unwrap());
    world.pass_for(255 * MINUTE).await;
    assert_eq!(ticks(&one).await.len(), 255 + 255);
    let status = one.status().await.unwrap();
    assert_eq!((status.progress.started, status.progress.missed), (255, 0), "{status:?}");
    assert_eq!(two.status().await.unwrap(), status);
    assert!(![first, second].contains(&status.run), "{status:?}");
    let logs = process.runs().workflow("schedule:often").await.unwrap().items;
    assert_eq!(logs.iter().filter(|head| !head.status.is_finished()).count(), 1, "{logs:?}");
    assert_healthy(&process).await;
}

/// Guarantees: SCHEDULE-5.
#[tokio::test]
async fn start_jitter_is_same_in_every_process() {
    let mut starts = Vec::new();
    for _ in 0..2 {
        let world = world();
        let process = calm(&world).await;
        let spread = process.schedule("spread").cron("0 * * * *").jitter(20 * MINUTE);
        let spread = spread.start(&report(), Context::new()).await.unwrap();
        world.pass_for(4 * DAY).await;
        starts.push(runs(&spread).await);
    }
    assert_eq!(starts[0], starts[1]);
    let late: Vec<_> =
        starts[0].iter().zip(1_u32..).map(|(start, n)| start.1.since(day(0).plus(HOUR * n))).collect();
    assert_eq!(late.len(), 95, "{late:?}");
    assert!(late.iter().all(|late| *late < 20 * MINUTE), "{late:?}");
    for third in 0..3 {
        let between = |late: &&Duration| (third * 400..(third + 1) * 400).contains(&(late.as_secs()));
        assert!(late.iter().filter(between).count() > 15, "the starts are not spread: {late:?}");
    }
}

/// A clock that was set back repeats times whose runs exist. A clock that was set forward skips times.
///
/// Guarantees: SCHEDULE-2.
#[tokio::test]
async fn a_clock_that_steps_starts_no_tick_twice() {
    let world = world();
    let process = calm(&world).await;
    let hourly = process.schedule("hourly").cron("0 * * * *").start(&report(), Context::new()).await.unwrap();
    world.pass_for(5 * HOUR + MINUTE).await;
    assert_eq!(ticks(&hourly).await.len(), 5);
    // Three hours back: nothing starts until 06:00 comes again.
    world.clock().set_now(day(0).plus(2 * HOUR));
    world.pass_for(3 * HOUR + 30 * MINUTE).await;
    assert_eq!(ticks(&hourly).await.len(), 5);
    world.pass_for(HOUR).await;
    assert_eq!(ticks(&hourly).await.len(), 6);
    // A day forward: the policy catches up on the last skipped tick.
    let forward = Timestamp::from_unix_ms(world.clock().now().unix_ms()).plus(DAY);
    world.clock().set_now(forward);
    world.pass_for(HOUR).await;
    let status = hourly.status().await.unwrap();
    let all = ticks(&hourly).await;
    let mut unique = all.clone();
    unique.dedup();
    assert_eq!(all, unique);
    assert_eq!(all.len() as u64, status.progress.started);
    assert_eq!(status.progress.started + status.progress.missed, 31, "{status:?}");
}
