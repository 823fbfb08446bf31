//! The end of the command. This module writes the result to stdout and the next command to stderr, and returns the exit code.

use std::io::IsTerminal as _;

use ferrata::ask::QuestionKind;
use ferrata::runtime::Checkpoint;
use ferrata::store::At;
use ferrata::{Context as State, Outcome, RunStatus, Runtime};
use ferrata_core::wording::count;
use serde_json::{Map, Value as Json, json};

use super::answers::{asked_object, choices, clean_lines, first_choice};
use super::job::DriveJob;
use super::{BACKEND, SIMULATED};
use crate::commands::{asked, family_of};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::{OutputFormat, quoted};
use crate::resolution_help;
use crate::table::{clean, clean_json};

/// The reason why the command stopped following the run.
#[derive(Debug)]
pub(super) enum FollowEnd {
    /// The run is idle or has ended.
    Rests(Outcome<State>),
    /// The run had already completed before.
    Already,
    /// A signal asked the command to stop, and the process released the run.
    Asked,
    /// The time of `--timeout` passed, and the process released the run.
    Late,
    /// A second signal came, and the command did not wait for the release.
    Left,
}

/// Maximum number of lines of the latest answer that are printed before a question.
const BEFORE: usize = 20;

/// Writes the result of a run to stdout.
pub(super) fn result(context: &CommandContext, value: &Json, id: &str) -> Result<(), CommandFailure> {
    let pretty = |value: &Json| clean_json(&format!("{value:#}\n"));
    context.out.one(value, |_| id.to_owned(), pretty)
}

/// Returns whether a node starts a run of another pipeline.
fn supervises(node: &ferrata_dot::pipeline::Node) -> bool {
    let known = |name: &str| ferrata_dot::pipeline::SHAPES.iter().any(|(_, kind)| *kind == name);
    node.handler_type(known) == "stack.manager_loop"
}

/// Reports the status of the run.
pub(super) async fn report_status(
    context: &CommandContext,
    job: &DriveJob,
    runtime: &Runtime,
    stopped: Result<FollowEnd, CommandFailure>,
    sum: &str,
) -> Result<ExitReason, CommandFailure> {
    let stopped = stopped?;
    let checkpoint = runtime.checkpoint(&job.run, At::Latest).await?;
    let told = of(job, &checkpoint);
    if context.out.format == OutputFormat::Table && std::io::stdout().is_terminal() {
        context.out.text(&summary(job, &checkpoint))?;
    } else {
        result(context, &told, job.run.run.as_str())?;
    }
    if job.loaded.pipeline.nodes().iter().any(supervises)
        && let Some(family) = family_of(context, runtime, &job.run).await?
    {
        context.out.note(family.trim_end());
    }
    let run = &job.run.run;
    let resume = || job.resume();
    let outcome = match stopped {
        FollowEnd::Already => {
            context.out.note(&format!("run {run} is already completed"));
            return Ok(ExitReason::Done);
        }
        FollowEnd::Asked | FollowEnd::Left => return Err(stopped_failure(job)),
        FollowEnd::Late => {
            let message = format!("run {run} was stopped by --timeout; recorded results are kept");
            return Err(CommandFailure::new(ExitReason::TimedOut, message, resume()));
        }
        FollowEnd::Rests(outcome) => outcome,
    };
    match outcome {
        Outcome::Completed(_) => {
            let exits: Vec<&str> = {
                let pipeline = &job.loaded.pipeline;
                pipeline.exits().into_iter().map(|at| pipeline.nodes()[at].id()).collect()
            };
            let last = checkpoint.history.last().map(|past| past.node.as_str());
            let elsewhere = last.filter(|last| !exits.contains(last));
            let elsewhere =
                elsewhere.map(|last| format!("; it ended at `{last}`, not at the exit")).unwrap_or_default();
            let simulated = if is_simulated(&checkpoint) { "; its tasks were simulated" } else { "" };
            context.out.note(&format!("run {run} completed: {sum}{elsewhere}{simulated}"));
            Ok(ExitReason::Done)
        }
        Outcome::Failed { failure, .. } => {
            let why = failure.to_string();
            let message = format!("run {run} failed: {}", clean(&why));
            let retry = format!("{} && {}", job.place.command("retry", &job.run, ""), resume());
            Err(CommandFailure::new(ExitReason::RunFailed, message, retry).with_details(files(
                job,
                failure.node.as_ref(),
                &checkpoint,
            )))
        }
        Outcome::Cancelled { reason, .. } => {
            let message = format!("run {run} was cancelled: {}", clean(&reason));
            Err(CommandFailure::new(ExitReason::Cancelled, message, job.place.command("show", &job.run, "")))
        }
        Outcome::Interrupted(questions)
            if job.how.until.is_some()
                && questions.iter().all(|question| question.kind == QuestionKind::After) =>
        {
            let until = job.how.until.as_deref().unwrap_or_default();
            context.out.note(&format!("run {run} stopped after `{until}`: {sum}\nnext: {}", resume()));
            Ok(ExitReason::Done)
        }
        Outcome::Interrupted(questions) => {
            let many = questions.len();
            let answers = if many == 1 { "an answer".to_owned() } else { count(many, "answer") };
            let message = format!("run {run} waits for {answers}; nothing is running");
            let details: Vec<String> = questions
                .iter()
                .flat_map(|question| {
                    if question.kind == QuestionKind::Doubt {
                        let command = |more: &str| job.place.command("answer", &job.run, more);
                        let text = question.read::<String>().unwrap_or_default();
                        let asked = format!("{}: {}", question.id, clean(&text));
                        return std::iter::once(asked)
                            .chain(resolution_help::resolution_lines(&question.id, command))
                            .collect();
                    }
                    let choices: Vec<String> = choices(question).iter().map(|choice| clean(choice)).collect();
                    let more = format!("{} VALUE", quoted(&question.id));
                    let answer = job.place.command("answer", &job.run, &more);
                    let mut lines = vec![format!("{}: {}", question.id, clean(&asked(question)))];
                    if let Some(before) = asked_object(question).get("shown").and_then(Json::as_str) {
                        let before = clean_lines(before);
                        lines.extend(before.lines().take(BEFORE).map(|line| format!("  | {line}")));
                        let more = before.lines().count().saturating_sub(BEFORE);
                        lines.extend((more > 0).then(|| format!("  | .. {}", count(more, "more line"))));
                    }
                    lines.extend((!choices.is_empty()).then(|| format!("  {}", choices.join(" | "))));
                    let until = question.deadline.map(|at| context.out.time.write(at, context.now()));
                    lines.extend(match (&question.default, until) {
                        (Some(default), Some(until)) => Some(format!("  default {} {until}", clean(default))),
                        (None, Some(until)) => Some(format!("  expires {until}")),
                        _ => None,
                    });
                    lines.push(format!("  {answer}"));
                    lines
                })
                .collect();
            let Some(plain) = questions.iter().find(|question| question.kind != QuestionKind::Doubt) else {
                return Err(CommandFailure::new(ExitReason::Waiting, message, resume()).with_details(details));
            };
            let first = &plain.id;
            let value = first_choice(plain);
            let value = value.map_or_else(|| "VALUE".to_owned(), |choice| quoted(&choice));
            let more = format!("{} {value}", quoted(first));
            let next = format!("{} && {}", job.place.command("answer", &job.run, &more), resume());
            Err(CommandFailure::new(ExitReason::Waiting, message, next).with_details(details))
        }
        Outcome::Paused { reason, .. } => {
            let message = format!("run {run} is paused: {}", clean(&reason));
            Err(CommandFailure::new(ExitReason::Waiting, message, job.place.command("show", &job.run, "")))
        }
        Outcome::AwaitingInput => {
            let message = format!("run {run} waits for a message");
            Err(CommandFailure::new(
                ExitReason::Waiting,
                message,
                job.place.command("send", &job.run, "MESSAGE"),
            ))
        }
        _ => {
            let message = format!("run {run} was released before its end");
            Err(CommandFailure::new(ExitReason::Interrupted, message, resume()))
        }
    }
}

/// Returns whether the run was started without a backend for its tasks.
fn is_simulated(checkpoint: &Checkpoint) -> bool {
    checkpoint.labels.get(BACKEND).is_some_and(|by| by == SIMULATED)
}

/// Creates the failure for a command that a signal stopped.
pub(super) fn stopped_failure(job: &DriveJob) -> CommandFailure {
    let message = format!("run {} was stopped; recorded results are kept", job.run.run);
    CommandFailure::new(ExitReason::Interrupted, message, job.resume())
}

/// Creates the failure for a run whose records are safe but whose directory is outdated.
pub(super) fn stale_directory_failure(job: &DriveJob, error: &ferrata::Error) -> CommandFailure {
    let message = format!("the log of run {} is complete, but its directory is not: {error}", job.run.run);
    CommandFailure::new(ExitReason::Internal, message, job.place.resume(&job.run))
}

/// Lists the files that contain more about the failed node.
fn files(job: &DriveJob, node: Option<&ferrata::NodeName>, checkpoint: &Checkpoint) -> Vec<String> {
    let Some(last) = node.and_then(|node| checkpoint.history.iter().rev().find(|past| past.node == *node))
    else {
        return Vec::new();
    };
    let root = job.place.directory(&job.run);
    let attempt = last.attempts.unwrap_or(1);
    let directory =
        ferrata_dot::run_dir::RunDirectory::attempt(&root, last.node.as_str(), last.visit.get(), attempt);
    let all = ["errors.txt", "output.txt", "response.md"].map(|name| directory.join(name));
    let told = all.iter().filter(|path| std::fs::metadata(path).is_ok_and(|about| about.len() > 0));
    told.map(|path| format!("see {}", path.display())).collect()
}

/// Formats the status of the run in a few lines for people. The progress stays visible above them.
fn summary(job: &DriveJob, checkpoint: &Checkpoint) -> String {
    let keys = match &checkpoint.state {
        Json::Object(state) => state.keys().filter(|key| !key.starts_with("internal.")).count(),
        _ => 0,
    };
    let directory = job.place.directory(&job.run);
    let state = job.place.command("state", &job.run, "");
    format!(
        "{}  {}  {} ended\nfiles in {}\ncontext of {}: {state}\n",
        job.run.run,
        checkpoint.status,
        count(checkpoint.history.len(), "node"),
        directory.display(),
        count(keys, "key")
    )
}

/// Returns the status of the run as JSON.
fn of(job: &DriveJob, checkpoint: &Checkpoint) -> Json {
    let context: Map<String, Json> = match &checkpoint.state {
        Json::Object(state) => state
            .iter()
            .filter(|(key, _)| !key.starts_with("internal."))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        _ => Map::new(),
    };
    let mut told = Map::new();
    told.insert("run".into(), job.run.run.to_string().into());
    told.insert("pipeline".into(), checkpoint.workflow.to_string().into());
    told.insert("status".into(), checkpoint.status.to_string().into());
    told.insert("run_dir".into(), job.place.directory(&job.run).display().to_string().into());
    told.insert("seq".into(), checkpoint.index.get().into());
    if is_simulated(checkpoint) {
        told.insert("simulated".into(), true.into());
    }
    if let (RunStatus::Failed, Some(failure)) = (checkpoint.status, &checkpoint.failure) {
        told.insert("failure".into(), failure.to_string().into());
    }
    if !checkpoint.questions.is_empty() {
        let ids = checkpoint.questions.iter().map(|question| {
            let read = |text: &Option<String>| {
                text.as_deref().and_then(|text| serde_json::from_str::<Json>(text).ok())
            };
            let mut told = json!({"id": question.id, "text": asked(question), "choices": choices(question)});
            if let Some(default) = read(&question.default) {
                told["default"] = default;
            }
            let object = asked_object(question);
            for key in ["title", "shown"] {
                if let Some(text) = object.get(key) {
                    told[key] = text.clone();
                }
            }
            if let Some(deadline) = question.deadline {
                told["deadline"] = deadline.to_string().into();
            }
            told
        });
        told.insert("questions".into(), ids.collect());
    }
    told.insert("context".into(), context.into());
    Json::Object(told)
}
