//! The command `pause` pauses runs until `unpause`.

use ferrata::{RunKey, Runtime};

use super::cancel::UNFINISHED;
use crate::args::PauseArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

pub(super) async fn run(context: &CommandContext, args: &PauseArgs) -> Result<ExitReason, CommandFailure> {
    let store = context.store()?;
    let chosen = context.select_runs(&*store, &args.target.runs, &args.target.filter, &UNFINISHED).await?;
    let pause = |runtime: &Runtime, run: &RunKey| runtime.pause(run, args.reason.clone());
    let (paused, exit) = context.signal_and_list(&args.target, "paused", chosen, pause).await?;
    context.report_descendants(&paused, "paused").await;
    Ok(exit)
}
