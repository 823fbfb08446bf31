//! Hooks: commands that run before and after each tool call. `tool_hooks.pre` may forbid the call, and `tool_hooks.post` receives its result.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::capture::{AttemptOutput, KeepPolicy, OutputSource};
use super::command_text::prepare;
use super::inherit::InheritedNames;
use super::process::{ShellCommand, run};
use super::tool::{environment, last_line};
use super::{HandlerError, Stage};

/// Maximum number of bytes of a hook's output that are captured. Only the last line is needed.
const KEEP: usize = 4 << 10;

/// Returns the hook command of the node, or else of the graph; an empty text if neither has one.
fn hook(stage: &Stage, when: &str) -> String {
    let key = format!("tool_hooks.{when}");
    let own = stage.node.attributes.text(&key);
    if own.is_empty() { stage.pipeline.attributes.text(&key).into_owned() } else { own.into_owned() }
}

/// Returns the hook commands as environment variables for a backend, which runs the hooks around its own tool calls.
pub(super) fn hook_variables(stage: &Stage) -> impl Iterator<Item = (OsString, OsString)> + use<> {
    let told =
        [("FERRATA_TOOL_HOOK_PRE", hook(stage, "pre")), ("FERRATA_TOOL_HOOK_POST", hook(stage, "post"))];
    told.into_iter().filter(|(_, line)| !line.is_empty()).map(|(name, line)| (name.into(), line.into()))
}

/// The data about a tool call that its hooks receive.
pub(super) struct HookedCall<'a> {
    pub(super) stage: &'a Stage,
    pub(super) directory: Option<PathBuf>,
    pub(super) command: &'a str,
    pub(super) inherit: &'a InheritedNames,
}

impl HookedCall<'_> {
    /// Runs the hook before the call. The inner `Err` is the reason why the call is forbidden.
    pub(super) async fn before(&self) -> Result<Result<(), String>, HandlerError> {
        self.run("pre", json!({})).await.map_err(|lost| HandlerError::transient(lost).not_done())
    }

    /// Runs the hook after the call. The tool has already run, so an error only describes a problem of the hook, even if the hook could not start.
    pub(super) async fn after(&self, result: Json) -> Result<(), String> {
        self.run("post", result).await.unwrap_or_else(Err)
    }

    /// Runs a hook. The inner error describes how the hook ended. The outer error means that its end is unknown.
    async fn run(&self, when: &str, result: Json) -> Result<Result<(), String>, String> {
        let line = hook(self.stage, when);
        if line.is_empty() {
            return Ok(Ok(()));
        }
        let mut input =
            json!({"hook": when, "tool": "shell", "node": self.stage.node.id(), "command": self.command});
        if let (Json::Object(input), Json::Object(result)) = (&mut input, result) {
            input.extend(result);
        }
        let refused = |error: HandlerError| format!("cannot start the hook `tool_hooks.{when}`: {error}");
        let mut environment = environment(self.stage).map_err(refused)?;
        let command = prepare(&line, &self.stage.node, self.inherit, &self.stage.context)
            .map_err(|why| format!("the hook `tool_hooks.{when}` did not run: {why}"))?;
        environment.extend(command.environment);
        environment.push(("FERRATA_TOOL_NAME".into(), "shell".into()));
        let printed = AttemptOutput::default();
        printed.begin(OutputSource::Tool, KeepPolicy::BothEnds(KEEP), None);
        let shell = ShellCommand {
            line: command.line,
            program: "sh",
            directory: self.directory.clone(),
            environment,
            inherit: self.inherit.clone(),
            input: input.to_string().into_bytes(),
            printed: printed.clone(),
            pulse: self.stage.pulse.clone(),
        };
        let finished = run(shell, &self.stage.cx).await;
        let what = format!("the hook `tool_hooks.{when}`");
        let finished = finished.map_err(|lost| lost.describe(&what))?;
        if finished.status.success() {
            return Ok(Ok(()));
        }
        let how = finished.describe();
        let errors = printed.take().map(|printed| printed.errors.text).unwrap_or_default();
        Ok(Err(match last_line(&errors) {
            Some(line) => format!("`tool_hooks.{when}` {how}: {line}"),
            None => format!("`tool_hooks.{when}` {how}"),
        }))
    }
}
