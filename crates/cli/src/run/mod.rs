//! The commands `run` and `resume`, which run pipelines.

mod answers;
mod drive;
mod dry;
mod input;
mod job;
mod load;
pub(crate) mod location;
mod progress;
mod report;
mod restore;
mod resume;
mod signals;
mod views;

use std::path::{Path, PathBuf};

use ferrata::store::RunHead;
use ferrata::{RunId, RunKey, RunStatus};
use ferrata_dot::run_dir::RunDirectory;

use self::job::{DriveJob, StartKind};
use self::load::LoadedPipeline;
use self::location::RunLocation;
pub(crate) use self::signals::Signals;
use crate::args::{ResumeArgs, RunArgs};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::quoted;

/// The labels that record how a run was started.
const FILE: &str = "ferrata.file";
const DIRECTORY: &str = "ferrata.dir";
pub(crate) const BACKEND: &str = "ferrata.backend";

/// Values of the last label: a command performs the tasks, or there is no backend.
const BY_COMMAND: &str = "command";
const SIMULATED: &str = "simulated";

/// Runs a pipeline, or continues an unfinished run of it.
pub(crate) async fn run(context: &CommandContext, mut args: RunArgs) -> Result<ExitReason, CommandFailure> {
    let mut signals = Signals::listen()?;
    let (file, directory, resumes) = places(&mut args)?;
    if let Some(wrong) = args.variables.iter().find(|one| one.starts_with('@')) {
        let message = format!("--var: `{}` is not of the form KEY=VALUE", wrong.escape_debug());
        return Err(CommandFailure::usage(message, "ferrata run --help"));
    }
    args.input.append(&mut args.variables);
    args.input.extend(args.goal.as_deref().map(input::goal));
    let input = input::input(&args.input)?;
    let labels = input::labels(&args.label)?;
    if args.dry_run {
        return dry::run(context, LoadedPipeline::read(&file, None)?, input).await;
    }
    let prepared = async {
        let loaded = LoadedPipeline::read(&file, kept_folder(&file, directory.as_deref()))?;
        let place = RunLocation::of(context, directory.as_deref())?;
        let given = args.id.as_deref().map(RunId::new).transpose()?;
        let key = |id: RunId| RunKey::new(context.global.tenant.clone().unwrap_or_default(), id);
        let found = match &given {
            Some(id) if resumes => {
                let run = key(id.clone());
                let missing = || missing(&run, &place);
                Some(place.store.head(&run).await?.ok_or_else(missing)?)
            }
            Some(_) => None,
            None => match place.only(context).await {
                Ok(None) if resumes && directory.is_none() => {
                    Some(place.unfinished(context, loaded.pipeline.name()).await?)
                }
                gone @ (Ok(None) | Err(_)) if resumes => {
                    return match restart_from_checkpoint(
                        context,
                        &loaded,
                        &place,
                        directory.as_deref(),
                        gone.err(),
                    )
                    .await?
                    {
                        Some((run, kind)) => Ok((loaded, place, run, kind)),
                        None => Err(nothing_to_resume(directory.as_deref(), &file)),
                    };
                }
                found => found?,
            },
        };
        let (run, kind) = match found {
            Some(head) if resumes && (!args.input.is_empty() || !args.label.is_empty()) => {
                let message =
                    "a resumed run keeps its input, goal and labels; leave out --input, --goal and --label";
                return Err(CommandFailure::usage(message, place.resume(&head.run)));
            }
            Some(head) if resumes => (head.run, StartKind::Resume),
            Some(head) => return Err(taken_failure(&head, &place)),
            None if given.is_none()
                && directory.is_none()
                && offer_resume(context, &place, &loaded, &args).await?.is_some() =>
            {
                // The user was asked and agreed.
                let head = place.find_resumable(context, loaded.pipeline.name()).await?;
                (head.ok_or_else(|| nothing_to_resume(None, &file))?.run, StartKind::Resume)
            }
            None => {
                let id = match given {
                    Some(id) => id,
                    None => location::new_id(loaded.pipeline.name())?,
                };
                (key(id), StartKind::Start { input, labels })
            }
        };
        Ok((loaded, place, run, kind))
    };
    let (loaded, place, run, kind) = tokio::select! {
        prepared = prepared => prepared?,
        () = signals.next() => return Err(left_early_failure()),
    };
    Box::pin(drive::drive(context, DriveJob::new(loaded, place, run, kind, args.how), signals)).await
}

/// Starts the run again from the checkpoint in a directory whose log does not exist. `why` is the error of the store.
async fn restart_from_checkpoint(
    context: &CommandContext,
    loaded: &LoadedPipeline,
    place: &RunLocation,
    directory: Option<&Path>,
    why: Option<CommandFailure>,
) -> Result<Option<(RunKey, StartKind)>, CommandFailure> {
    if let Some(failure) = why
        && failure.exit() != ExitReason::NotFound
    {
        return Err(failure);
    }
    let Some(restored) = restore::read(loaded, directory)? else { return Ok(None) };
    let run = restore::run(context, place, loaded, &restored).await?;
    Ok(Some((run, StartKind::Restore(Box::new(restored)))))
}

/// Finds an unfinished run of the pipeline, and asks whether to continue it. Without a terminal, only reports the run.
async fn offer_resume(
    context: &CommandContext,
    place: &RunLocation,
    loaded: &LoadedPipeline,
    args: &RunArgs,
) -> Result<Option<()>, CommandFailure> {
    // A start with an input is a different run. If the store cannot be reached, the start reports it.
    if !args.input.is_empty() || !args.label.is_empty() {
        return Ok(None);
    }
    let Ok(Some(head)) = place.find_resumable(context, loaded.pipeline.name()).await else { return Ok(None) };
    let run = crate::find::display_key(&head.run);
    let told = format!("run {run} of this pipeline has not ended; it is {}", head.status);
    match context.ask(&format!("{told}. Resume it? [Y/n] "))? {
        Some(line) if ["n", "no"].contains(&line.to_lowercase().as_str()) => Ok(None),
        _ if context.is_attended() => Ok(Some(())),
        _ => {
            context.out.note(&format!(
                "{told}. Starting a new run; `{}` resumes the other",
                place.resume(&head.run)
            ));
            Ok(None)
        }
    }
}

/// Continues a run.
pub(crate) async fn resume(context: &CommandContext, args: ResumeArgs) -> Result<ExitReason, CommandFailure> {
    let mut signals = Signals::listen()?;
    let prepared = async {
        let directory = Path::new(&args.run);
        let is_directory = directory.is_dir();
        let place = RunLocation::of(context, is_directory.then_some(directory))?;
        if args.id.is_none() && is_directory {
            let found = place.only(context).await;
            if !matches!(found, Ok(Some(_))) {
                let kept = RunDirectory::source_path(directory);
                let file = args.file.clone().or_else(|| Some(kept).filter(|kept| kept.is_file()));
                let Some(file) = file else {
                    let missing = || nothing_to_resume(Some(directory), Path::new("FILE.dot"));
                    return Err(found.err().unwrap_or_else(missing));
                };
                let folder = kept_folder(&file, Some(directory));
                // If the log exists but is unreadable, do not start the run again.
                let loaded = LoadedPipeline::read(&file, folder)?;
                let begun =
                    restart_from_checkpoint(context, &loaded, &place, Some(directory), found.err()).await?;
                let (run, kind) = begun.ok_or_else(|| nothing_to_resume(Some(directory), &file))?;
                return Ok((loaded, place, run, kind));
            }
        }
        let head = match (&args.id, is_directory) {
            (Some(id), true) => context.find(&*place.store, id).await?,
            (Some(_), false) => {
                let message =
                    "--id selects a run of a directory, and the argument is not a directory; leave out --id";
                return Err(CommandFailure::usage(message, "ferrata resume --help"));
            }
            (None, true) => place
                .only(context)
                .await?
                .ok_or_else(|| nothing_to_resume(Some(directory), Path::new("FILE.dot")))?,
            (None, false) => context.find(&*place.store, &args.run).await?,
        };
        let (file, folder) = source(&args, &head, &place)?;
        let loaded = LoadedPipeline::read(&file, folder)?;
        Ok::<_, CommandFailure>((loaded, place, head.run, StartKind::Resume))
    };
    let (loaded, place, run, kind) = tokio::select! {
        prepared = prepared => prepared?,
        () = signals.next() => return Err(left_early_failure()),
    };
    Box::pin(drive::drive(context, DriveJob::new(loaded, place, run, kind, args.how), signals)).await
}

/// Finds out which words of the command line are the file and the directory.
fn places(args: &mut RunArgs) -> Result<(PathBuf, Option<PathBuf>, bool), CommandFailure> {
    let (mut file, mut directory) = (args.file.take(), args.run_dir.take());
    let resumes = args.resume.is_some();
    if let Some(Some(named)) = args.resume.take() {
        // If `--resume FILE.dot` ends the command line, the option has taken the file as its value.
        if file.is_none() && !named.is_dir() {
            file = Some(named);
        } else if directory.as_ref().is_some_and(|directory| *directory != named) {
            let message = "--run-dir and --resume name different directories; use one";
            return Err(CommandFailure::usage(message, "ferrata run --help"));
        } else {
            directory = Some(named);
        }
    }
    if let (None, true, Some(directory)) = (&file, resumes, &directory) {
        file = Some(RunDirectory::source_path(directory)).filter(|path| path.exists());
    }
    match file {
        Some(file) => Ok((file, directory, resumes)),
        None => {
            Err(CommandFailure::usage("the command has no pipeline; name its file", "ferrata run --help"))
        }
    }
}

/// Finds the pipeline file with which to continue a run, and the folder of the files that it names. The folder is that of the original file, because
/// a copy is elsewhere.
fn source(
    args: &ResumeArgs,
    head: &RunHead,
    place: &RunLocation,
) -> Result<(PathBuf, Option<PathBuf>), CommandFailure> {
    if let Some(file) = &args.file {
        return Ok((file.clone(), None));
    }
    let of_start = head.facts.labels.get(FILE).map(PathBuf::from);
    let folder = of_start.as_deref().and_then(Path::parent).map(Path::to_owned);
    let directory = place.directory(&head.run);
    // A run in a directory next to another run's directory usually has the same pipeline.
    let kept = [Some(directory.as_path()), directory.parent().and_then(Path::parent)];
    let kept = kept.into_iter().flatten().map(RunDirectory::source_path).find(|path| path.is_file());
    if let Some(found) = kept.or_else(|| of_start.filter(|path| path.is_file())) {
        return Ok((found, folder));
    }
    let message = format!("cannot find the file of the pipeline `{}`; name it", head.facts.workflow);
    Err(CommandFailure::new(
        ExitReason::NotFound,
        message,
        format!("{} --file FILE.dot", place.resume(&head.run)),
    ))
}

/// Returns the folder of the run's original file, if `file` is the copy in the run's directory.
fn kept_folder(file: &Path, directory: Option<&Path>) -> Option<PathBuf> {
    let directory = directory.filter(|directory| RunDirectory::source_path(directory) == file)?;
    let manifest = RunDirectory::manifest(directory).ok()??;
    Path::new(manifest.labels.get(FILE)?).parent().map(Path::to_owned)
}

fn left_early_failure() -> CommandFailure {
    CommandFailure::new(ExitReason::Interrupted, "stopped before the run changed", "ferrata ls")
}

fn missing(run: &RunKey, place: &RunLocation) -> CommandFailure {
    let error = ferrata::Error::new(ferrata::ErrorKind::NotFound, "cannot find a run to resume");
    CommandFailure::from(error.with_run(run)).or_type(if place.store.capabilities().durable {
        "ferrata ls"
    } else {
        "ferrata run --help"
    })
}

fn nothing_to_resume(directory: Option<&Path>, file: &Path) -> CommandFailure {
    let directory = directory.unwrap_or(Path::new(".")).display().to_string();
    let message = format!("cannot find a run to resume in `{directory}`");
    let start =
        format!("ferrata run {} --run-dir {}", quoted(&file.display().to_string()), quoted(&directory));
    CommandFailure::new(ExitReason::NotFound, message, start)
}

/// Creates the failure for a directory that already belongs to a run.
fn taken_failure(head: &RunHead, place: &RunLocation) -> CommandFailure {
    let (run, status) = (&head.run.run, head.status);
    let message = format!(
        "the directory already has the run {run}, which is {status}; resume it, or name another directory"
    );
    let next = match status {
        RunStatus::Completed | RunStatus::Cancelled => place.command("show", &head.run, ""),
        _ => place.resume(&head.run),
    };
    CommandFailure::new(ExitReason::Conflict, message, next)
}
