//! `pause`: pauses runs until they are unpaused.

use ferrata::{RunKey, Runtime};

use super::cancel::UNFINISHED;
use crate::args::PauseArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: &PauseArgs) -> Result<Exit, Failure> {
    let store = context.store()?;
    let chosen = context.chosen(&*store, &args.target.runs, &args.target.filter, &UNFINISHED).await?;
    let pause = |runtime: &Runtime, run: &RunKey| runtime.pause(run, args.reason.clone());
    let (paused, exit) = context.say_to(&args.target, "paused", chosen, pause).await?;
    context.tell_below(&paused, "paused").await;
    Ok(exit)
}
