//! Drives one run of a pipeline: starts it, shows its progress, answers its questions, handles signals, and updates its directory.

use std::future::{Future, ready};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::ask::{Question, QuestionKind};
use ferrata::runtime::{Checkpoint, EventSubscription, RunEvent};
use ferrata::store::At;
use ferrata::{Clock, Context as State, ErrorKind, Event, Graph, Outcome, RunHandle, RunStatus, Runtime};
use ferrata_dot::run_dir::RunDirectory;
use tokio::sync::{Notify, watch};

use super::answers::{LocalAnswers, PLACE, SharedAnswers, SharedVoice, voice};
use super::job::{DriveJob, StartKind};
use super::load::WorkSettings;
use super::progress::ProgressReporter;
use super::report::{self, FollowEnd};
use super::resume::{self, TTL};
use super::signals::Signals;
use super::{BACKEND, BY_COMMAND, DIRECTORY, SIMULATED, input, views};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::time::short;

/// A run that only waits for a time stays in this process. A command that runs a pipeline does not leave the run to other processes.
const STAY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Maximum number of ancestors of a fork that are read. Reused ids could otherwise make the chain endless.
const MOST_PARENTS: u32 = 100;

/// Interval of polls for signals from other processes.
const POLL: Duration = Duration::from_millis(200);

/// Drives a run until it is idle or has ended, and reports its status.
pub(super) async fn drive(
    context: &CommandContext,
    job: DriveJob,
    mut signals: Signals,
) -> Result<ExitReason, CommandFailure> {
    let file = job.how.answers.as_deref().map(input::answers).transpose()?.unwrap_or_default();
    let nodes = job.loaded.pipeline.nodes().len();
    let shared: SharedVoice = Arc::new(Mutex::new(ProgressReporter::new(context, job.how.progress, nodes)));
    let answer = job.place.command("answer", &job.run, PLACE);
    let here = LocalAnswers::new(file, &job.how, !context.global.no_input, &shared, answer).map(Arc::new);
    let mut work = pin!(prepare(context, &job, &shared, here.as_ref()));
    let mut is_stopping = false;
    let ready = loop {
        tokio::select! {
            ready = &mut work => break ready,
            () = signals.next() => match (job.touched.load(Ordering::Relaxed), is_stopping) {
                (false, _) => break Err(super::left_early_failure()),
                // Nodes may already run before the start returns. So handle the signal after the start.
                (true, false) => is_stopping = true,
                (true, true) => {
                    ferrata_dot::handler::kill_commands();
                    break Err(report::stopped_failure(&job));
                }
            },
        }
    };
    let DriveParts { runtime, graph, directory, mut events, handle } = match ready {
        Ok(ready) => ready,
        Err(failure) => {
            voice(&shared).finish();
            return Err(failure);
        }
    };
    if is_stopping {
        signals.put_back();
    }
    let recorded = Notify::new();
    let (over, is_over) = watch::channel(false);
    let mut keeper = pin!(views::keep_views_current(directory, &runtime, &job.run, &recorded, is_over));
    recorded.notify_one();
    let stopped = match handle {
        None => Ok(FollowEnd::Already),
        Some(handle) => {
            let going = DrivenRun {
                job: &job,
                runtime: &runtime,
                graph: &graph,
                shared: &shared,
                recorded: &recorded,
            };
            let mut follow = pin!(going.follow(handle, &mut events, &mut signals, here.as_deref(), context));
            loop {
                tokio::select! {
                    stopped = &mut follow => break stopped,
                    // The task that updates the directory continues until it learns that the run is over.
                    _ = &mut keeper => {}
                }
            }
        }
    };
    voice(&shared).finish();
    if matches!(stopped, Ok(FollowEnd::Left)) {
        // The process exits without waiting, so kill the commands, which would otherwise outlive it.
        ferrata_dot::handler::kill_commands();
        return Err(report::stopped_failure(&job));
    }
    over.send_replace(true);
    let kept = tokio::select! {
        kept = &mut keeper => kept,
        () = signals.next() => Ok(()),
    };
    let sum = voice(&shared).summary_text();
    let exit = report::report_status(context, &job, &runtime, stopped, &sum).await;
    // If the run is released, the next process need not wait until this process counts as dead.
    let released = tokio::select! {
        released = runtime.shutdown(Duration::ZERO) => released,
        () = signals.next() => Ok(()),
    };
    kept.map_err(|error| report::stale_directory_failure(&job, &error))?;
    let exit = exit?;
    released?;
    Ok(exit)
}

/// The parts that are needed to drive a run.
struct DriveParts {
    runtime: Runtime,
    graph: Graph<State>,
    directory: RunDirectory,
    events: EventSubscription,
    /// The handle to the run; `None` if the run had already completed.
    handle: Option<RunHandle<State>>,
}

async fn prepare(
    context: &CommandContext,
    job: &DriveJob,
    shared: &SharedVoice,
    here: Option<&Arc<LocalAnswers>>,
) -> Result<DriveParts, CommandFailure> {
    let loaded = &job.loaded;
    let root = job.place.directory(&job.run);
    let mut directory = RunDirectory::new(&root, Arc::clone(&loaded.pipeline))?;
    let before = match job.kind {
        StartKind::Resume => job.place.store.head(&job.run).await?,
        StartKind::Start { .. } | StartKind::Restore(_) => None,
    };
    let label = |key: &str| before.as_ref().and_then(|head| head.facts.labels.get(key));
    let backend = loaded.backend(job.how.backend.as_deref());
    if backend.is_none() && label(BACKEND).is_some_and(|by| by == BY_COMMAND) {
        let message = "the run was started with --backend; add it again, or its tasks are simulated";
        return Err(CommandFailure::usage(
            message,
            format!("{} --backend COMMAND", job.place.resume(&job.run)),
        ));
    }
    let current = std::env::current_dir()
        .map_err(|error| CommandFailure::internal("cannot read the current directory", &error))?;
    // Commands continue in the working directory of the start, if it exists on this machine.
    let working = label(DIRECTORY).map(PathBuf::from).filter(|path| path.is_dir()).unwrap_or(current);
    let work = WorkSettings {
        backend: backend.as_deref(),
        directory: &working,
        inherited: &job.how.inherited,
        until: job.how.until.as_deref(),
    };
    let (compiled, manager) = loaded.compile(&work, &directory)?;
    // A store inside the directory creates the directory itself.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&root);
    made.map_err(|error| {
        let message = format!("cannot create the directory `{}`: {error}", root.display());
        CommandFailure::new(ExitReason::Internal, message, "ferrata run --help")
    })?;
    ferrata_dot::handler::guard_commands()
        .map_err(|error| CommandFailure::internal("cannot start /bin/sh", &error))?;
    let mut builder = Runtime::builder_with(Arc::clone(&job.place.store))
        .heartbeat_ttl(TTL)
        .poll_interval(POLL)
        .release_after(STAY);
    if let Some(here) = here {
        builder = builder.answerer(SharedAnswers(Arc::clone(here)));
    }
    let runtime = builder.build().await?;
    manager.attach(&runtime)?;
    let events = runtime.events();
    if before.is_some() {
        let checkpoint = runtime.checkpoint(&job.run, At::Latest).await?;
        take_over(job, &runtime, &directory, &checkpoint).await?;
        voice(shared).recorded(checkpoint.history.into_iter().map(|past| past.node.to_string()));
        // Do this before an attempt is repeated, because the attempt writes into the directory that contains the views of the previous attempt.
        if let Err(error) = directory.refresh(&runtime, &job.run).await {
            tracing::debug!(%error, "cannot write the directory of the run; will retry");
        }
    }
    let done_by = match backend {
        Some(_) => Some(BY_COMMAND),
        None => loaded.has_tasks().then_some(SIMULATED),
    };
    let graph = &compiled.graph;
    let handle = resume::start_or_resume(context, job, &runtime, graph, done_by, &working).await?;
    directory.keep_source(&loaded.source)?;
    let voice = voice(shared);
    voice.write_line(&format!("run {}  {}  {}", job.run.run, loaded.pipeline.name(), root.display()));
    if matches!(job.kind, StartKind::Start { .. }) {
        loaded.warn(&compiled, |line| voice.write_line(line));
    }
    if done_by == Some(SIMULATED) {
        // Without a backend, every task succeeds without work. So this warning is shown even with `--quiet`.
        voice.write_always("no --backend: tasks are simulated");
    }
    drop(voice);
    Ok(DriveParts { runtime, graph: compiled.graph, directory, events, handle })
}

/// Returns whether the command waits for answers to these questions. The command does not wait for the question of `--until`, which the person who
/// resumes the run answers.
fn job_waits(job: &DriveJob, questions: &[Question]) -> bool {
    job.how.wait && questions.iter().any(|question| question.kind != QuestionKind::After)
}

/// Copies the artifacts in a fork's context into the directory of the fork. The artifacts are in the directory of the run that was forked, or of its
/// ancestors.
async fn take_over(
    job: &DriveJob,
    runtime: &Runtime,
    directory: &RunDirectory,
    checkpoint: &Checkpoint,
) -> Result<(), CommandFailure> {
    let mut parent = checkpoint.parent.clone();
    for _ in 0..MOST_PARENTS {
        let Some(from) = parent.map(|parent| parent.run) else { break };
        if directory.take_over(&checkpoint.state, job.place.directory(&from))? {
            break;
        }
        // The chain of ancestors ends at a run that was removed.
        parent = runtime.checkpoint(&from, At::Latest).await.ok().and_then(|before| before.parent);
    }
    Ok(())
}

/// A run that this command drives.
struct DrivenRun<'a> {
    job: &'a DriveJob,
    runtime: &'a Runtime,
    graph: &'a Graph<State>,
    shared: &'a SharedVoice,
    recorded: &'a Notify,
}

impl DrivenRun<'_> {
    /// Follows the run until it is idle or has ended.
    async fn follow(
        &self,
        mut handle: RunHandle<State>,
        events: &mut EventSubscription,
        signals: &mut Signals,
        here: Option<&LocalAnswers>,
        context: &CommandContext,
    ) -> Result<FollowEnd, CommandFailure> {
        let mut time = pin!(async {
            match self.job.how.timeout {
                Some(timeout) => context.clock.sleep(timeout).await,
                None => std::future::pending().await,
            }
        });
        if !handle.is_driven_here() && self.is_driven_elsewhere().await? {
            return Err(resume::held_failure(self.job));
        }
        loop {
            match self.follow_once(&handle, events, signals, time.as_mut()).await? {
                // No process drives a waiting run, so this command itself asks the local answerers.
                FollowEnd::Rests(Outcome::Interrupted(questions)) => {
                    let answered = tokio::select! {
                        answered = self.answer(here, &questions) => answered?,
                        heard = self.wait_for_change(context) => heard.map(|()| true)?,
                        () = signals.next() => return Ok(FollowEnd::Asked),
                        () = time.as_mut() => return Ok(FollowEnd::Late),
                    };
                    if !answered && job_waits(self.job, &questions) {
                        // Questions that have no local answer, such as those about work with an unknown outcome, can be answered from elsewhere.
                        tokio::select! {
                            heard = self.wait_for_change(context) => heard?,
                            () = signals.next() => return Ok(FollowEnd::Asked),
                            () = time.as_mut() => return Ok(FollowEnd::Late),
                        }
                    } else if !answered {
                        return Ok(FollowEnd::Rests(Outcome::Interrupted(questions)));
                    }
                    handle = resume::resume(self.job, self.runtime, self.graph).await?;
                }
                FollowEnd::Rests(Outcome::Sleeping { until }) => {
                    let left = until.since(context.clock.now());
                    tokio::select! {
                        () = context.clock.sleep(left) => {}
                        () = signals.next() => return Ok(FollowEnd::Asked),
                        () = time.as_mut() => return Ok(FollowEnd::Late),
                    }
                    handle = resume::resume(self.job, self.runtime, self.graph).await?;
                }
                stopped => return Ok(stopped),
            }
        }
    }

    /// Answers the questions that have local answers. Returns whether there were any.
    async fn answer(
        &self,
        here: Option<&LocalAnswers>,
        questions: &[Question],
    ) -> Result<bool, CommandFailure> {
        let mut answered = false;
        let Some(here) = here else { return Ok(false) };
        for question in questions {
            let Some(answer) = here.decide(question).await else { continue };
            match self.runtime.respond(&self.job.run, &question.id, answer).by(here.author(question)).await {
                Ok(()) => answered = true,
                // Another answer may have been recorded first.
                Err(error) => match error.kind() {
                    ErrorKind::NotFound | ErrorKind::WrongStatus | ErrorKind::AlreadyExists => {
                        answered = true
                    }
                    _ => return Err(error.into()),
                },
            }
        }
        Ok(answered)
    }

    /// Waits until another process changes the run, by an answer, a message, or its end.
    async fn wait_for_change(&self, context: &CommandContext) -> Result<(), CommandFailure> {
        loop {
            let head = self.runtime.head(&self.job.run).await?;
            let waits = |status| matches!(status, RunStatus::Interrupted | RunStatus::AwaitingInput);
            if !head.is_some_and(|head| waits(head.status)) {
                return Ok(());
            }
            context.clock.sleep(POLL).await;
        }
    }

    async fn is_driven_elsewhere(&self) -> Result<bool, CommandFailure> {
        let head = self.runtime.head(&self.job.run).await?;
        Ok(head.is_some_and(|head| head.owner_alive && head.owner != Some(self.runtime.executor())))
    }

    /// Follows the run until it becomes idle or ends once.
    async fn follow_once(
        &self,
        handle: &RunHandle<State>,
        events: &mut EventSubscription,
        signals: &mut Signals,
        mut time: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<FollowEnd, CommandFailure> {
        let mut end = pin!(handle.wait());
        let mut asked = None;
        let outcome = loop {
            tokio::select! {
                // Poll the signals first: a second signal must have an effect even if the grace period ends at the same time.
                biased;
                () = signals.next() => {
                    if asked.is_some() {
                        return Ok(FollowEnd::Left);
                    }
                    asked = Some(FollowEnd::Asked);
                    let grace = short(self.job.how.grace);
                    voice(self.shared).write_line(&format!("stopping: running nodes may finish within {grace}; press Ctrl-C again to leave now"));
                    self.begin_to_stop().await;
                }
                () = time.as_mut(), if asked.is_none() => {
                    asked = Some(FollowEnd::Late);
                    voice(self.shared).write_line("--timeout expired: stopping");
                    self.begin_to_stop().await;
                }
                outcome = &mut end => break outcome,
                event = events.next() => self.show_event(event?.as_ref()),
            }
        };
        // Read the remaining events before the end.
        loop {
            tokio::select! {
                biased;
                event = events.next() => self.show_event(event?.as_ref()),
                () = ready(()) => break,
            }
        }
        match (outcome?, asked) {
            // A command that was told to stop waits neither for answers nor for a time.
            (Outcome::Released | Outcome::Interrupted(_) | Outcome::Sleeping { .. }, Some(stopped)) => {
                Ok(stopped)
            }
            (outcome, _) => Ok(FollowEnd::Rests(outcome)),
        }
    }

    /// Asks the runtime to release the run, and does not wait for the release.
    async fn begin_to_stop(&self) {
        tokio::select! {
            biased;
            _ = self.runtime.shutdown(self.job.how.grace) => {}
            () = ready(()) => {}
        }
    }

    fn show_event(&self, event: Option<&RunEvent>) {
        let what = event.map(|event| &event.event);
        if matches!(what, None | Some(Event::Durable { .. } | Event::Status { .. })) {
            self.recorded.notify_one();
        }
        if !matches!(what, Some(Event::Durable { .. })) {
            let child = event.filter(|event| event.run != self.job.run).map(|event| event.run.run.as_str());
            voice(self.shared).show_event(what, child);
        }
    }
}
