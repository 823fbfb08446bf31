//! The command `cancel` cancels runs.

use ferrata::{RunKey, RunStatus, Runtime};

use crate::args::CancelArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

/// The statuses of runs that can be cancelled or paused.
pub(super) const UNFINISHED: [RunStatus; 3] =
    [RunStatus::InProgress, RunStatus::Interrupted, RunStatus::AwaitingInput];

pub(super) async fn run(context: &CommandContext, args: &CancelArgs) -> Result<ExitReason, CommandFailure> {
    let store = context.store()?;
    let chosen = context.select_runs(&*store, &args.target.runs, &args.target.filter, &UNFINISHED).await?;
    if !args.target.dry_run && !chosen.runs.is_empty() {
        // Suggest the same command with `--yes`. Leave out the names of the runs, which may be many.
        let next = match chosen.by_filter {
            true => "ferrata cancel .. --yes".to_owned(),
            false => format!("ferrata cancel {} --yes", args.target.runs.join(" ")),
        };
        context.confirm(args.yes, &format!("cancel {} for good", chosen.describe()), &next)?;
    }
    let cancel = |runtime: &Runtime, run: &RunKey| runtime.cancel(run, args.reason.clone());
    context.signal_runs(&args.target, "cancel requested", chosen, cancel).await
}
