//! Detects that a test waits for a run that only the test can move.

use std::fmt::Write as _;
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Runtime, is_skipped_in_bulk};
use ferrata_core::store::{CheckpointStore as _, Page, RunHead, RunQuery};
use ferrata_core::{Clock as _, ExecutorId};

use super::world::World;

/// How long the world must be idle before it checks whether its runs are stuck: this time of its clock, or [`STEPS`] steps and at least a minute.
/// It is longer than the retry delay of callers. A caller that waits for a run without a driver polls five times a second, so many steps may be
/// short.
const PATIENCE: Duration = Duration::from_secs(4 * 3_600);
const STEPS: u32 = 300;
const MINUTE: Duration = Duration::from_secs(60);

/// Maximum number of runs that a panic names.
const NAMED: usize = 3;

/// When an event last could move a run of a world.
pub(super) struct Standstill {
    since: Duration,
    steps: u32,
}

impl Standstill {
    pub(super) fn new(now: Duration) -> Self {
        Self { since: now, steps: 0 }
    }

    /// Called when no task can run. Returns the runs that only the test can move, if the world was idle for long enough.
    pub(super) async fn check(&mut self, world: &World) -> Option<String> {
        let now = world.clock().monotonic();
        if world.has_waiting_test() {
            *self = Self::new(now);
        }
        self.steps += 1;
        let passed = now.saturating_sub(self.since);
        if passed < PATIENCE && (self.steps < STEPS || passed < MINUTE) {
            return None;
        }
        *self = Self::new(now);
        stuck_runs(world).await
    }
}

/// Returns why no process and no timer moves any open run of the world. Returns `None` if one can move, or if no run is open.
async fn stuck_runs(world: &World) -> Option<String> {
    let runtimes = world.runtimes();
    let is_of_world = |executor: &ExecutorId| runtimes.iter().any(|runtime| runtime.executor() == *executor);
    if !world.store().executors().iter().all(is_of_world) {
        // The process may serve any workflow.
        return None;
    }
    let mut query = RunQuery::default();
    query.statuses = vec![RunStatus::InProgress, RunStatus::Interrupted, RunStatus::AwaitingInput];
    let (mut stuck, mut page) = (Vec::new(), Page::first(Page::MAX));
    loop {
        let listed = world.store().runs(&query, page.clone()).await.ok()?;
        // Skip queues and schedules: they are not runs of a test.
        for head in listed.items.into_iter().filter(|head| !is_skipped_in_bulk(head)) {
            stuck.push((remedy(&runtimes, &head)?, head));
        }
        match listed.next {
            Some(next) => page = page.with_cursor(next),
            None => break,
        }
    }
    let mut told = "the runs of the world wait for the test".to_owned();
    for (remedy, head) in stuck.iter().take(NAMED) {
        // Writing to a string never fails.
        let _ = write!(told, "; run `{}` is {}: {remedy}", head.run, head.status);
    }
    match stuck.len() {
        0 => None,
        all if all > NAMED => Some(format!("{told}; and {} more", all - NAMED)),
        _ => Some(told),
    }
}

/// Returns what a test must do for a run to continue, or `None` if a process or a timer moves it.
fn remedy(runtimes: &[Runtime], head: &RunHead) -> Option<String> {
    if head.owner_alive {
        return None;
    }
    let workflow = &head.facts.workflow;
    let served = runtimes.iter().find(|runtime| runtime.serves(workflow));
    let Some(process) = served else {
        let waits = match head.status {
            RunStatus::InProgress => "",
            RunStatus::AwaitingInput => "send it a message; ",
            _ => "answer its question; ",
        };
        return Some(format!(
            "{waits}no process serves `{workflow}`: call `process.serve(&graph)`, as the service does, or resume the run"
        ));
    };
    // An extension, such as queues, may move the runs that wait for it.
    if head.wake_at.is_some() || process.has_extensions() {
        return None;
    }
    match head.status {
        RunStatus::InProgress => {
            let why = process.claim_failure(&head.run).filter(|why| !why.is_retryable())?;
            Some(format!("it cannot be claimed: {why}"))
        }
        RunStatus::AwaitingInput => Some("it waits for a message: send one".to_owned()),
        _ => Some("answer its question, or unpause it".to_owned()),
    }
}
