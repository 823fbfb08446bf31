//! A node that runs a shell command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ferrata_core::{Error, ErrorKind};
use serde_json::json;

use super::capture::{CapturedOutput, CommandOutputs, KeepPolicy, OutputSource};
use super::command::status_in;
use super::command_text::{CommandText, prepare};
use super::hooks::HookedCall;
use super::inherit::InheritedNames;
use super::process::{ShellCommand, run};
use super::setting::{CommandSetting, setters};
use super::{Handler, HandlerError, Stage, variables};
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::{Node, Pipeline};
use crate::variable::expand;

/// The exit status that requests a retry: `EX_TEMPFAIL` in `sysexits.h`.
pub(super) const TEMPORARY: i32 = 75;

/// Maximum size of each output in the context, in bytes. The maximum is large enough to show an error, and small enough for a state.
const MAX_OUTPUT: usize = 64 << 10;

/// Runs the command in `tool_command` with `sh -c`. If `language` is `bash` or `python3`, that interpreter runs it.
///
/// - Exit status 0 is a success, 75 requests a retry, and any other status is a failure.
/// - The context stores the standard output as `tool.output`, the standard error as `tool.errors`, and the exit status as `tool.exit_code`. Of a long
///   output, it stores the beginning and the end.
/// - A variable in the command is a shell variable. The value of `$name` and `${name}` comes from the environment, or from the context if the
///   environment does not have it. `{{ name }}` becomes a quoted reference to a variable. So the shell never interprets a value as code. If a
///   lower-case name has no value, the node fails before the command runs, because the shell would insert an empty text.
/// - `working_dir` is the working directory, and `env.NAME` sets an environment variable. The command also gets `FERRATA_RUN`, `FERRATA_NODE`,
///   `FERRATA_VISIT`, `FERRATA_ATTEMPT` and `FERRATA_IDEMPOTENCY_KEY`. The key is the same each time the activation is repeated.
/// - `tool_hooks.pre` and `tool_hooks.post` of the node or the graph are commands that run before and after the tool, with the call as JSON on their
///   standard input. If the `pre` hook ends with a status other than 0, the tool does not run, and the outcome is `skipped`. The notes of the outcome
///   mention problems of the `post` hook.
/// - The command gets the context key `some.key` as `FERRATA_CONTEXT_some_key`: text verbatim, other values as JSON. The command does not get keys
///   that begin with `internal.`, values of more than 96 KiB, and values beyond 512 KiB in total, because a command cannot start with more. If
///   several keys map to one variable, the engine's key gets the variable. If none of them is the engine's key, no key gets it.
///   `FERRATA_COLLIDING_KEYS` and the notes list the other keys.
/// - From the environment of this process, the command inherits only the paths of programs and files, and the variables of
///   [`with_inherited`](Self::with_inherited). The reason is that pipelines may come from other authors, and that the output of a command is stored.
/// - The command has its own process group. When the command ends, its `timeout` expires or the run is cancelled, the remaining processes of the
///   group are killed.
#[derive(Clone, Debug)]
pub struct Tool {
    setting: CommandSetting,
    inherit: InheritedNames,
}

setters!(Tool);

impl Tool {
    /// Adds environment variables of this process that commands inherit. `NAME*` matches every name with this prefix. Commands never inherit
    /// `FERRATA_STORE` and names that contain `PASSWORD`.
    #[must_use]
    pub fn with_inherited(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.inherit = self.inherit.and(names);
        self
    }
}

impl Default for Tool {
    fn default() -> Self {
        Self {
            setting: CommandSetting::new(KeepPolicy::BothEnds(MAX_OUTPUT)),
            inherit: InheritedNames::plain(),
        }
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
                HandlerError::permanent(format!("the command did not run: {why}")).not_done()
            })?,
        };
        let call = HookedCall { stage, directory: directory.clone(), command: &line, inherit: &self.inherit };
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
        let shell = ShellCommand {
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
        let finished = finished.map_err(|lost| lost.to_error("the command"))?;
        let (how, code) = (finished.describe(), finished.status.code());
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
                // The outcome comes from the file that the command left.
                Some(line) if code == Some(0) => line,
                Some(line) => format!("the command {how}: {line}"),
                None => format!("the command {how}"),
            };
        }
        let colliding = variables::colliding(&stage.context);
        if !colliding.is_empty() {
            outcome.add_note(&format!(
                "keys without an environment variable, because other keys have the same variable name: {}",
                colliding.join(", ")
            ));
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
            let message = format!("node {}: the tool has no command; set `tool_command`", node.id());
            return Err(Error::new(ErrorKind::Invalid, message).with_operation("dot.compile"));
        }
        Ok(())
    }
}

/// Returns the interpreter for the command of a node.
fn program(node: &Node) -> &'static str {
    match &*node.attributes.text("language") {
        "bash" => "bash",
        "python" | "python3" => "python3",
        _ => "sh",
    }
}

/// Returns the working directory for a command of a node.
pub(super) fn directory(stage: &Stage, base: Option<&Path>) -> Result<Option<PathBuf>, HandlerError> {
    let own = expanded(stage, "working_dir", &stage.node.attributes.text("working_dir"))?;
    Ok(match (base, &*own) {
        (None, "") => None,
        (Some(base), "") => Some(base.to_owned()),
        (None, own) => Some(PathBuf::from(own)),
        (Some(base), own) => Some(base.join(own)),
    })
}

/// Replaces the variables in an attribute that no shell reads.
fn expanded(stage: &Stage, key: &str, text: &str) -> Result<String, HandlerError> {
    let expanded = expand(text, &stage.context).map(std::borrow::Cow::into_owned);
    expanded.map_err(|why| HandlerError::permanent(format!("`{key}`: {why}")).not_done())
}

/// Returns the environment variables for the command of a node, in addition to those that it inherits from this process.
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

/// Returns the last non-empty line, shortened, because a reason has only one line.
pub(super) fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(crate::suggest::shortened(line, 200).into_owned())
}
