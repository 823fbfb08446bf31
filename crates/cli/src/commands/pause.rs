//! `pause`: stops runs until they are let go on.

use super::cancel::UNFINISHED;
use crate::args::PauseArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: &PauseArgs) -> Result<Exit, Failure> {
    let store = context.store()?;
    let chosen = context.chosen(&*store, &args.target.runs, &args.target.filter, &UNFINISHED).await?;
    context.say(&args.target, "paused", chosen, |runtime, run| runtime.pause(run, args.reason.clone())).await
}
