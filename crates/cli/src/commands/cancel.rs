//! `cancel`: stops runs for good.

use crate::args::CancelArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) async fn run(context: &Context, args: &CancelArgs) -> Result<Exit, Failure> {
    let named = args.target.runs.join(" ");
    context.confirm(
        args.yes,
        &format!("cancel {named} for good"),
        &format!("ferrata cancel {named} --yes"),
    )?;
    context.say(&args.target, "cancel asked", |runtime, run| runtime.cancel(run, args.reason.clone())).await
}
