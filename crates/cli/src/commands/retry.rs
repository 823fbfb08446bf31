//! `retry`: has what failed tried again.

use crate::args::RetryArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: &RetryArgs) -> Result<Exit, Failure> {
    context.say(&args.target, "retry asked", |runtime, run| runtime.retry(run)).await
}
