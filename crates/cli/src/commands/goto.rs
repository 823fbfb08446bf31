//! The command `goto` moves a run to other nodes.

use crate::args::GotoArgs;
use crate::bulk_signal::BulkOutcome;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::table::clean;

pub(super) async fn run(context: &CommandContext, args: &GotoArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let (name, nodes) = (display_key(&run), clean(&args.nodes.join(" ")));
    let what = format!("drop the unfinished activations of {name} and continue at {nodes}");
    context.confirm(args.yes, &what, &format!("ferrata goto {name} {nodes} --reason TEXT --yes"))?;
    let request = runtime.go_to(&run, args.nodes.clone(), args.reason.clone());
    match &args.by {
        Some(by) => request.by(by.clone()).await?,
        None => request.await?,
    }
    context.print_done(&[BulkOutcome::new(run.clone(), "moved")])?;
    context.warn_idle(&**runtime.store(), [&run]).await;
    Ok(ExitReason::Done)
}
