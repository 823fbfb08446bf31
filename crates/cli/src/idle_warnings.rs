//! Warns about runs that no process drives. A new record of such a run has no effect until a process drives the run.

use std::time::Duration;

use ferrata::store::{Page, RunHead, RunQuery};
use ferrata::{CheckpointStore, Clock, RunKey, RunStatus};

use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::output::quoted;
use crate::table::clean_lines;

/// Time within which a process that serves the workflow normally claims a run. By default, processes poll for such runs every second.
pub(crate) const TAKE_UP: Duration = Duration::from_secs(2);

/// Interval of the checks whether a process has claimed the run.
const LOOK: Duration = Duration::from_millis(50);

/// The label that contains the file of a pipeline. `ferrata resume` continues a run with this label.
pub(crate) const PIPELINE: &str = "ferrata.file";

/// Returns whether a run could continue now but no live process drives it.
pub(crate) fn is_idle(head: &RunHead) -> bool {
    head.status == RunStatus::InProgress && !head.owner_alive && head.wake_at.is_none()
}

impl CommandContext {
    /// Warns about the runs with a new record that no process claims within a moment.
    pub(crate) async fn warn_idle(
        &self,
        store: &dyn CheckpointStore,
        runs: impl IntoIterator<Item = &RunKey>,
    ) {
        // With `--quiet`, nobody would read the warning. A fork of a damaged log's copy is not in this store.
        if self.global.quiet || self.real_store.is_some() {
            return;
        }
        if let Err(failure) = self.find_idle(store, runs).await {
            self.warn_unread(&failure);
        }
    }

    /// Reports a read that failed after a record was made. The command still succeeds. Otherwise a script would repeat it and make the record again.
    pub(crate) fn warn_unread(&self, failure: &CommandFailure) {
        let why = clean_lines(failure.message());
        self.out.note(&format!("the change is recorded, but its effect cannot be read: {why}"));
    }

    async fn find_idle(
        &self,
        store: &dyn CheckpointStore,
        runs: impl IntoIterator<Item = &RunKey>,
    ) -> Result<(), CommandFailure> {
        let until = self.clock.monotonic().saturating_add(TAKE_UP);
        let mut idle = Vec::new();
        for run in runs {
            if let Some(head) = self.wait_until_claimed(store, run, until).await? {
                idle.push(head);
            }
        }
        match idle.as_slice() {
            [] => {}
            [one] => self.out.note(&why_idle(store, one).await?),
            [first, rest @ ..] => {
                let more = format!("; the same holds for {} more", rest.len());
                self.out.note(&format!("{}{more}", why_idle(store, first).await?));
            }
        }
        Ok(())
    }

    /// Returns the head of a run if no process has claimed the run in time.
    async fn wait_until_claimed(
        &self,
        store: &dyn CheckpointStore,
        run: &RunKey,
        until: Duration,
    ) -> Result<Option<RunHead>, CommandFailure> {
        loop {
            match store.head(run).await?.filter(is_idle) {
                None => return Ok(None),
                Some(head) if self.clock.monotonic() >= until => return Ok(Some(head)),
                Some(_) => self.clock.sleep(LOOK).await,
            }
        }
    }
}

/// Explains that no process drives a run, and what to do.
pub(crate) async fn why_idle(store: &dyn CheckpointStore, head: &RunHead) -> Result<String, CommandFailure> {
    let (name, workflow) = (display_key(&head.run), &head.facts.workflow);
    if head.facts.labels.get(PIPELINE).is_some() {
        return Ok(format!("no process drives {name}; `ferrata resume {}` does", quoted(&name)));
    }
    let mut others = RunQuery::default();
    others.workflow = Some(workflow.clone());
    others.statuses = vec![RunStatus::InProgress];
    // A store lists only processes that have runs.
    let found = store.runs(&others, Page::first(Page::MAX)).await?;
    Ok(match found.items.iter().any(|head| head.owner_alive) {
        true => {
            format!("no process has claimed {name} yet; a live process drives other runs of `{workflow}`")
        }
        // Processes without runs are in no listing.
        false => format!(
            "no process has claimed {name} yet; an idle process that serves `{workflow}` claims it at its next sweep; if there is none, start one"
        ),
    })
}
