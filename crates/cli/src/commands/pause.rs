//! `pause`: stops runs until they are let go on.

use crate::args::PauseArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: &PauseArgs) -> Result<Exit, Failure> {
    context.say(&args.target, "paused", |runtime, run| runtime.pause(run, args.reason.clone())).await
}
