//! The command `prune` drops old records of one run.

use ferrata::RetentionPolicy;
use ferrata_core::wording::count;
use serde_json::json;

use crate::args::{Keep, PruneArgs};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::find::display_key;

pub(super) async fn run(context: &CommandContext, args: &PruneArgs) -> Result<ExitReason, CommandFailure> {
    let runtime = context.runtime()?;
    let run = context.find(&**runtime.store(), &args.run).await?.run;
    let name = display_key(&run);
    let Some(policy) = policy(&args.keep) else {
        let message = "the command does not state what to keep; add --keep-last, --keep-for or --keep-bytes";
        return Err(CommandFailure::usage(message, format!("ferrata prune {name} --keep-last 100")));
    };
    let removed = match args.yes {
        true => runtime.apply_retention(&run, &policy).await?,
        false => runtime.preview_retention(&run, &policy).await?,
    };
    let (records, bytes) = (removed.records, removed.bytes);
    let value = json!({ "run": run, "records": records, "bytes": bytes, "dry_run": !args.yes });
    let did = if args.yes { "dropped" } else { "would drop" };
    context.out.one(
        &value,
        |_| name.clone(),
        |_| format!("{name}: {did} {}, {}\n", count(records, "record"), count(bytes, "byte")),
    )?;
    if !args.yes {
        context.out.note("dry run, nothing dropped; add --yes to drop");
    }
    Ok(ExitReason::Done)
}

/// Returns the retention policy that the options set; `None` if no option is given.
pub(super) fn policy(keep: &Keep) -> Option<RetentionPolicy> {
    let mut policy = RetentionPolicy::keep_all();
    if let Some(records) = keep.keep_last {
        policy = policy.keep_last(records);
    }
    if let Some(age) = keep.keep_for {
        policy = policy.keep_for(age);
    }
    if let Some(bytes) = keep.keep_bytes {
        policy = policy.keep_bytes(bytes);
    }
    let limited = keep.keep_last.is_some() || keep.keep_for.is_some() || keep.keep_bytes.is_some();
    limited.then_some(policy)
}
