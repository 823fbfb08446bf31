//! The command `import` reads a run from a file into the store.

use ferrata::{RunId, RunKey};

use crate::args::ImportArgs;
use crate::bulk_signal::BulkOutcome;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;
use crate::input;

pub(super) async fn run(context: &CommandContext, args: &ImportArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = ferrata::Runtime::builder_with(context.new_store()?).operator();
    let text = input::text(&args.file)?;
    let run = match &args.id {
        Some(id) => {
            let tenant = context.global.tenant.clone().unwrap_or_default();
            Some(RunKey::new(tenant, RunId::new(id)?))
        }
        // A tenant on the command line takes precedence over the tenant in the file.
        None => context.global.tenant.clone().zip(named(&text)).map(|(tenant, run)| RunKey::new(tenant, run)),
    };
    runtime.store().setup().await?;
    let run = runtime.import(&text, run).await.map_err(|error| {
        let taken = error.kind() == ferrata::ErrorKind::AlreadyExists;
        let failure = CommandFailure::from(error);
        if taken { failure.or_type(format!("ferrata import {} --id another", args.file)) } else { failure }
    })?;
    context.next(&format!("ferrata show {}", display_key(&run)));
    context.print_done(&[BulkOutcome::new(run, "imported")])?;
    Ok(ExitReason::Done)
}

/// Returns the id of the run in the file, if the first line contains it.
fn named(text: &str) -> Option<RunId> {
    let title: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
    RunId::new(title["run"]["run"].as_str()?).ok()
}
