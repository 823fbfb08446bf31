//! The command `wait` waits until a run is idle or has ended.

use std::time::Duration;

use ferrata::store::RunHead;
use ferrata::{CheckpointStore, Clock};

use crate::args::WaitArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::idle_warnings::{TAKE_UP, is_idle, why_idle};

/// Interval of polls. Each poll is one small read of the store.
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn run(context: &CommandContext, args: &WaitArgs) -> Result<ExitReason, CommandFailure> {
    let store = context.store()?;
    let head = context.find(&*store, &args.run).await?;
    let name = display_key(&head.run);
    let over = async {
        match args.timeout {
            Some(timeout) => context.clock.sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let head = tokio::select! {
        head = wait_until_idle(context, &*store, head.clone(), args.to_end) => head?,
        () = over => {
            let now = store.head(&head.run).await?.filter(is_idle);
            let message = match now {
                Some(head) => format!("the timeout expired; {}", why_idle(&*store, &head).await?),
                None => format!("run {name} is still active"),
            };
            return Err(CommandFailure::new(ExitReason::TimedOut, message, format!("ferrata show {name}")));
        }
        result = tokio::signal::ctrl_c() => {
            result.map_err(|error| CommandFailure::internal("cannot listen for Ctrl-C", &error))?;
            let message = format!("stopped waiting; run {name} continues");
            return Err(CommandFailure::new(ExitReason::Interrupted, message, format!("ferrata wait {name}")));
        }
    };
    context.out.one(&head, |_| name.clone(), |head| format!("{name} {}\n", head.status))?;
    Ok(ExitReason::for_status(head.status).unwrap_or(ExitReason::Done))
}

/// Returns when the run is idle. With `to_end`, returns only when the run has ended.
async fn wait_until_idle(
    context: &CommandContext,
    store: &dyn CheckpointStore,
    mut head: RunHead,
    to_end: bool,
) -> Result<RunHead, CommandFailure> {
    let told_at = context.clock.monotonic().saturating_add(TAKE_UP);
    let mut told = context.global.quiet;
    loop {
        let rests = ExitReason::for_status(head.status).is_some();
        if rests && (!to_end || head.status.is_finished()) {
            return Ok(head);
        }
        if !told && is_idle(&head) && context.clock.monotonic() >= told_at {
            context.out.note(&why_idle(store, &head).await?);
            told = true;
        }
        context.clock.sleep(LOOK).await;
        let gone = || {
            let error = ferrata::Error::new(
                ferrata::ErrorKind::NotFound,
                "the run was purged while the command waited",
            );
            CommandFailure::from(error.with_run(&head.run)).or_type("ferrata ls")
        };
        head = store.head(&head.run).await?.ok_or_else(gone)?;
    }
}
