//! The command `unpause` ends the pause of runs.

use ferrata::RunStatus;

use crate::args::UnpauseArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

pub(super) async fn run(context: &CommandContext, args: &UnpauseArgs) -> Result<ExitReason, CommandFailure> {
    let store = context.store()?;
    let chosen = context
        .select_runs(&*store, &args.target.runs, &args.target.filter, &[RunStatus::Interrupted])
        .await?;
    let (unpaused, exit) = context
        .signal_and_list(&args.target, "unpaused", chosen, |runtime, run| runtime.unpause(run))
        .await?;
    context.report_descendants(&unpaused, "unpaused").await;
    Ok(exit)
}
