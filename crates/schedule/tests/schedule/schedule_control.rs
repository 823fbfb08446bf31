//! Operations of an operator on a schedule.

use ferrata_core::ErrorKind;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_schedule::{CatchUp, Overlap, RuntimeScheduleExt, Schedule};

use crate::support::{DAY, HOUR, MINUTE, calm, day, mortal, report, runs, slow, text, ticks, world};

/// Guarantees: SCHEDULE-11.
#[tokio::test]
async fn paused_schedule_catches_up_by_policy() {
    for (catch_up, after) in [(CatchUp::None, 2), (CatchUp::Last, 3)] {
        let world = world();
        let process = mortal(&world).await;
        let daily = process.schedule("daily").cron("0 12 * * *").catch_up(catch_up);
        let daily = daily.start(&report(), Context::new()).await.unwrap();
        world.pass_for(DAY).await;

        // Another process finds the schedule by its name.
        let operator = Runtime::builder(world.store().clone()).operator();
        let found = operator.schedule("daily").find().await.unwrap().unwrap();
        world.pass(found.pause("stocktaking").await.unwrap().by("eve")).await.unwrap();
        assert!(found.status().await.unwrap().is_paused);
        let again = found.pause("again").await.unwrap().await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::WrongStatus);
        world.pass_for(3 * DAY).await;
        assert_eq!(ticks(&daily).await.len(), 1);
        world.pass(found.unpause().await.unwrap()).await.unwrap();
        world.pass_for(8 * HOUR).await;
        let status = found.status().await.unwrap();
        assert!(!status.is_paused);
        assert_eq!(ticks(&daily).await.len() + 1, after, "{catch_up:?}: {status:?}");
        let next = status.next(day(4).plus(8 * HOUR), 2).unwrap();
        assert_eq!(next, [day(4).plus(12 * HOUR), day(5).plus(12 * HOUR)]);
        world.pass_for(8 * HOUR).await;
        assert_eq!(ticks(&daily).await.last(), Some(&text(day(4).plus(12 * HOUR))));
    }
}

/// With `CancelOld`, the run of a tick belongs to the schedule. With other policies, it belongs to nothing.
///
/// Guarantees: SCHEDULE-11.
#[tokio::test]
async fn cancel_old_schedule_pauses_and_cancels_its_run() {
    use RunStatus::{Cancelled, InProgress, Interrupted};
    for overlap in [Overlap::CancelOld, Overlap::Skip, Overlap::Queue(1), Overlap::Allow] {
        let world = world();
        let process = calm(&world).await;
        let hourly = process.schedule("hourly").cron("0 * * * *").overlap(overlap);
        let hourly = hourly.start(&slow(150 * MINUTE), Context::new()).await.unwrap();
        world.pass_for(70 * MINUTE).await;
        let belongs = overlap == Overlap::CancelOld;
        let of_tick = async || runs(&hourly).await[0].2;
        world.pass(hourly.pause("stocktaking").await.unwrap()).await.unwrap();
        world.pass_for(MINUTE).await;
        assert_eq!(of_tick().await, if belongs { Interrupted } else { InProgress }, "{overlap:?}");
        world.pass(hourly.unpause().await.unwrap()).await.unwrap();
        world.pass_for(MINUTE).await;
        assert_eq!(of_tick().await, InProgress, "{overlap:?}");
        let run = hourly.status().await.unwrap().run;
        world.pass(process.cancel(&run, "moved to another service")).await.unwrap();
        world.pass_for(MINUTE).await;
        assert_eq!(of_tick().await, if belongs { Cancelled } else { InProgress }, "{overlap:?}");
        assert!(hourly.status().await.unwrap().has_ended());
    }
}

/// Guarantees: SCHEDULE-15.
#[tokio::test]
async fn schedules_are_listed_by_name_and_tenant() {
    let world = world();
    let process = mortal(&world).await;
    for (name, tenant) in [("b", "default"), ("a", "default"), ("a", "acme")] {
        let one = process.schedule(name).tenant(tenant).cron("0 12 * * *");
        one.start(&report(), Context::new()).await.unwrap();
    }
    // Any run may have this label, and this run is no schedule.
    let fake =
        process.start(&report(), Context::new()).label("schedule", "c").label("schedule.role", "clock");
    fake.await.unwrap();
    world.pass_for(DAY).await;
    let names = |listed: Vec<Schedule>| {
        listed.iter().map(|one| format!("{}/{}", one.tenant(), one.name())).collect::<Vec<_>>()
    };
    assert_eq!(names(Schedule::list(&process, None).await.unwrap()), ["acme/a", "default/a", "default/b"]);
    let acme = "acme".parse().unwrap();
    assert_eq!(names(Schedule::list(&process, Some(&acme)).await.unwrap()), ["acme/a"]);
    // Each has its own runs, with equal ids.
    for one in Schedule::list(&process, None).await.unwrap() {
        assert_eq!(ticks(&one).await.len(), 1);
    }
    assert!(process.schedule("c").find().await.unwrap().is_none());
    assert!(process.schedule("b").tenant("acme").find().await.unwrap().is_none());
}
