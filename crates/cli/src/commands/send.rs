//! The command `send` sends a message to a run.

use serde_json::Value;

use crate::args::SendArgs;
use crate::bulk_signal::BulkOutcome;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::input;

pub(super) async fn run(context: &CommandContext, args: &SendArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let text = input::value(&args.value)?;
    let message = if args.text { Value::String(text) } else { input::json_or_text(&text) };
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let mut request = runtime.send(&run, &message);
    if let Some(key) = &args.key {
        request = request.key(key.clone());
    }
    match &args.by {
        Some(by) => request.by(by.clone()).await?,
        None => request.await?,
    }
    context.print_done(&[BulkOutcome::new(run.clone(), "sent")])?;
    context.warn_idle(&**runtime.store(), [&run]).await;
    Ok(ExitReason::Done)
}
