//! A backend that runs any command: the task is its standard input, the answer its standard output or a file.

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

/// The files in which a command may leave its outcome. The first that exists counts.
const STATUS_FILES: [&str; 2] = ["status.json", "outcome.json"];

/// Working directory of an attempt, inside its directory of a run directory.
pub(crate) const STAGE: &str = "stage";

/// Working directory of a manager's child, inside the directory of the manager's first attempt.
const CHILD: &str = "child";

/// Maximum size of such a file.
const MAX_STATUS: u64 = 1 << 20;

/// Maximum size of an answer in the context: equal to that of a prompt file, and small enough for several answers in one record.
const MAX_ANSWER: usize = 1 << 20;

/// Runs a command for each task.
///
/// - The standard input is the prompt, after the summary of the run so far. The environment has `FERRATA_LLM_MODEL`, `FERRATA_LLM_PROVIDER`,
///   `FERRATA_REASONING_EFFORT`, `FERRATA_NODE_TYPE`, `FERRATA_FIDELITY`, `FERRATA_THREAD`, the commands of tool hooks as `FERRATA_TOOL_HOOK_PRE` and
///   `_POST`, and the variables of a [`Tool`](super::Tool).
/// - With a [directory for its files](Self::with_stage_directory), the environment has `FERRATA_STAGE_DIR`, a directory of the attempt with the
///   prompt as `prompt.md`. If the command leaves a `status.json` or `outcome.json` there, that file is the outcome, whatever the exit status. It
///   must be a regular file of at most 1 MiB and not a link; anything else with that name is a failure.
/// - The standard output is the answer, with or without such a file and for any exit status. The context stores its first 1 MiB, and a run directory
///   stores a longer answer completely.
/// - Without a file, exit status 0 is success, 75 requests a retry, and any other status fails. If status 0 comes without an answer, the status is
///   missing: a success if the node has `auto_status`, otherwise a failure.
#[derive(Clone, Debug)]
pub struct CommandBackend {
    line: String,
    setting: CommandSetting,
}

setters!(CommandBackend);

/// The location of the attempts' directories.
#[derive(Clone, Debug)]
pub(super) enum Stages {
    /// Below this directory, shared by runs of any tenant.
    Shared(PathBuf),
    /// In the directory of the run.
    OfRun(PathBuf),
    /// In the directory of the parent run, grouped by the managers that started these runs.
    OfChildren(PathBuf),
}

impl Stages {
    /// Returns the variables with the paths of earlier nodes' artifacts.
    pub(super) fn artifacts(&self, stage: &Stage) -> Vec<(OsString, OsString)> {
        match self {
            // A relative path starts at the process's directory, as does that of the attempt.
            Self::OfRun(root) => std::path::absolute(root)
                .map_or_else(|_| Vec::new(), |root| artifacts_of_attempt::variables(&root, &stage.context)),
            Self::Shared(_) | Self::OfChildren(_) => Vec::new(),
        }
    }

    /// Returns the directory for the complete outputs of an attempt.
    pub(super) fn whole_place(&self, stage: &Stage) -> Option<WholePlace> {
        let (Self::Shared(root) | Self::OfRun(root) | Self::OfChildren(root)) = self;
        let root = std::path::absolute(root).ok()?;
        let (directory, is_artifact) = match self {
            Self::Shared(_) => (shared_stage(&root, stage), false),
            Self::OfRun(_) => (root.join(ARTIFACTS), true),
            // The contexts of children name no artifacts: the directory belongs to another run.
            Self::OfChildren(_) => (root.join(ARTIFACTS), false),
        };
        Some(WholePlace { root, directory, is_artifact })
    }

    /// Creates the directory of an attempt and removes files of an interrupted attempt. The small files are written on this thread, which costs less
    /// than handing them to another.
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

/// Returns the directory of an attempt below a directory that runs of any tenant share.
fn shared_stage(root: &Path, stage: &Stage) -> PathBuf {
    let (cx, run) = (&stage.cx, stage.cx.run());
    let attempt = format!("{}.{}", cx.visit(), cx.attempt());
    root.join(run.tenant.as_str()).join(run.run.as_str()).join(cx.node().as_str()).join(attempt)
}

/// Returns the directory for a child's attempts in the directory of its parent, by the visit of the manager that started the child. A child's id
/// consists of the parent's id, the manager and the visit, joined by dots.
fn of_child(root: &Path, run: &str) -> PathBuf {
    let mut parts: Vec<&str> = run.split('.').collect();
    let mut managers = Vec::new();
    while let [_, .., node, visit] = parts[..]
        // A restarted child has a number after the visit.
        && let Ok(visit) = visit.split('-').next().unwrap_or(visit).parse::<u32>()
    {
        managers.push((node, visit));
        parts.truncate(parts.len() - 2);
    }
    let within = |root: PathBuf, (node, visit)| RunDirectory::attempt(&root, node, visit, 1).join(CHILD);
    managers.into_iter().rev().fold(root.to_owned(), within)
}

impl CommandBackend {
    /// Creates a backend that runs `line` with `sh -c`.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), setting: CommandSetting::new(KeepPolicy::Beginning(MAX_ANSWER)) }
    }

    /// Sets the directory for the attempts' directories: `{tenant}/{run}/{node}/{visit}.{attempt}`.
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

/// Returns the outcome for an exit status if the command left no outcome file; `None` for success.
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

/// Creates the working directory of an attempt with its task, and removes the outcome of an interrupted attempt.
fn make_stage(root: &Path, path: &Path, (name, asked): (&str, &str)) -> std::io::Result<()> {
    files::write(root, &path.join(name), asked.as_bytes())?;
    for name in STATUS_FILES {
        files::remove(root, &path.join(name))?;
    }
    Ok(())
}

/// Creates it in the directory of a run, which also shows the task of the attempt.
///
/// The attempt works in a directory apart from its views: after a retry of the run, a new attempt can have the number of one in the log, whose view
/// may be written at any time.
fn make_stage_of_run(root: &Path, stage: &Stage, asked: (&str, &str)) -> std::io::Result<PathBuf> {
    let cx = &stage.cx;
    let attempt = RunDirectory::attempt(root, cx.node().as_str(), cx.visit().get(), cx.attempt());
    files::write(root, &attempt.join(asked.0), asked.1.as_bytes())?;
    let path = attempt.join(STAGE);
    make_stage(root, &path, asked)?;
    artifacts_of_attempt::clear(&path)?;
    Ok(path)
}

/// Reads the outcome file of a command.
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
