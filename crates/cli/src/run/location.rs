//! The location of a run: the store with its log, and its directory with files for people.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrata::store::{At, Order, Page, RunHead, RunQuery};
use ferrata::{
    CheckpointStore, Clock, IdSource, RandomIds, RunId, RunKey, RunStatus, Runtime, SystemClock, TenantId,
    WorkflowName,
};
use ferrata_dot::run_dir::{Manifest, RunDirectory};

use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::output::quoted;
use crate::store;

/// The default folder for directories of runs.
const RUNS: &str = ".ferrata/runs";

/// Number of the newest runs among which an unfinished run is searched.
const LOOKED_AT: u32 = 20;

/// The location of a run.
#[derive(Debug)]
pub(super) struct RunLocation {
    pub(super) store: Arc<dyn CheckpointStore>,
    /// The directory that the command line names.
    given: Option<PathBuf>,
    /// The URL of the store, if the store is inside the directory.
    inside: Option<String>,
    /// The run to which the directory belongs, according to its manifest.
    of: Option<RunKey>,
}

impl RunLocation {
    /// Finds the location from the options. Nothing is written.
    pub(super) fn of(context: &CommandContext, run_dir: Option<&Path>) -> Result<Self, CommandFailure> {
        let Some(directory) = run_dir else {
            return Ok(Self {
                store: store::open(&context.global.store)?,
                given: None,
                inside: None,
                of: None,
            });
        };
        let given = Some(directory.to_owned());
        // A damaged manifest names no run. If the store has several runs, the user must choose one with `--id`.
        let of =
            RunDirectory::manifest(directory).ok().flatten().map(|manifest| key(&manifest)).transpose()?;
        let implied = std::env::var("FERRATA_STORE").unwrap_or_else(|_| store::DEFAULT.to_owned());
        if context.global.store != implied {
            return Ok(Self { store: store::open(&context.global.store)?, given, inside: None, of });
        }
        let url = store::of_folder(&RunDirectory::store_directory(directory));
        Ok(Self { store: store::open(&url)?, given, inside: Some(url), of })
    }

    /// Returns the directory of a run.
    pub(super) fn directory(&self, run: &RunKey) -> PathBuf {
        match (&self.given, &self.of) {
            // Another run gets a directory next to it, so that the views of the directory's own run stay unchanged.
            (Some(directory), Some(of)) if of != run => RunDirectory::beside(directory, run),
            (Some(directory), _) => directory.clone(),
            (None, _) => default_directory(run),
        }
    }

    /// Returns a command about a run, with the options that find the run again.
    pub(super) fn command(&self, verb: &str, run: &RunKey, more: &str) -> String {
        let mut command = format!("ferrata {verb} {}", quoted(&display_key(run)));
        if !more.is_empty() {
            command.push(' ');
            command.push_str(more);
        }
        if let Some(url) = &self.inside {
            command.push_str(" --store ");
            command.push_str(&quoted(url));
        }
        command
    }

    /// Returns the command that resumes a run.
    pub(super) fn resume(&self, run: &RunKey) -> String {
        match &self.given {
            Some(directory) => {
                let directory = quoted(&directory.display().to_string());
                match &self.of {
                    Some(of) if of != run => {
                        format!("ferrata resume {directory} --id {}", quoted(&display_key(run)))
                    }
                    _ => format!("ferrata resume {directory}"),
                }
            }
            None => self.command("resume", run, ""),
        }
    }

    /// Finds the run of the directory; `None` if the directory has no run yet.
    pub(super) async fn only(&self, context: &CommandContext) -> Result<Option<RunHead>, CommandFailure> {
        let Some(directory) = &self.given else { return Ok(None) };
        if let Some(of) = &self.of {
            // Use exactly this run, even if it is unreadable and one of its forks is readable.
            return match self.store.head(of).await? {
                Some(head) => Ok(Some(head)),
                None if self.inside.is_none() => Ok(None),
                None => {
                    let message = format!(
                        "the directory `{}` belongs to run {}, which is not in its store",
                        directory.display(),
                        display_key(of)
                    );
                    Err(CommandFailure::new(ExitReason::NotFound, message, self.listing()))
                }
            };
        }
        if self.inside.is_none() || !RunDirectory::store_directory(directory).exists() {
            return Ok(None);
        }
        let mut found = runs(&*self.store, context, None).await?;
        // The original run of a directory has no parent. A single fork may be there because the original run is unreadable.
        let forked = match found.as_slice() {
            [only] => self.is_fork(only).await?,
            _ => false,
        };
        if found.len() > 1 || forked {
            let ids = found.iter().map(|head| display_key(&head.run)).collect::<Vec<_>>();
            let message = match found.len() {
                1 => format!(
                    "the directory `{}` has no manifest, and its only run is a fork; name it with --id",
                    directory.display()
                ),
                count => {
                    format!("the directory `{}` has {count} runs; name one with --id", directory.display())
                }
            };
            let next = format!("{} --id {}", self.resume(&found[0].run), quoted(&ids[0]));
            return Err(CommandFailure::usage(message, next).with_details(ids));
        }
        Ok(found.pop())
    }

    /// Returns whether a run was forked from another run.
    async fn is_fork(&self, head: &RunHead) -> Result<bool, CommandFailure> {
        let runtime = Runtime::builder_with(Arc::clone(&self.store)).operator();
        Ok(runtime.checkpoint(&head.run, At::Latest).await?.parent.is_some())
    }

    /// Returns the command that lists the runs of the store.
    fn listing(&self) -> String {
        match &self.inside {
            Some(url) => format!("ferrata ls --store {}", quoted(url)),
            None => "ferrata ls".to_owned(),
        }
    }

    /// Finds the newest unfinished run of a pipeline that no process drives.
    pub(super) async fn find_resumable(
        &self,
        context: &CommandContext,
        pipeline: &str,
    ) -> Result<Option<RunHead>, CommandFailure> {
        let mut query = RunQuery::default();
        query.tenant = context.global.tenant.clone();
        query.workflow = Some(WorkflowName::new(pipeline)?);
        query.statuses = vec![RunStatus::InProgress, RunStatus::Interrupted, RunStatus::AwaitingInput];
        let page = Page::first(LOOKED_AT).with_order(Order::NewestFirst);
        let found = self.store.runs(&query, page).await?;
        Ok(found.items.into_iter().find(|head| !head.owner_alive))
    }

    /// Finds the unfinished run of a pipeline, if there is exactly one.
    pub(super) async fn unfinished(
        &self,
        context: &CommandContext,
        pipeline: &str,
    ) -> Result<RunHead, CommandFailure> {
        let mut found = runs(&*self.store, context, Some(pipeline)).await?;
        found.retain(|head| !matches!(head.status, RunStatus::Completed | RunStatus::Cancelled));
        match found.len() {
            0 => {
                let message = format!("cannot find an unfinished run of `{pipeline}`");
                Err(CommandFailure::new(ExitReason::NotFound, message, "ferrata ls"))
            }
            1 => Ok(found.remove(0)),
            count => {
                let message = format!("{count} runs of `{pipeline}` are unfinished; name one");
                let ids =
                    found.iter().take(10).map(|head| format!("{}  {}", display_key(&head.run), head.status));
                let next = self.resume(&found[0].run);
                Err(CommandFailure::new(ExitReason::Conflict, message, next)
                    .with_details(ids.collect::<Vec<_>>()))
            }
        }
    }
}

/// Returns the key of the run that a manifest names.
pub(crate) fn key(manifest: &Manifest) -> Result<RunKey, CommandFailure> {
    Ok(RunKey::new(TenantId::new(&*manifest.tenant)?, RunId::new(&*manifest.run_id)?))
}

/// Returns the default directory of a run.
pub(crate) fn default_directory(run: &RunKey) -> PathBuf {
    let mut directory = PathBuf::from(RUNS);
    if *run != RunKey::from(run.run.clone()) {
        directory.push(run.tenant.as_str());
    }
    directory.join(run.run.as_str())
}

async fn runs(
    store: &dyn CheckpointStore,
    context: &CommandContext,
    workflow: Option<&str>,
) -> Result<Vec<RunHead>, CommandFailure> {
    let mut query = RunQuery::default();
    query.tenant = context.global.tenant.clone();
    query.workflow = workflow.map(WorkflowName::new).transpose()?;
    let mut page = Page::first(Page::MAX).with_order(Order::NewestFirst);
    let mut found = Vec::new();
    loop {
        let listed = store.runs(&query, page).await?;
        found.extend(listed.items);
        match listed.next {
            Some(next) => page = Page::first(Page::MAX).with_order(Order::NewestFirst).with_cursor(next),
            None => return Ok(found),
        }
    }
}

/// Creates the id of a new run. The id is readable and short enough to type.
pub(super) fn new_id(pipeline: &str) -> Result<RunId, CommandFailure> {
    let clock = SystemClock::new();
    let random = RandomIds::new().next(clock.now()).simple().to_string();
    let name: String = pipeline.chars().take(60).collect();
    Ok(RunId::new(format!("{name}-{}", &random[random.len() - 8..]))?)
}
