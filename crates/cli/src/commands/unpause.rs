//! `unpause`: lets paused runs go on.

use crate::args::UnpauseArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: &UnpauseArgs) -> Result<Exit, Failure> {
    context.say(&args.target, "unpaused", |runtime, run| runtime.unpause(run)).await
}
