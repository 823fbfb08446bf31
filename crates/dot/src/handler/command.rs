//! A backend that is any command: the task on its standard input, the answer on its standard output or in a file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::capture::{KeepPolicy, OutputSource, WholePlace};
use super::codergen::{Answer, Backend, Request};
use super::hooks;
use super::inherit::Inherit;
use super::process::{ProcessEnd, Shell, run};
use super::setting::{Setting, setters};
use super::tool::{TEMPORARY, directory, environment, last_line};
use super::{HandlerError, Stage};
use crate::outcome::{StageOutcome, Status};
use crate::run_dir::files::{self, ARTIFACTS};
use crate::run_dir::{RunDirectory, left};

/// The files in which a command may leave its outcome, the first that is there counts.
const STATUS_FILES: [&str; 2] = ["status.json", "outcome.json"];

/// Where an attempt works, in its directory of a run directory.
pub(crate) const STAGE: &str = "stage";

/// Where the child of a manager works, in the directory of the manager's first attempt.
const CHILD: &str = "child";

/// How large such a file may be.
const MAX_STATUS: u64 = 1 << 20;

/// How much of an answer the context holds: as much as a prompt of a file may have, and little enough for some of them in one record.
const MAX_ANSWER: usize = 1 << 20;

/// Runs a command for each task.
///
/// - The prompt is on its standard input, after what the task is told of the run so far. `FERRATA_LLM_MODEL`,
///   `FERRATA_LLM_PROVIDER`, `FERRATA_REASONING_EFFORT`, `FERRATA_NODE_TYPE`, `FERRATA_FIDELITY`, `FERRATA_THREAD` and the
///   commands of tool hooks as `FERRATA_TOOL_HOOK_PRE` and `_POST` are in its environment, and all that a
///   [`Tool`](super::Tool) finds there.
/// - With a [directory for its files](Self::with_stage_directory), it finds `FERRATA_STAGE_DIR`, a directory of the attempt's
///   own with the prompt as `prompt.md`. If it leaves a `status.json` or `outcome.json` there, that is the outcome, whatever
///   the exit status. It must be a file of at most 1 MiB, and no link to one; anything else of that name is a failure.
/// - What it prints is the answer, whether or not it leaves such a file and however it ends. The context holds the first 1 MiB of it, and a
///   run directory keeps the whole of a longer one.
/// - Without a file, exit status 0 is success, 75 asks for a retry, and another one fails. With status 0 and no answer there is no status:
///   a success if the node has `auto_status`, otherwise a failure.
#[derive(Clone, Debug)]
pub struct CommandBackend {
    line: String,
    setting: Setting,
}

setters!(CommandBackend);

/// Where attempts get their directories.
#[derive(Clone, Debug)]
pub(super) enum Stages {
    /// Below this one, runs of any tenant side by side.
    Shared(PathBuf),
    /// In the directory of the run.
    OfRun(PathBuf),
    /// In the directory of the run whose children these runs are, by the managers that started them.
    OfChildren(PathBuf),
}

impl Stages {
    /// Returns the variables that say where the artifacts of the nodes before are.
    pub(super) fn artifacts(&self, stage: &Stage) -> Vec<(OsString, OsString)> {
        match self {
            // A relative one is one of the process, like that of the attempt.
            Self::OfRun(root) => std::path::absolute(root)
                .map_or_else(|_| Vec::new(), |root| left::variables(&root, &stage.context)),
            Self::Shared(_) | Self::OfChildren(_) => Vec::new(),
        }
    }

    /// Returns where outputs of an attempt are kept whole.
    pub(super) fn whole_place(&self, stage: &Stage) -> Option<WholePlace> {
        let (Self::Shared(root) | Self::OfRun(root) | Self::OfChildren(root)) = self;
        let root = std::path::absolute(root).ok()?;
        let (directory, is_artifact) = match self {
            Self::Shared(_) => (shared_stage(&root, stage), false),
            Self::OfRun(_) => (root.join(ARTIFACTS), true),
            // Their contexts name no artifacts: the directory is that of another run.
            Self::OfChildren(_) => (root.join(ARTIFACTS), false),
        };
        Some(WholePlace { root, directory, is_artifact })
    }

    /// Makes the directory of an attempt, without what an attempt that was cut off left there. Some small files at once: less
    /// than handing them to another thread costs.
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

/// Returns the directory of an attempt below one that runs of any tenant share.
fn shared_stage(root: &Path, stage: &Stage) -> PathBuf {
    let (cx, run) = (&stage.cx, stage.cx.run());
    let attempt = format!("{}.{}", cx.visit(), cx.attempt());
    root.join(run.tenant.as_str()).join(run.run.as_str()).join(cx.node().as_str()).join(attempt)
}

/// Returns where the attempts of a child belong in the directory of its parent: with the visit of the manager that started it. The id of a
/// child is that of its parent, the manager and the visit, joined by dots.
fn of_child(root: &Path, run: &str) -> PathBuf {
    let mut parts: Vec<&str> = run.split('.').collect();
    let mut managers = Vec::new();
    while let [_, .., node, visit] = parts[..]
        // One that was started anew has the number of that behind it.
        && let Ok(visit) = visit.split('-').next().unwrap_or(visit).parse::<u32>()
    {
        managers.push((node, visit));
        parts.truncate(parts.len() - 2);
    }
    let within = |root: PathBuf, (node, visit)| RunDirectory::attempt(&root, node, visit, 1).join(CHILD);
    managers.into_iter().rev().fold(root.to_owned(), within)
}

impl CommandBackend {
    /// Runs this by `sh -c`.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), setting: Setting::new(KeepPolicy::Beginning(MAX_ANSWER)) }
    }

    /// Sets where each attempt gets a directory: `{tenant}/{run}/{node}/{visit}.{attempt}` below this one.
    #[must_use]
    pub fn with_stage_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.setting.stages = Some(Stages::Shared(directory.into()));
        self
    }
}

#[async_trait]
impl Backend for CommandBackend {
    async fn run(&self, request: Request<'_>) -> Result<Answer, HandlerError> {
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
        environment.extend(hooks::told(stage));
        environment.extend(self.setting.stages.iter().flat_map(|stages| stages.artifacts(stage)));
        if let Some(files) = &files {
            environment.push(("FERRATA_STAGE_DIR".into(), files.into()));
        }
        let shell = Shell {
            line: self.line.clone(),
            program: "sh",
            directory: directory(stage, self.setting.directory.as_deref())?,
            environment,
            inherit: Inherit::all(),
            input: request.prompt.as_bytes().to_vec(),
            printed: stage.printed.clone(),
            pulse: stage.pulse.clone(),
        };
        self.setting.begin_output(stage, OutputSource::Backend);
        let finished = run(shell, &stage.cx).await;
        let finished = finished.map_err(|lost| lost.of("the backend"))?;
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
                Err(HandlerError::no_status("the backend left neither an answer nor a status"))
            }
            None => Ok(Answer::text(output)),
            Some(outcome) => Ok(Answer::outcome(outcome).with_text(output)),
        }
    }
}

/// Returns what an exit status says of a task whose command left no outcome; `None` for success.
fn by_status(finished: &ProcessEnd, output: &str, errors: &str) -> Option<StageOutcome> {
    let status = match finished.status.code() {
        Some(0) => return None,
        Some(TEMPORARY) => Status::Retry,
        _ => Status::Fail,
    };
    let how = finished.how();
    let mut outcome = StageOutcome::new(status);
    outcome.is_exit_status = true;
    outcome.failure_reason = match last_line(errors).or_else(|| last_line(output)) {
        Some(line) => format!("the backend {how}: {line}"),
        None => format!("the backend {how}"),
    };
    Some(outcome)
}

/// Makes the directory in which an attempt works, with what it is asked to do, and without an outcome that an attempt which was cut
/// off left there.
fn make_stage(root: &Path, path: &Path, (name, asked): (&str, &str)) -> std::io::Result<()> {
    files::write(root, &path.join(name), asked.as_bytes())?;
    for name in STATUS_FILES {
        files::remove(root, &path.join(name))?;
    }
    Ok(())
}

/// Makes it in the directory of a run, which also shows what the attempt is asked to do.
///
/// The attempt works apart from its views: an attempt that is made anew after a retry of the run has the number of one that the log
/// knows, and the view of that outcome may be written at any time.
fn make_stage_of_run(root: &Path, stage: &Stage, asked: (&str, &str)) -> std::io::Result<PathBuf> {
    let cx = &stage.cx;
    let attempt = RunDirectory::attempt(root, cx.node().as_str(), cx.visit().get(), cx.attempt());
    files::write(root, &attempt.join(asked.0), asked.1.as_bytes())?;
    let path = attempt.join(STAGE);
    make_stage(root, &path, asked)?;
    left::clear(&path)?;
    Ok(path)
}

/// Reads the outcome that a command left.
pub(super) fn status_in(directory: &Path, stage: &Stage) -> Result<Option<StageOutcome>, HandlerError> {
    for name in STATUS_FILES {
        let path = directory.join(name);
        let wrong = |what: &dyn std::fmt::Display| HandlerError::permanent(format!("{name}: {what}"));
        let text = match files::read(directory, &path, MAX_STATUS) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                return Err(wrong(&format_args!("it is too large; at most {MAX_STATUS} bytes are read")));
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
    fn a_child_works_with_the_visit_of_the_manager_that_started_it() {
        let of = |run: &str| of_child(Path::new("d"), run).display().to_string();
        assert_eq!(of("r.watch.2"), "d/watch/2.1/child");
        assert_eq!(of("r.watch.2.deep.1"), "d/watch/2.1/child/deep/1.1/child");
        assert_eq!(of("r"), "d");
        assert_eq!(of("v1.2"), "d");
        assert!(!of("r./../../etc.1").contains("/../"), "{}", of("r./../../etc.1"));
    }
}
