//! `goto`: moves a run to other nodes.

use crate::args::GotoArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::find::shown;
use crate::say::BulkOutcome;
use crate::table::clean;

pub(super) async fn run(context: &Context, args: &GotoArgs) -> Result<Exit, Failure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let (name, nodes) = (shown(&run), clean(&args.nodes.join(" ")));
    let what = format!("drop the unfinished activations of {name} and continue at {nodes}");
    context.confirm(args.yes, &what, &format!("ferrata goto {name} {nodes} --reason TEXT --yes"))?;
    let request = runtime.go_to(&run, args.nodes.clone(), args.reason.clone());
    match &args.by {
        Some(by) => request.by(by.clone()).await?,
        None => request.await?,
    }
    context.print_done(&[BulkOutcome::new(run.clone(), "moved")])?;
    context.tell_idle(&**runtime.store(), [&run]).await;
    Ok(Exit::Done)
}
