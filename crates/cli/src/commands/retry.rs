//! The command `retry` retries the failed nodes of runs.

use ferrata::RunStatus;

use crate::args::RetryArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

pub(super) async fn run(context: &CommandContext, args: &RetryArgs) -> Result<ExitReason, CommandFailure> {
    let store = context.store()?;
    let chosen =
        context.select_runs(&*store, &args.target.runs, &args.target.filter, &[RunStatus::Failed]).await?;
    context.signal_runs(&args.target, "retry requested", chosen, |runtime, run| runtime.retry(run)).await
}
