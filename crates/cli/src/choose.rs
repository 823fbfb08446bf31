//! Selects the runs for a command: named individually, or selected by a filter.

use std::fmt;

use ferrata::runtime::{RunOrigin, is_skipped_in_bulk};
use ferrata::store::{Page, RunHead};
use ferrata::{CheckpointStore, RunKey, RunStatus};
use ferrata_core::wording::count;
use futures_util::TryStreamExt as _;

use crate::args::FilterArgs;
use crate::commands::ls::{query, table};
use crate::concurrent::each;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::input;
use crate::output::OutputFormat;
use crate::unreadable::UnreadableRuns;

/// How a command names a run.
pub(crate) enum RunSelector {
    /// A typed word: an id, or the beginning of one.
    Named(String),
    /// Exactly this run. If it no longer exists, no other run whose id begins in the same way is selected.
    Exactly(RunKey),
}

impl fmt::Display for RunSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Exactly(run) => f.write_str(&display_key(run)),
        }
    }
}

/// The runs that a command acts on.
pub(crate) struct SelectedRuns {
    pub(crate) runs: Vec<RunSelector>,
    /// Whether a filter selected the runs.
    pub(crate) by_filter: bool,
}

impl SelectedRuns {
    /// Describes the selection in a few words.
    pub(crate) fn describe(&self) -> String {
        match (self.by_filter, self.runs.len()) {
            (false, _) => self.runs.iter().map(RunSelector::to_string).collect::<Vec<_>>().join(" "),
            (true, runs) => count(runs, "run"),
        }
    }
}

impl CommandContext {
    /// Returns the selected runs. If the filter has no status, it selects the statuses to which the command applies.
    pub(crate) async fn select_runs(
        &self,
        store: &dyn CheckpointStore,
        named: &[String],
        filter: &FilterArgs,
        is_for: &[RunStatus],
    ) -> Result<SelectedRuns, CommandFailure> {
        if !named.is_empty() {
            return Ok(SelectedRuns { runs: self.parse_selectors(named)?, by_filter: false });
        }
        let heads = self.matching(store, filter, is_for).await?;
        if heads.is_empty() && self.out.format == OutputFormat::Table {
            self.out.note("no matching runs");
        }
        Ok(SelectedRuns {
            runs: heads.into_iter().map(|head| RunSelector::Exactly(head.run)).collect(),
            by_filter: true,
        })
    }

    /// Parses the words that name runs. For `-`, reads run ids from stdin, one per line; another command printed them in full.
    fn parse_selectors(&self, words: &[String]) -> Result<Vec<RunSelector>, CommandFailure> {
        let mut all = Vec::new();
        for word in words {
            if word != "-" {
                all.push(RunSelector::Named(word.clone()));
                continue;
            }
            let lines = input::text("-")?;
            for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
                all.push(RunSelector::Exactly(self.parse_full_id(line)?));
            }
        }
        Ok(all)
    }

    /// Prints the selected runs and changes nothing.
    pub(crate) async fn print_chosen(
        &self,
        store: &dyn CheckpointStore,
        chosen: &SelectedRuns,
    ) -> Result<(), CommandFailure> {
        let heads: Vec<_> =
            each(&chosen.runs, |meant| Box::pin(self.find_meant(store, meant))).try_collect().await?;
        let (now, time) = (self.now(), self.out.time);
        self.out.all(
            &heads,
            |head| display_key(&head.run),
            |heads| table(heads.iter(), |_| None, |at| time.write(at, now)),
        )?;
        self.out.note("dry run, nothing changed; leave out --dry-run to execute");
        Ok(())
    }

    async fn matching(
        &self,
        store: &dyn CheckpointStore,
        filter: &FilterArgs,
        is_for: &[RunStatus],
    ) -> Result<Vec<RunHead>, CommandFailure> {
        let mut query = query(self, store, filter).await?;
        if query.statuses.is_empty() && !filter.orphaned {
            query.statuses = is_for.to_vec();
        }
        let (mut heads, mut page) = (Vec::new(), Page::first(Page::MAX));
        let mut unreadable = UnreadableRuns::default();
        loop {
            let found = unreadable.page(store, &query, page).await?;
            heads.extend(found.items);
            let Some(next) = found.next else { break };
            page = Page::first(Page::MAX).with_cursor(next);
        }
        if let Some(failure) = unreadable.failure("they are not selected") {
            self.out.note(&failure.lines());
        }
        if filter.roots {
            heads.retain(RunOrigin::is_root);
        }
        // A command for all runs does not act on queues and schedules.
        heads.retain(|head| filter.workflow.is_some() || !is_skipped_in_bulk(head));
        Ok(heads)
    }
}
