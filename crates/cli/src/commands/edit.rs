//! The command `edit` changes the state of a run.

use crate::args::EditArgs;
use crate::bulk_signal::BulkOutcome;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;

pub(super) async fn run(context: &CommandContext, args: &EditArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let head = context.find(&**runtime.store(), &args.run).await?;
    let name = display_key(&head.run);
    if args.changes.is_empty() {
        let next = format!("ferrata edit {name} --set CHANNEL=VALUE");
        return Err(CommandFailure::usage(
            "the command has no changes; add --set, --remove or --patch",
            next,
        ));
    }
    let state = runtime.channels_at(&head.run, ferrata::Position::Latest).await?;
    let patch = args.changes.patch(&head.run, &state)?;
    let request = runtime.edit(&head.run, patch);
    match &args.by {
        Some(by) => request.by(by.clone()).await?,
        None => request.await?,
    }
    context.next(&format!("ferrata diff {name} {}", head.seq));
    context.print_done(&[BulkOutcome::new(head.run, "edited")])?;
    Ok(ExitReason::Done)
}
