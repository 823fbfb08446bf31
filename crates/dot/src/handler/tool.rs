//! A node that runs a shell command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ferrata_core::{Error, ErrorKind};
use serde_json::json;

use super::capture::{CapturedOutput, CommandOutputs, KeepPolicy, OutputSource};
use super::command::status_in;
use super::command_text::{CommandText, prepare};
use super::hooks::Call;
use super::inherit::Inherit;
use super::process::{Shell, run};
use super::setting::{Setting, setters};
use super::{Handler, HandlerError, Stage, variables};
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::{Node, Pipeline};
use crate::variable::expand;

/// The exit status by which a command asks to be tried again: `EX_TEMPFAIL` of `sysexits.h`.
pub(super) const TEMPORARY: i32 = 75;

/// How much of each output the context holds: enough to see what went wrong, and little enough to be part of the state.
const MAX_OUTPUT: usize = 64 << 10;

/// Runs the command of `tool_command` by `sh -c`, or by what `language` says: `bash`, or `python3`.
///
/// - Exit status 0 is success, 75 asks for a retry, anything else fails.
/// - `tool.output` of the context is what it printed, `tool.errors` what it printed to standard error, `tool.exit_code` its
///   exit status; of long outputs the beginning and the end.
/// - A variable in the command is one of the shell: `$name` and `${name}` are given to it if the context holds them and the environment does not,
///   and `{{ name }}` is a reference to one, in the quotes that it needs there. So no value is read as code. A name in lower case without a
///   value fails the node before the command is run: to the shell it would be an empty text.
/// - `working_dir` is where it runs, `env.NAME` sets a variable. It is also told who it is: `FERRATA_RUN`, `FERRATA_NODE`,
///   `FERRATA_VISIT`, `FERRATA_ATTEMPT` and `FERRATA_IDEMPOTENCY_KEY`, which is the same whenever it runs again.
/// - `tool_hooks.pre` and `tool_hooks.post` of the node or the graph are commands that run before and after it, with what they
///   are about as JSON on their standard input. Unless the one before ends with status 0, the tool is not called, and the
///   outcome is `skipped`. What is wrong with the one after is in the notes.
/// - A key `some.key` of the context is `FERRATA_CONTEXT_some_key`, text as it is and other values as JSON. Keys that begin with `internal.`, values
///   of more than 96 KiB and what is beyond 512 KiB in all are left out, since a command cannot be started with more. Of keys
///   that would give one variable, that of the engine is told, and otherwise none.
///   Their keys are `FERRATA_COLLIDING_KEYS`, a JSON list, and in the notes.
/// - Of the environment of this process it inherits what tells where programs and files are, and what
///   [`with_inherited`](Self::with_inherited) adds: pipelines are written by others, and what a command prints is kept.
/// - It is a process group of its own. Whatever of it is still there when the command ends, its `timeout` has passed or the
///   run is cancelled, is killed.
#[derive(Clone, Debug)]
pub struct Tool {
    setting: Setting,
    inherit: Inherit,
}

setters!(Tool);

impl Tool {
    /// Lets commands inherit these variables of the process, too; `NAME*` stands for all that begin so. `FERRATA_STORE` and what has
    /// `PASSWORD` in its name are never inherited.
    #[must_use]
    pub fn with_inherited(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.inherit = self.inherit.and(names);
        self
    }
}

impl Default for Tool {
    fn default() -> Self {
        Self { setting: Setting::new(KeepPolicy::BothEnds(MAX_OUTPUT)), inherit: Inherit::plain() }
    }
}

#[async_trait]
impl Handler for Tool {
    async fn run(&self, stage: &Stage) -> Result<StageOutcome, HandlerError> {
        let line = stage.node.attributes.text("tool_command").into_owned();
        let directory = directory(stage, self.setting.directory.as_deref())?;
        let program = program(&stage.node);
        let command = match program {
            "python3" => CommandText::of_other_language(&line),
            _ => prepare(&line, &stage.node, &self.inherit, &stage.context).map_err(|why| {
                HandlerError::permanent(format!("the command is not run: {why}")).not_done()
            })?,
        };
        let call = Call { stage, directory: directory.clone(), command: &line, inherit: &self.inherit };
        if let Err(why) = call.before().await? {
            let mut outcome = StageOutcome::new(Status::Skipped).with_notes(why.as_str());
            outcome.failure_reason = why;
            return Ok(outcome);
        }
        let files = self.setting.files(stage, ("command.txt", &line))?;
        let mut environment = environment(stage)?;
        environment.extend(command.environment);
        environment.extend(files.iter().map(|files| ("FERRATA_STAGE_DIR".into(), files.into())));
        environment.extend(self.setting.stages.iter().flat_map(|stages| stages.artifacts(stage)));
        let shell = Shell {
            line: command.line,
            program,
            directory,
            environment,
            inherit: self.inherit.clone(),
            input: Vec::new(),
            printed: stage.printed.clone(),
            pulse: stage.pulse.clone(),
        };
        self.setting.begin_output(stage, OutputSource::Tool);
        let finished = run(shell, &stage.cx).await;
        let finished = finished.map_err(|lost| lost.of("the command"))?;
        let (how, code) = (finished.how(), finished.status.code());
        let printed = stage.printed.take();
        let text = |of: fn(&CommandOutputs) -> &CapturedOutput| {
            printed.as_ref().map_or("", |printed| &of(printed).text)
        };
        let (output, errors) = (text(|printed| &printed.output), text(|printed| &printed.errors));
        let status = match code {
            Some(0) => Status::Success,
            Some(TEMPORARY) => Status::Retry,
            _ => Status::Fail,
        };
        let mut outcome = StageOutcome::new(status).with_notes(format!("the command {how}"));
        match files.as_deref().map(|files| status_in(files, stage)).transpose().map(Option::flatten) {
            Ok(Some(said)) => {
                let notes = std::mem::take(&mut outcome.notes);
                outcome = StageOutcome { notes, ..said.clone() };
                if !said.notes.is_empty() {
                    outcome.add_note(&said.notes);
                }
            }
            Err(error) => {
                outcome.status = Status::Fail;
                outcome.failure_reason = error.to_string();
            }
            Ok(None) => outcome.is_exit_status = true,
        }
        if matches!(outcome.status, Status::Fail | Status::Retry) && outcome.failure_reason.is_empty() {
            outcome.failure_reason = match last_line(errors).or_else(|| last_line(output)) {
                // It is the file that says so.
                Some(line) if code == Some(0) => line,
                Some(line) => format!("the command {how}: {line}"),
                None => format!("the command {how}"),
            };
        }
        let colliding = variables::colliding(&stage.context);
        if !colliding.is_empty() {
            outcome.add_note(&format!("no variable of the environment tells {}", colliding.join(", ")));
        }
        let told = json!({"exit_code": code, "output": output, "errors": errors});
        if let Err(why) = call.after(told).await {
            outcome.add_note(&why);
        }
        if let Some(printed) = printed {
            outcome = printed.add_to(outcome, stage.node.id());
        }
        Ok(outcome.with("tool.exit_code", code))
    }

    fn check(&self, node: &Node, _pipeline: &Pipeline) -> Result<(), Error> {
        if node.attributes.text("tool_command").trim().is_empty() {
            let message = format!("node {}: a tool has no command; give it a `tool_command`", node.id());
            return Err(Error::new(ErrorKind::Invalid, message).with_operation("dot.compile"));
        }
        Ok(())
    }
}

/// Returns what runs the command of a node.
fn program(node: &Node) -> &'static str {
    match &*node.attributes.text("language") {
        "bash" => "bash",
        "python" | "python3" => "python3",
        _ => "sh",
    }
}

/// Returns where a command of a node runs.
pub(super) fn directory(stage: &Stage, base: Option<&Path>) -> Result<Option<PathBuf>, HandlerError> {
    let own = expanded(stage, "working_dir", &stage.node.attributes.text("working_dir"))?;
    Ok(match (base, &*own) {
        (None, "") => None,
        (Some(base), "") => Some(base.to_owned()),
        (None, own) => Some(PathBuf::from(own)),
        (Some(base), own) => Some(base.join(own)),
    })
}

/// Replaces the variables of an attribute, which no shell reads.
fn expanded(stage: &Stage, key: &str, text: &str) -> Result<String, HandlerError> {
    let expanded = expand(text, &stage.context).map(std::borrow::Cow::into_owned);
    expanded.map_err(|why| HandlerError::permanent(format!("`{key}`: {why}")).not_done())
}

/// Returns what a command of a node finds in its environment besides that of this process.
pub(super) fn environment(stage: &Stage) -> Result<Vec<(OsString, OsString)>, HandlerError> {
    let cx = &stage.cx;
    let told = [
        ("FERRATA_RUN", cx.run().run.to_string()),
        ("FERRATA_NODE", cx.node().to_string()),
        ("FERRATA_VISIT", cx.visit().to_string()),
        ("FERRATA_ATTEMPT", cx.attempt().to_string()),
        ("FERRATA_IDEMPOTENCY_KEY", cx.idempotency_key()),
    ];
    let told = told.into_iter().map(|(name, value)| (name.into(), value.into()));
    let mut all: Vec<(OsString, OsString)> = told.chain(variables::of(&stage.context)).collect();
    for attribute in stage.node.attributes.iter() {
        let key = &*attribute.key.value;
        if let Some(name) = key.strip_prefix("env.") {
            all.push((name.into(), expanded(stage, key, &attribute.value.value.text())?.into()));
        }
    }
    Ok(all)
}

/// Returns the last line that says something, shortened: a reason is read on one line.
pub(super) fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(crate::suggest::shortened(line, 200).into_owned())
}
