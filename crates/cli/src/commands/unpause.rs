//! `unpause`: unpauses runs.

use ferrata::RunStatus;

use crate::args::UnpauseArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: &UnpauseArgs) -> Result<Exit, Failure> {
    let store = context.store()?;
    let chosen =
        context.chosen(&*store, &args.target.runs, &args.target.filter, &[RunStatus::Interrupted]).await?;
    let (unpaused, exit) =
        context.say_to(&args.target, "unpaused", chosen, |runtime, run| runtime.unpause(run)).await?;
    context.tell_below(&unpaused, "unpaused").await;
    Ok(exit)
}
