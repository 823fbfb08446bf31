//! Sends a signal to many runs. Each run is tried, and the exit code is the code of the first refusal.

use std::pin::pin;

use ferrata::runtime::SignalRequest;
use ferrata::{RunKey, Runtime};
use ferrata_core::wording::count;
use futures_util::StreamExt as _;
use serde::Serialize;

use crate::args::TargetArgs;
use crate::choose::{RunSelector, SelectedRuns};
use crate::concurrent::each;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::run_tree::RunTree;
use crate::table::Table;

/// Maximum number of runs for which the command counts the runs below them.
const FAMILIES: usize = 10;

/// The result of a signal for one run.
#[derive(Debug, Serialize)]
pub(crate) struct BulkOutcome {
    run: RunKey,
    done: &'static str,
}

impl BulkOutcome {
    /// Creates the result for a run that accepted the signal.
    pub(crate) fn new(run: RunKey, done: &'static str) -> Self {
        Self { run, done }
    }
}

impl CommandContext {
    /// Selects the runs, sends the signal to each, and prints the runs that accepted it.
    pub(crate) async fn signal_runs(
        &self,
        target: &TargetArgs,
        done: &'static str,
        chosen: SelectedRuns,
        what: impl Fn(&Runtime, &RunKey) -> SignalRequest,
    ) -> Result<ExitReason, CommandFailure> {
        self.signal_and_list(target, done, chosen, what).await.map(|(_, exit)| exit)
    }

    /// Does the same as [`signal_runs`](Self::signal_runs), and returns the runs that accepted the signal.
    pub(crate) async fn signal_and_list(
        &self,
        target: &TargetArgs,
        done: &'static str,
        chosen: SelectedRuns,
        what: impl Fn(&Runtime, &RunKey) -> SignalRequest,
    ) -> Result<(Vec<RunKey>, ExitReason), CommandFailure> {
        let runtime = self.runtime()?;
        if target.dry_run {
            return self
                .print_chosen(&**runtime.store(), &chosen)
                .await
                .map(|()| (Vec::new(), ExitReason::Done));
        }
        let say = async |meant: &RunSelector| {
            let run = self.find_meant(&**runtime.store(), meant).await?.run;
            let request = what(&runtime, &run);
            let request = match &target.by {
                Some(by) => request.by(by.clone()),
                None => request,
            };
            request.await?;
            Ok::<_, CommandFailure>(run)
        };
        let (mut told, mut refused, mut written) = (Vec::new(), None, Ok(()));
        let mut said = pin!(each(&chosen.runs, |meant| Box::pin(say(meant))));
        while let Some(said) = said.next().await {
            match said {
                Ok(run) => {
                    let one = BulkOutcome::new(run, done);
                    if self.out.is_stream() && written.is_ok() {
                        written = self.print_done(std::slice::from_ref(&one));
                    }
                    told.push(one);
                }
                Err(failure) if chosen.runs.len() == 1 => return Err(failure),
                Err(failure) => {
                    self.out.failure(&failure, &self.global);
                    refused.get_or_insert(failure.exit());
                }
            }
        }
        // Report an output failure only now, after all signals were sent.
        written?;
        if !self.out.is_stream() {
            self.print_done(&told)?;
        }
        self.warn_idle(&**runtime.store(), told.iter().map(|done| &done.run)).await;
        Ok((told.into_iter().map(|done| done.run).collect(), refused.unwrap_or(ExitReason::Done)))
    }

    /// Reports how many runs below these runs the signal also reaches.
    pub(crate) async fn report_descendants(&self, runs: &[RunKey], what: &str) {
        // The count needs one listing for each run.
        if self.global.quiet || runs.len() > FAMILIES {
            return;
        }
        if let Err(failure) = self.count_descendants(runs, what).await {
            self.warn_unread(&failure);
        }
    }

    async fn count_descendants(&self, runs: &[RunKey], what: &str) -> Result<(), CommandFailure> {
        let runtime = self.runtime()?;
        for run in runs {
            let Some(head) = runtime.store().head(run).await? else { continue };
            let below = match RunTree::below(&**runtime.store(), head).await?.bound() {
                0 => continue,
                below => count(below, "run"),
            };
            self.out.note(&format!("{what} with it: {below} below {}", display_key(run)));
            self.next(&format!("ferrata tree {}", display_key(run)));
        }
        Ok(())
    }

    /// Prints the results of the signals.
    pub(crate) fn print_done(&self, done: &[BulkOutcome]) -> Result<(), CommandFailure> {
        self.out.all(
            done,
            |one| display_key(&one.run),
            |all| {
                let mut table = Table::new(["RUN", "DONE"]);
                all.iter().for_each(|one| table.row([display_key(&one.run).into(), one.done.into()]));
                table
            },
        )
    }
}
