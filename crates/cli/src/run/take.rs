//! Claims a run: starts it, or resumes it.

use std::time::Duration;

use ferrata::ask::QuestionKind;
use ferrata::{Answer, Clock, Context as State, ErrorKind, Graph, RunHandle, RunStatus, Runtime};

use super::drive::{Job, Kind};
use super::{BACKEND, DIRECTORY, FILE, restore};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// How long a process counts as alive after its last sign of life. Short, since people wait for it after a `kill -9` if the store cannot know better.
/// A process considered dead loses the run, but no records.
pub(super) const TTL: Duration = Duration::from_secs(6);

/// Interval of the check whether the previous process is gone.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum length of a label's value.
const LABEL: usize = 256;

/// Starts or resumes the run. `None` if it has already completed.
pub(super) async fn take(
    context: &Context,
    job: &Job,
    runtime: &Runtime,
    graph: &Graph<State>,
    done_by: Option<&str>,
    directory: &std::path::Path,
) -> Result<Option<RunHandle<State>>, Failure> {
    let (input, labels) = match &job.kind {
        Kind::Resume => return go_on(context, job, runtime, graph).await,
        Kind::Restore(restored) => {
            job.touch();
            return restore::begin(context, job, restored, runtime, graph).await.map(Some);
        }
        Kind::Start { input, labels } => (input, labels),
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
            Err(Failure::from(error).or_type(job.place.resume(&job.run)))
        }
        Err(error) if error.kind() == ErrorKind::GraphChanged => Err(changed(error, job)),
        Err(error) => Err(error.into()),
    }
}

async fn go_on(
    context: &Context,
    job: &Job,
    runtime: &Runtime,
    graph: &Graph<State>,
) -> Result<Option<RunHandle<State>>, Failure> {
    let head = free(context, job, runtime).await?;
    match head.status {
        RunStatus::Completed => return Ok(None),
        RunStatus::Failed => {
            let failure = Failure::new(Exit::Conflict, "the run has failed; retry it, then resume it", "");
            return Err(failure.or_type(job.place.command("retry", &job.run, "")));
        }
        RunStatus::Cancelled => {
            let failure =
                Failure::new(Exit::Conflict, "the run was cancelled and cannot continue; fork it", "");
            return Err(failure.or_type(job.place.command("fork", &job.run, "")));
        }
        _ => {}
    }
    job.touch();
    // A person who resumes a run stopped by `--until` agrees to continue.
    for question in runtime.questions(&job.run).await? {
        if question.kind == QuestionKind::After {
            runtime.respond(&job.run, &question.id, Answer::accept(true)?).by("ferrata resume").await?;
        }
    }
    resume(job, runtime, graph).await.map(Some)
}

/// Resumes the run with the options.
pub(super) async fn resume(
    job: &Job,
    runtime: &Runtime,
    graph: &Graph<State>,
) -> Result<RunHandle<State>, Failure> {
    let mut request = runtime.resume(graph, &job.run);
    if job.how.take_over {
        request = request.take_over();
    }
    if job.how.allow_changed {
        request = request.allow_changed_graph();
    }
    match request.await {
        Ok(run) => Ok(run),
        Err(error) if error.kind() == ErrorKind::GraphChanged => Err(changed(error, job)),
        Err(error) if error.kind() == ErrorKind::Conflict => Err(held(job)),
        Err(error) => Err(error.into()),
    }
}

fn changed(error: ferrata::Error, job: &Job) -> Failure {
    let next = format!("{} --allow-changed", job.place.resume(&job.run));
    Failure::from(error).or_type(next)
}

/// Another process has the run.
pub(super) fn held(job: &Job) -> Failure {
    let message =
        format!("another process drives run {}; wait for it, or claim the run with --take-over", job.run.run);
    Failure::new(Exit::Conflict, message, job.place.command("wait", &job.run, ""))
}

/// Waits until the previous process counts as dead, which takes a moment after a `kill -9`.
async fn free(context: &Context, job: &Job, runtime: &Runtime) -> Result<ferrata::store::RunHead, Failure> {
    let deadline = context.clock.monotonic().saturating_add(TTL + Duration::from_secs(1));
    let mut told = false;
    loop {
        let gone = || super::missing(&job.run, &job.place);
        let head = runtime.head(&job.run).await?.ok_or_else(gone)?;
        if !head.owner_alive || job.how.take_over {
            return Ok(head);
        }
        if context.clock.monotonic() >= deadline {
            return Err(held(job));
        }
        if !told {
            context.out.note("another process owns the run; checking whether it is alive");
            told = true;
        }
        context.clock.sleep(LOOK).await;
    }
}
