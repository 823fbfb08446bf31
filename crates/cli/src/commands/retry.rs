//! `retry`: retries failed nodes.

use ferrata::RunStatus;

use crate::args::RetryArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: &RetryArgs) -> Result<Exit, Failure> {
    let store = context.store()?;
    let chosen =
        context.chosen(&*store, &args.target.runs, &args.target.filter, &[RunStatus::Failed]).await?;
    context.say(&args.target, "retry requested", chosen, |runtime, run| runtime.retry(run)).await
}
