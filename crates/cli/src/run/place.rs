//! Where a run is kept: its log, and its directory for people.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrata::store::{Order, Page, RunHead, RunQuery};
use ferrata::{
    CheckpointStore, Clock, IdSource, RandomIds, RunId, RunKey, RunStatus, SystemClock, WorkflowName,
};
use ferrata_dot::run_dir::RunDirectory;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::find::shown;
use crate::output::quoted;
use crate::store;

/// Where the directories of runs are unless `--run-dir` says.
const RUNS: &str = ".ferrata/runs";

/// Where a run is kept.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) store: Arc<dyn CheckpointStore>,
    /// The directory that was named.
    given: Option<PathBuf>,
    /// The URL of the store, if it is in the directory.
    inside: Option<String>,
}

impl Place {
    /// Finds the place that the options name. Nothing is written.
    pub(super) fn of(context: &Context, run_dir: Option<&Path>) -> Result<Self, Failure> {
        let Some(directory) = run_dir else {
            return Ok(Self { store: context.store()?, given: None, inside: None });
        };
        let given = Some(directory.to_owned());
        let implied = std::env::var("FERRATA_STORE").unwrap_or_else(|_| store::DEFAULT.to_owned());
        if context.global.store != implied {
            return Ok(Self { store: context.store()?, given, inside: None });
        }
        let url = store::of_folder(&RunDirectory::store_directory(directory));
        Ok(Self { store: store::open(&url)?, given, inside: Some(url) })
    }

    /// Returns the directory of a run.
    pub(super) fn directory(&self, run: &RunKey) -> PathBuf {
        self.given.clone().unwrap_or_else(|| {
            let tenant = Path::new(RUNS);
            let tenant = if *run == RunKey::from(run.run.clone()) {
                tenant.to_owned()
            } else {
                tenant.join(run.tenant.as_str())
            };
            tenant.join(run.run.as_str())
        })
    }

    /// Writes a command about a run, with what it needs to find it.
    pub(super) fn command(&self, verb: &str, run: &RunKey, more: &str) -> String {
        let mut command = format!("ferrata {verb} {}", quoted(&shown(run)));
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

    /// Writes the command that goes on with a run.
    pub(super) fn resume(&self, run: &RunKey) -> String {
        match &self.given {
            Some(directory) => format!("ferrata resume {}", quoted(&directory.display().to_string())),
            None => self.command("resume", run, ""),
        }
    }

    /// Finds the run of the directory; `None` if there is none yet.
    pub(super) async fn only(&self, context: &Context) -> Result<Option<RunHead>, Failure> {
        let Some(directory) = &self.given else { return Ok(None) };
        if self.inside.is_none() {
            // The log is elsewhere, and the directory says of which run it is.
            let Ok(text) = std::fs::read(directory.join("manifest.json")) else { return Ok(None) };
            let manifest: ferrata_dot::run_dir::Manifest =
                serde_json::from_slice(&text).map_err(|error| {
                    let message = format!("{}/manifest.json cannot be read: {error}", directory.display());
                    Failure::new(Exit::Internal, message, "ferrata run --help")
                })?;
            return Ok(self.store.head(&RunKey::try_from(manifest.run_id.as_str())?).await?);
        }
        if !RunDirectory::store_directory(directory).exists() {
            return Ok(None);
        }
        let mut found = runs(&*self.store, context, None).await?;
        if found.len() > 1 {
            let ids = found.iter().map(|head| shown(&head.run)).collect::<Vec<_>>();
            let message = format!("{} holds {} runs; name one with --id", directory.display(), found.len());
            return Err(Failure::usage(message, "ferrata run --help").with_details(ids));
        }
        Ok(found.pop())
    }

    /// Finds the one run of a pipeline that has not ended.
    pub(super) async fn unfinished(&self, context: &Context, pipeline: &str) -> Result<RunHead, Failure> {
        let mut found = runs(&*self.store, context, Some(pipeline)).await?;
        found.retain(|head| !matches!(head.status, RunStatus::Completed | RunStatus::Cancelled));
        match found.len() {
            0 => {
                let message = format!("there is no run of `{pipeline}` that has not ended");
                Err(Failure::new(Exit::NotFound, message, "ferrata ls"))
            }
            1 => Ok(found.remove(0)),
            count => {
                let message = format!("{count} runs of `{pipeline}` have not ended; name one");
                let ids = found.iter().take(10).map(|head| format!("{}  {}", shown(&head.run), head.status));
                let next = self.resume(&found[0].run);
                Err(Failure::new(Exit::Conflict, message, next).with_details(ids.collect::<Vec<_>>()))
            }
        }
    }
}

async fn runs(
    store: &dyn CheckpointStore,
    context: &Context,
    workflow: Option<&str>,
) -> Result<Vec<RunHead>, Failure> {
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

/// Makes up the id of a run: readable, and short enough to type.
pub(super) fn new_id(pipeline: &str) -> Result<RunId, Failure> {
    let clock = SystemClock::new();
    let random = RandomIds::new().next(clock.now()).simple().to_string();
    let name: String = pipeline.chars().take(60).collect();
    Ok(RunId::new(format!("{name}-{}", &random[random.len() - 8..]))?)
}
