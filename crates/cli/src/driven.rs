//! Whether any process moves a run: what is recorded for a run that no process serves has no effect until one does.

use std::time::Duration;

use ferrata::store::{Page, RunHead, RunQuery};
use ferrata::{CheckpointStore, Clock, RunKey, RunStatus};

use crate::context::Context;
use crate::failure::Failure;
use crate::find::shown;
use crate::output::quoted;
use crate::table::clean_lines;

/// How long a process that serves the workflow is given to take a run up: it looks for such runs every second unless set otherwise.
pub(crate) const TAKE_UP: Duration = Duration::from_secs(2);

/// How often it is looked whether it did.
const LOOK: Duration = Duration::from_millis(50);

/// The label under which a pipeline keeps where its file is: such a run is resumed by this command.
pub(crate) const PIPELINE: &str = "ferrata.file";

/// Tells whether a run is to go on now and no live process drives it.
pub(crate) fn is_idle(head: &RunHead) -> bool {
    head.status == RunStatus::InProgress && !head.owner_alive && head.wake_at.is_none()
}

impl Context {
    /// Says of runs for which something was recorded that no process takes them up, if none does within a moment.
    pub(crate) async fn tell_idle(
        &self,
        store: &dyn CheckpointStore,
        runs: impl IntoIterator<Item = &RunKey>,
    ) {
        // It would have no reader; and what was forked from a copy of a damaged log is not in this store.
        if self.global.quiet || self.real_store.is_some() {
            return;
        }
        if let Err(failure) = self.look_for_idle(store, runs).await {
            self.tell_unseen(&failure);
        }
    }

    /// Says that a look after something was recorded failed. It is no failure of the command: a script would record the same again.
    pub(crate) fn tell_unseen(&self, failure: &Failure) {
        let why = clean_lines(failure.message());
        self.out.note(&format!("it is recorded; what comes of it cannot be seen: {why}"));
    }

    async fn look_for_idle(
        &self,
        store: &dyn CheckpointStore,
        runs: impl IntoIterator<Item = &RunKey>,
    ) -> Result<(), Failure> {
        let until = self.clock.monotonic().saturating_add(TAKE_UP);
        let mut idle = Vec::new();
        for run in runs {
            if let Some(head) = self.idle(store, run, until).await? {
                idle.push(head);
            }
        }
        match idle.as_slice() {
            [] => {}
            [one] => self.out.note(&why_idle(store, one).await?),
            [first, rest @ ..] => {
                let more = format!("; nor {} others", rest.len());
                self.out.note(&format!("{}{more}", why_idle(store, first).await?));
            }
        }
        Ok(())
    }

    /// Returns the head of a run that no process has taken up by then.
    async fn idle(
        &self,
        store: &dyn CheckpointStore,
        run: &RunKey,
        until: Duration,
    ) -> Result<Option<RunHead>, Failure> {
        loop {
            match store.head(run).await?.filter(is_idle) {
                None => return Ok(None),
                Some(head) if self.clock.monotonic() >= until => return Ok(Some(head)),
                Some(_) => self.clock.sleep(LOOK).await,
            }
        }
    }
}

/// Says that no process drives a run, and what would.
pub(crate) async fn why_idle(store: &dyn CheckpointStore, head: &RunHead) -> Result<String, Failure> {
    let (name, workflow) = (shown(&head.run), &head.facts.workflow);
    if head.facts.labels.get(PIPELINE).is_some() {
        return Ok(format!("no process drives {name}; `ferrata resume {}` does", quoted(&name)));
    }
    let mut others = RunQuery::default();
    others.workflow = Some(workflow.clone());
    others.statuses = vec![RunStatus::InProgress];
    // A store lists the processes that have runs, and no idle ones.
    let found = store.runs(&others, Page::first(Page::MAX)).await?;
    Ok(match found.items.iter().any(|head| head.owner_alive) {
        true => {
            format!("no process has claimed {name} yet; a live process drives other runs of `{workflow}`")
        }
        // Idle processes are in no listing.
        false => format!(
            "no process has claimed {name} yet; an idle process that serves `{workflow}` claims it at its next sweep; if there is none, start one"
        ),
    })
}
