//! Starts a run, or resumes an existing one, so that this process drives it.

use std::time::Duration;

use ferrata::ask::QuestionKind;
use ferrata::{Answer, Clock, Context as State, ErrorKind, Graph, RunHandle, RunStatus, Runtime};

use super::job::{DriveJob, StartKind};
use super::{BACKEND, DIRECTORY, FILE, restore};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

/// Time after its last heartbeat for which a process counts as alive. The time is short, because after a `kill -9` people wait for it, if the store
/// has no faster way to know. If a process is wrongly considered dead, it loses the run, but no records are lost.
pub(super) const TTL: Duration = Duration::from_secs(6);

/// Interval of the checks whether the previous process is dead.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum length of the value of a label.
const LABEL: usize = 256;

/// Starts or resumes the run; `None` if the run has already completed.
pub(super) async fn start_or_resume(
    context: &CommandContext,
    job: &DriveJob,
    runtime: &Runtime,
    graph: &Graph<State>,
    done_by: Option<&str>,
    directory: &std::path::Path,
) -> Result<Option<RunHandle<State>>, CommandFailure> {
    let (input, labels) = match &job.kind {
        StartKind::Resume => return resume_head(context, job, runtime, graph).await,
        StartKind::Restore(restored) => {
            job.touch();
            return restore::begin(context, job, restored, runtime, graph).await.map(Some);
        }
        StartKind::Start { input, labels } => (input, labels),
    };
    let mut start =
        runtime.start(graph, input.clone()).id(job.run.run.as_str()).tenant(job.run.tenant.as_str());
    let absolute = std::path::absolute(&job.loaded.path).unwrap_or_else(|_| job.loaded.path.clone());
    for (key, value) in [(FILE, absolute.display().to_string()), (DIRECTORY, directory.display().to_string())]
    {
        if (1..=LABEL).contains(&value.len()) && !value.contains(char::is_control) {
            start = start.label(key, value);
        }
    }
    if let Some(done_by) = done_by {
        start = start.label(BACKEND, done_by);
    }
    for (key, value) in labels {
        start = start.label(key, value);
    }
    job.touch();
    match start.await {
        Ok(run) => Ok(Some(run)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(CommandFailure::from(error).or_type(job.place.resume(&job.run)))
        }
        Err(error) if error.kind() == ErrorKind::GraphChanged => Err(changed_failure(error, job)),
        Err(error) => Err(error.into()),
    }
}

async fn resume_head(
    context: &CommandContext,
    job: &DriveJob,
    runtime: &Runtime,
    graph: &Graph<State>,
) -> Result<Option<RunHandle<State>>, CommandFailure> {
    let head = wait_until_free(context, job, runtime).await?;
    match head.status {
        RunStatus::Completed => return Ok(None),
        RunStatus::Failed => {
            let failure =
                CommandFailure::new(ExitReason::Conflict, "the run has failed; retry it, then resume it", "");
            return Err(failure.or_type(job.place.command("retry", &job.run, "")));
        }
        RunStatus::Cancelled => {
            let failure = CommandFailure::new(
                ExitReason::Conflict,
                "the run was cancelled and cannot continue; fork it",
                "",
            );
            return Err(failure.or_type(job.place.command("fork", &job.run, "")));
        }
        _ => {}
    }
    job.touch();
    // A person who resumes a run that `--until` stopped agrees that it continues.
    for question in runtime.questions(&job.run).await? {
        if question.kind == QuestionKind::After {
            runtime.respond(&job.run, &question.id, Answer::accept(true)?).by("ferrata resume").await?;
        }
    }
    resume(job, runtime, graph).await.map(Some)
}

/// Resumes the run with the options of the command line.
pub(super) async fn resume(
    job: &DriveJob,
    runtime: &Runtime,
    graph: &Graph<State>,
) -> Result<RunHandle<State>, CommandFailure> {
    let mut request = runtime.resume(graph, &job.run);
    if job.how.take_over {
        request = request.take_over();
    }
    if job.how.allow_changed {
        request = request.allow_changed_graph();
    }
    match request.await {
        Ok(run) => Ok(run),
        Err(error) if error.kind() == ErrorKind::GraphChanged => Err(changed_failure(error, job)),
        Err(error) if error.kind() == ErrorKind::Conflict => Err(held_failure(job)),
        Err(error) => Err(error.into()),
    }
}

fn changed_failure(error: ferrata::Error, job: &DriveJob) -> CommandFailure {
    let next = format!("{} --allow-changed", job.place.resume(&job.run));
    CommandFailure::from(error).or_type(next)
}

/// Creates the failure for a run that another process drives.
pub(super) fn held_failure(job: &DriveJob) -> CommandFailure {
    let message =
        format!("another process drives run {}; wait for it, or claim the run with --take-over", job.run.run);
    CommandFailure::new(ExitReason::Conflict, message, job.place.command("wait", &job.run, ""))
}

/// Waits until the previous process counts as dead. After a `kill -9`, this takes some seconds.
async fn wait_until_free(
    context: &CommandContext,
    job: &DriveJob,
    runtime: &Runtime,
) -> Result<ferrata::store::RunHead, CommandFailure> {
    let deadline = context.clock.monotonic().saturating_add(TTL + Duration::from_secs(1));
    let mut told = false;
    loop {
        let gone = || super::missing(&job.run, &job.place);
        let head = runtime.head(&job.run).await?.ok_or_else(gone)?;
        if !head.owner_alive || job.how.take_over {
            return Ok(head);
        }
        if context.clock.monotonic() >= deadline {
            return Err(held_failure(job));
        }
        if !told {
            context.out.note("another process owns the run; checking whether it is alive");
            told = true;
        }
        context.clock.sleep(LOOK).await;
    }
}
