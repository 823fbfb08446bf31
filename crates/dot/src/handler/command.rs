//! A backend that runs a command for each task. The standard input of the command is the task. Its standard output or a file is the answer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::capture::{KeepPolicy, OutputSource, WholePlace};
use super::codergen::{Backend, BackendAnswer, TaskRequest};
use super::hooks;
use super::inherit::InheritedNames;
use super::process::{ProcessEnd, ShellCommand, run};
use super::setting::{CommandSetting, setters};
use super::tool::{TEMPORARY, directory, environment, last_line};
use super::{HandlerError, Stage};
use crate::outcome::{StageOutcome, Status};
use crate::run_dir::files::{self, ARTIFACTS};
use crate::run_dir::{RunDirectory, artifacts_of_attempt};

/// The files in which a command may leave its outcome. The first file that exists is used.
const STATUS_FILES: [&str; 2] = ["status.json", "outcome.json"];

/// The name of an attempt's working directory, inside the attempt's part of the run directory.
pub(crate) const STAGE: &str = "stage";

/// The name of the directory for a manager's child, inside the directory of the manager's first attempt.
const CHILD: &str = "child";

/// Maximum size of an outcome file in bytes.
const MAX_STATUS: u64 = 1 << 20;

/// Maximum size of an answer in the context, in bytes. The limit equals that of a prompt file, and allows several answers in one record.
const MAX_ANSWER: usize = 1 << 20;

/// Runs a command for each task.
///
/// - The standard input is the prompt, which begins with the summary of the previous run. The environment contains `FERRATA_LLM_MODEL`,
///   `FERRATA_LLM_PROVIDER`, `FERRATA_REASONING_EFFORT`, `FERRATA_NODE_TYPE`, `FERRATA_FIDELITY`, `FERRATA_THREAD`, the commands of tool hooks as
///   `FERRATA_TOOL_HOOK_PRE` and `FERRATA_TOOL_HOOK_POST`, and the variables of a [`Tool`](super::Tool).
/// - If a [directory for its files](Self::with_stage_directory) is set, the environment contains `FERRATA_STAGE_DIR`. This variable names a directory
///   of the attempt that contains the prompt as `prompt.md`. If the command leaves a file `status.json` or `outcome.json` in this directory, the file
///   is the outcome, whatever the exit status is. The file must be a regular file of at most 1 MiB and not a link. Anything else with this name is a
///   failure.
/// - The standard output is the answer, with or without an outcome file and with any exit status. The context stores its first 1 MiB. A run directory
///   stores a longer answer completely.
/// - Without an outcome file, exit status 0 is a success, 75 requests a retry, and any other status is a failure. If a command ends with status 0 and
///   prints no answer, the result is a success only if the node has `auto_status`, and otherwise a failure.
#[derive(Clone, Debug)]
pub struct CommandBackend {
    line: String,
    setting: CommandSetting,
}

setters!(CommandBackend);

/// The location of the directories of attempts.
#[derive(Clone, Debug)]
pub(super) enum Stages {
    /// Below this directory, which runs of all tenants share.
    Shared(PathBuf),
    /// In the directory of the run.
    OfRun(PathBuf),
    /// In the directory of the parent run, grouped by the manager that started the child.
    OfChildren(PathBuf),
}

impl Stages {
    /// Returns the environment variables that contain the paths of earlier nodes' artifacts.
    pub(super) fn artifacts(&self, stage: &Stage) -> Vec<(OsString, OsString)> {
        match self {
            // A relative path starts at the working directory of this process, like the path of the attempt's directory.
            Self::OfRun(root) => std::path::absolute(root)
                .map_or_else(|_| Vec::new(), |root| artifacts_of_attempt::variables(&root, &stage.context)),
            Self::Shared(_) | Self::OfChildren(_) => Vec::new(),
        }
    }

    /// Returns the location for the complete outputs of an attempt.
    pub(super) fn whole_place(&self, stage: &Stage) -> Option<WholePlace> {
        let (Self::Shared(root) | Self::OfRun(root) | Self::OfChildren(root)) = self;
        let root = std::path::absolute(root).ok()?;
        let (directory, is_artifact) = match self {
            Self::Shared(_) => (shared_stage(&root, stage), false),
            Self::OfRun(_) => (root.join(ARTIFACTS), true),
            // The contexts of children name no artifacts, because this directory belongs to another run.
            Self::OfChildren(_) => (root.join(ARTIFACTS), false),
        };
        Some(WholePlace { root, directory, is_artifact })
    }

    /// Creates the directory of an attempt, and removes files of an interrupted attempt. The small files are written on this thread, which is cheaper
    /// than a handover to another thread.
    pub(super) fn make(&self, stage: &Stage, asked: (&str, &str)) -> std::io::Result<PathBuf> {
        let cx = &stage.cx;
        let (Self::Shared(root) | Self::OfRun(root) | Self::OfChildren(root)) = self;
        let root = std::path::absolute(root)?;
        let attempt = match self {
            Self::OfRun(_) => return make_stage_of_run(&root, stage, asked),
            Self::OfChildren(_) => {
                let child = of_child(&root, cx.run().run.as_str());
                RunDirectory::attempt(&child, cx.node().as_str(), cx.visit().get(), cx.attempt()).join(STAGE)
            }
            Self::Shared(_) => shared_stage(&root, stage),
        };
        make_stage(&root, &attempt, asked)?;
        Ok(attempt)
    }
}

/// Returns the directory of an attempt below a directory that runs of all tenants share.
fn shared_stage(root: &Path, stage: &Stage) -> PathBuf {
    let (cx, run) = (&stage.cx, stage.cx.run());
    let attempt = format!("{}.{}", cx.visit(), cx.attempt());
    root.join(run.tenant.as_str()).join(run.run.as_str()).join(cx.node().as_str()).join(attempt)
}

/// Returns the directory for a child's attempts inside the directory of its parent, by the visit of the manager that started the child. The id of a
/// child consists of the parent's id, the manager and the visit, joined by dots.
fn of_child(root: &Path, run: &str) -> PathBuf {
    let mut parts: Vec<&str> = run.split('.').collect();
    let mut managers = Vec::new();
    while let [_, .., node, visit] = parts[..]
        // The id of a restarted child has a number after the visit.
        && let Ok(visit) = visit.split('-').next().unwrap_or(visit).parse::<u32>()
    {
        managers.push((node, visit));
        parts.truncate(parts.len() - 2);
    }
    let within = |root: PathBuf, (node, visit)| RunDirectory::attempt(&root, node, visit, 1).join(CHILD);
    managers.into_iter().rev().fold(root.to_owned(), within)
}

impl CommandBackend {
    /// Creates a backend that runs the command `line` with `sh -c`.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), setting: CommandSetting::new(KeepPolicy::Beginning(MAX_ANSWER)) }
    }

    /// Sets the directory in which each attempt gets its own directory: `{tenant}/{run}/{node}/{visit}.{attempt}`.
    #[must_use]
    pub fn with_stage_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.setting.stages = Some(Stages::Shared(directory.into()));
        self
    }
}

#[async_trait]
impl Backend for CommandBackend {
    async fn run(&self, request: TaskRequest<'_>) -> Result<BackendAnswer, HandlerError> {
        let stage = request.stage;
        let asked = ("prompt.md", request.prompt);
        let files = self.setting.files(stage, asked)?;
        let mut environment = environment(stage)?;
        for (name, setting) in [
            ("FERRATA_LLM_MODEL", "llm_model"),
            ("FERRATA_LLM_PROVIDER", "llm_provider"),
            ("FERRATA_REASONING_EFFORT", "reasoning_effort"),
        ] {
            environment.push((name.into(), request.setting(setting).into()));
        }
        for (name, setting) in [
            ("FERRATA_NODE_TYPE", &*stage.kind),
            ("FERRATA_FIDELITY", request.fidelity.as_str()),
            ("FERRATA_THREAD", request.thread.unwrap_or_default()),
        ] {
            environment.push((name.into(), setting.into()));
        }
        environment.extend(hooks::hook_variables(stage));
        environment.extend(self.setting.stages.iter().flat_map(|stages| stages.artifacts(stage)));
        if let Some(files) = &files {
            environment.push(("FERRATA_STAGE_DIR".into(), files.into()));
        }
        let shell = ShellCommand {
            line: self.line.clone(),
            program: "sh",
            directory: directory(stage, self.setting.directory.as_deref())?,
            environment,
            inherit: InheritedNames::all(),
            input: request.prompt.as_bytes().to_vec(),
            printed: stage.printed.clone(),
            pulse: stage.pulse.clone(),
        };
        self.setting.begin_output(stage, OutputSource::Backend);
        let finished = run(shell, &stage.cx).await;
        let finished = finished.map_err(|lost| lost.to_error("the backend"))?;
        let (output, errors) = match stage.printed.captured() {
            Some(printed) => (printed.output.text, printed.errors.text),
            None => (String::new(), String::new()),
        };
        let said = files.as_deref().map(|files| status_in(files, stage)).transpose();
        let outcome = match said.map(Option::flatten) {
            Ok(Some(outcome)) => Some(outcome),
            Err(error) => Some(StageOutcome::fail(error.to_string())),
            Ok(None) => by_status(&finished, &output, &errors),
        };
        match outcome {
            None if output.trim().is_empty() => {
                Err(HandlerError::no_status("the backend wrote neither an answer nor a status"))
            }
            None => Ok(BackendAnswer::text(output)),
            Some(outcome) => Ok(BackendAnswer::outcome(outcome).with_text(output)),
        }
    }
}

/// Returns the outcome that follows from an exit status, for a command that left no outcome file; `None` for a success.
fn by_status(finished: &ProcessEnd, output: &str, errors: &str) -> Option<StageOutcome> {
    let status = match finished.status.code() {
        Some(0) => return None,
        Some(TEMPORARY) => Status::Retry,
        _ => Status::Fail,
    };
    let how = finished.describe();
    let mut outcome = StageOutcome::new(status);
    outcome.is_exit_status = true;
    outcome.failure_reason = match last_line(errors).or_else(|| last_line(output)) {
        Some(line) => format!("the backend {how}: {line}"),
        None => format!("the backend {how}"),
    };
    Some(outcome)
}

/// Creates the working directory of an attempt with a file that contains its task, and removes the outcome of an interrupted attempt.
fn make_stage(root: &Path, path: &Path, (name, asked): (&str, &str)) -> std::io::Result<()> {
    files::write(root, &path.join(name), asked.as_bytes())?;
    for name in STATUS_FILES {
        files::remove(root, &path.join(name))?;
    }
    Ok(())
}

/// Creates the working directory inside the directory of the run, which also shows the task of the attempt.
///
/// The attempt works in a separate directory, not in the directory of its views. After a retry of the run, a new attempt may have the number of an
/// earlier attempt, and the views of that attempt may be written at any time.
fn make_stage_of_run(root: &Path, stage: &Stage, asked: (&str, &str)) -> std::io::Result<PathBuf> {
    let cx = &stage.cx;
    let attempt = RunDirectory::attempt(root, cx.node().as_str(), cx.visit().get(), cx.attempt());
    files::write(root, &attempt.join(asked.0), asked.1.as_bytes())?;
    let path = attempt.join(STAGE);
    make_stage(root, &path, asked)?;
    artifacts_of_attempt::clear(&path)?;
    Ok(path)
}

/// Reads the outcome file of a command; `None` if there is none.
pub(super) fn status_in(directory: &Path, stage: &Stage) -> Result<Option<StageOutcome>, HandlerError> {
    for name in STATUS_FILES {
        let path = directory.join(name);
        let wrong = |what: &dyn std::fmt::Display| HandlerError::permanent(format!("{name}: {what}"));
        let text = match files::read(directory, &path, MAX_STATUS) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                return Err(wrong(&format_args!("the file is too large; the maximum is {MAX_STATUS} bytes")));
            }
            text => text.map_err(|error| wrong(&error))?,
        };
        let is_own = |word: &str| stage.pipeline.edges().iter().any(|edge| edge.names_outcome(word));
        let outcome = StageOutcome::from_json_with(&text, is_own);
        return outcome.map(Some).map_err(|error| wrong(&error.message()));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_directory_uses_visit_of_its_manager() {
        let of = |run: &str| of_child(Path::new("d"), run).display().to_string();
        assert_eq!(of("r.watch.2"), "d/watch/2.1/child");
        assert_eq!(of("r.watch.2.deep.1"), "d/watch/2.1/child/deep/1.1/child");
        assert_eq!(of("r"), "d");
        assert_eq!(of("v1.2"), "d");
        assert!(!of("r./../../etc.1").contains("/../"), "{}", of("r./../../etc.1"));
    }
}
