//! Helpers of the schedule tests: a workflow, times, and the runs of ticks.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use ferrata_core::Timestamp;
use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_schedule::Schedule;
use ferrata_testing::{Process, World};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// Returns a moment of 2026 in UTC, in minutes since the year began.
pub(crate) fn minute_of_2026(minute: i64) -> Timestamp {
    Timestamp::from_unix_ms(1_767_225_600_000 + minute * 60_000)
}

/// The start of a day in UTC. January 1, 2026 is day 0.
pub(crate) fn day(day: i64) -> Timestamp {
    minute_of_2026(day * 24 * 60)
}

/// A world that starts at the beginning of 2026.
pub(crate) fn world() -> World {
    let world = World::new();
    world.clock().set_now(day(0));
    world
}

/// Starts a process that polls rarely, so that a year takes few steps of the clock.
pub(crate) async fn calm(world: &World) -> Process {
    let calm = 20 * DAY;
    let process = world.process_with(|b| b.heartbeat_ttl(3 * calm).sweep_interval(calm).poll_interval(calm));
    process.await.unwrap()
}

/// Starts a process whose runs are claimed within 18 hours after its death.
pub(crate) async fn mortal(world: &World) -> Process {
    let process =
        world.process_with(|b| b.heartbeat_ttl(12 * HOUR).sweep_interval(6 * HOUR).poll_interval(6 * HOUR));
    process.await.unwrap()
}

/// Starts a process that polls other processes' changes within minutes.
pub(crate) async fn lively(world: &World) -> Process {
    let process =
        world.process_with(|b| b.heartbeat_ttl(HOUR).sweep_interval(10 * MINUTE).poll_interval(MINUTE));
    process.await.unwrap()
}

/// A workflow that takes no time.
pub(crate) fn report() -> Graph<Context> {
    Graph::<Context>::builder("report").node("write", async |_cx, s| Ok(s)).entry("write").build().unwrap()
}

/// A workflow that takes `time`.
pub(crate) fn slow(time: Duration) -> Graph<Context> {
    let work = move |cx: ferrata_core::node::NodeContext, s: ferrata_core::state::Draft<Context>| async move {
        cx.sleep(time).await?;
        Ok::<_, ferrata_core::node::NodeError>(s)
    };
    Graph::<Context>::builder("slow").node("work", work).entry("work").build().unwrap()
}

/// Returns the tick, start time and status of each run, oldest first.
pub(crate) async fn runs(schedule: &Schedule) -> Vec<(String, Timestamp, RunStatus)> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = schedule.runs().oldest_first().limit(1_000).after(after).await.unwrap();
        found.extend(page.items.into_iter().map(|head| {
            let tick = head.facts.labels.get("schedule.tick").unwrap().to_owned();
            assert_eq!(head.run.run.as_str(), format!("{}.{tick}", schedule.name()));
            (tick, head.facts.created, head.status)
        }));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

/// Returns the ticks of the runs that were started.
pub(crate) async fn ticks(schedule: &Schedule) -> Vec<String> {
    runs(schedule).await.into_iter().map(|(tick, _, _)| tick).collect()
}

/// The text of a tick.
pub(crate) fn text(tick: Timestamp) -> String {
    tick.to_string().replace(".000Z", "Z")
}

/// Checks that no schedule has failed.
pub(crate) async fn assert_healthy(runtime: &Runtime) {
    let failed = runtime.runs().status(RunStatus::Failed).await.unwrap();
    assert_eq!(failed.items, []);
}
