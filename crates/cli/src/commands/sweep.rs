//! The command `sweep` drops old records of all runs, and whole runs that ended long ago.

use ferrata::RetentionPolicy;
use ferrata::runtime::SweepLimits;
use ferrata_core::wording::count;
use serde_json::json;

use super::prune::policy;
use crate::args::SweepArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;

pub(super) async fn run(context: &CommandContext, args: &SweepArgs) -> Result<ExitReason, CommandFailure> {
    if context.global.tenant.is_some() {
        let message = "a sweep covers the runs of all tenants; leave out --tenant";
        return Err(CommandFailure::usage(message, "ferrata sweep --help"));
    }
    let pruning = policy(&args.keep);
    if pruning.is_none() && args.purge.is_empty() {
        let message = "nothing to do; add --keep-last, --keep-for, --keep-bytes or --purge";
        return Err(CommandFailure::usage(message, "ferrata sweep --purge completed=30d"));
    }
    let mut policy = pruning.unwrap_or_else(RetentionPolicy::keep_all);
    policy = policy.only(args.only.iter().flat_map(|status| status.meant()).copied());
    for (status, age) in &args.purge {
        for &status in status.meant() {
            policy = policy.purge_after(status, *age);
        }
    }
    let runtime = context.runtime()?;
    let mut limits = if args.gentle { SweepLimits::gentle() } else { SweepLimits::default() };
    let (mut runs, mut pruned, mut purged, mut records, mut bytes) = (0, 0, 0, 0, 0);
    let mut failed = Vec::new();
    let progress = context.out.progress();
    loop {
        let swept = runtime.sweep(&policy, limits.clone(), !args.yes).await;
        let report = swept.inspect_err(|_| progress.finish_and_clear())?;
        runs += report.runs;
        pruned += report.pruned;
        purged += report.purged;
        records += report.records;
        bytes += report.bytes;
        failed.extend(report.failed);
        progress.set_message(format!("read {}", count(runs, "run")));
        progress.tick();
        match report.next {
            Some(next) => limits = limits.with_cursor(next),
            None => break,
        }
    }
    progress.finish_and_clear();
    let value = json!({
        "runs": runs, "pruned": pruned, "purged": purged, "records": records, "bytes": bytes,
        "failed": failed.iter().map(|(run, error)| json!({ "run": run, "error": error.to_string() })).collect::<Vec<_>>(),
        "dry_run": !args.yes,
    });
    let would = if args.yes { "" } else { "would have " };
    context.out.one(
        &value,
        |_| purged.to_string(),
        |_| {
            format!(
                "runs read: {runs}; {would}removed: {purged}, {would}pruned: {pruned}; records dropped: {records}, bytes: {bytes}\n"
            )
        },
    )?;
    if !args.yes {
        context.out.note("dry run, nothing dropped; add --yes to drop");
    }
    let Some((run, _)) = failed.first() else { return Ok(ExitReason::Done) };
    let message = format!("cannot sweep all runs; failed: {}", failed.len());
    let details = failed.iter().map(|(_, error)| error.to_string());
    let next = format!("ferrata verify {}", crate::find::display_key(run));
    Err(CommandFailure::new(ExitReason::Internal, message, next).with_details(details))
}
