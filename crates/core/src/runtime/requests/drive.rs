//! Creates the driver of a run that was started or claimed, and spawns its task.

use crate::claim::ClaimId;
use crate::runtime::driver::DriverInput;
use crate::runtime::writes::release::release_failed_run;
use std::sync::Arc;

use crate::compact::once_channel::once;
use crate::compact::queue::queue;
use crate::graph::{CheckpointPolicy, Graph};
use crate::kernel::inner::RuntimeInner;
use crate::kernel::tasks::{caught, spawn};
use crate::node::{RunScope, RuntimeAccess};
use crate::record::RunStatus;
use crate::record::parent_link::{ChildRef, TRACE, parent_link, place};
use crate::runtime::child_control::orphan::check_parent_after_start;
use crate::runtime::child_ends::notify_parent::{check_children_of_idle, notify_parent};
use crate::runtime::driver::{DriverExit, RunDriver};
use crate::runtime::handle::{DriverEnd, OutcomeSource, RunHandle};
use crate::runtime::outcome::Outcome;
use crate::runtime::writes::registration::DriverRegistration;
use crate::state::State;
use crate::telemetry::spans;

/// Drives a run in a task of its own.
pub(crate) fn drive<S: State>(
    shared: Arc<RuntimeInner>,
    graph: Graph<S>,
    policy: CheckpointPolicy,
    mut registration: DriverRegistration,
    parts: DriverInput<S>,
) -> RunHandle<S> {
    let run = parts.log.run.clone();
    let (cancel, cancelled) = once();
    let (commands, receiver) = queue();
    let runtime = Arc::downgrade(&shared);
    let (depth, root) = place(&run, &parts.facts);
    let parent_link = parent_link(&run, &parts.facts);
    let scope = Arc::new(RunScope {
        key: run.clone(),
        facts: Arc::clone(&parts.facts),
        config: parts.machine.config().cloned(),
        claim: ClaimId { start_id: parts.machine.start_id(), epoch: parts.log.epoch },
        resources: Arc::clone(&shared.services.resources),
        clock: Arc::clone(&shared.clock),
        commands,
        cancelled,
        host: RuntimeAccess {
            runtime,
            depth,
            root,
            children: Arc::new(parts.machine.children_started().into()),
        },
    });
    let (ended, outcome) = once();
    let channels = (scope, receiver, cancel);
    let meter = shared.telemetry().of(Some(graph.name()));
    let (active, stopped) = (meter.drive(), meter.clone());
    registration.meter = meter.clone();
    let (facts, started) = (Arc::clone(&parts.facts), Arc::clone(&parts.facts));
    let mut driver =
        RunDriver::new(Arc::clone(&shared), graph.clone(), policy, registration, channels, parts);
    let span = spans::run(&run, graph.name(), shared.trace(), facts.labels.get(TRACE));
    let (weak, run_then) = (Arc::downgrade(&shared), run.clone());
    let claim = driver.claim();
    let driving = async move {
        let result = driver.run().await;
        let outcome = result.map(|stopped| match stopped {
            DriverExit::Settled => Outcome::of(driver.machine(), driver.state()),
            DriverExit::Released => Outcome::Released,
        });
        if outcome.is_ok() {
            let lasted = || driver.shared().clock.now().since(facts.created);
            spans::record_status(driver.machine().status());
            meter.settled(driver.machine().status(), || Some(lasted()));
        }
        let (begun, head) = (driver.has_begun(), driver.durable_head());
        let is_over = matches!(driver.machine().status(), RunStatus::Completed | RunStatus::Cancelled);
        if outcome.is_ok() && begun && !is_over {
            driver.shared().idle_runs.remember(driver.run_key().clone(), driver.machine().start_id(), facts);
        }
        let has_ended = outcome.is_ok() && driver.machine().status().is_finished();
        let run = driver.run_key().clone();
        let told = parent_link.filter(|_| begun && has_ended).map(|link| {
            let is_awaited = driver.shared().registry.end_waiters.is_awaited(&ChildRef::of(&run, &link));
            // If the end cannot be encoded, the parent reads it from the log. It does so, too, if no waiter is in this process.
            let end = if is_awaited { driver.end_for_parent().ok().flatten() } else { None };
            (driver.shared_handle(), link, end)
        });
        let (awaited, doubted) = match &outcome {
            Ok(_) => (driver.awaited_at_rest(), Vec::new()),
            Err(_) => (Vec::new(), driver.unconfirmed_children()),
        };
        let family = (!(awaited.is_empty() && doubted.is_empty())).then(|| driver.shared_handle());
        // Drop the driver first: a waiter must be able to start or resume the run again.
        drop(driver);
        if let Some(shared) = family {
            check_children_of_idle(&shared, &run, awaited);
            doubted.into_iter().for_each(|(child, link)| check_parent_after_start(&shared, &child, link));
        }
        if let Some((shared, link, end)) = told {
            notify_parent(&shared, &run, link, end);
        }
        DriverEnd { outcome, head, has_begun: begun }
    };
    // The span ends with the drive: a notified caller may close the exporter next. Boxed before the spawn, because a task would reserve its size
    // twice.
    let driving = Box::pin(tracing::Instrument::instrument(driving, span));
    let task = async move {
        // The panicked driver may have recorded the start: check its log.
        let end = caught(&run_then, driving).await.unwrap_or_else(|panicked| DriverEnd {
            outcome: Err(panicked),
            head: None,
            has_begun: true,
        });
        if let Err(error) = &end.outcome {
            stopped.stopped(error.kind());
        }
        active.end();
        if let (true, Err(error)) = (end.has_begun, &end.outcome) {
            release_failed_run(&weak, &run_then, claim, error);
        }
        ended.send(Box::new(end));
    };
    spawn(task);
    RunHandle::new(shared, graph, run, OutcomeSource::Here(outcome))
        .of_start_id(claim.start_id)
        .of_start(&started)
}
