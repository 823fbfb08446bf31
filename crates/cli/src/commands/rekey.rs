//! The command `store rekey` encrypts data again that has older keys.

use ferrata::{EnvelopeOptions, EnvelopeStore, RekeyOptions};
use ferrata_core::wording::count;
use serde_json::json;

use super::blobs;
use crate::args::RekeyArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::store::{self, KEYS};

/// The result of the command, or a preview of the result.
#[derive(Default)]
struct RekeySummary {
    runs: u64,
    records: u64,
    changed: u64,
    values: u64,
    rekeyed: u64,
    bytes: u64,
    /// The data that could not be processed, each with the reason.
    failed: Vec<(String, String)>,
}

pub(super) async fn run(context: &CommandContext, args: &RekeyArgs) -> Result<ExitReason, CommandFailure> {
    let Some(keys) = store::keys()? else {
        let message = "cannot rekey without keys; name a file of keys, the current one first";
        return Err(CommandFailure::usage(message, KEYS));
    };
    let tenant = context.global.tenant.as_ref();
    let places: Result<Vec<_>, _> =
        args.blobs.iter().map(|place| blobs::open(place, "ferrata store rekey --blobs PLACE")).collect();
    let places = places?;
    let options = EnvelopeOptions::default().with_keys(keys.clone()).with_accept_plain(args.accept_plain);
    let opened = EnvelopeStore::new(store::open_as_stored(&context.global.store)?, options);
    let mut done = RekeySummary::default();
    let progress = context.out.progress();
    let mut page = RekeyOptions::default().with_tenant(tenant.cloned()).with_dry_run(!args.yes);
    loop {
        let told = opened.rekey(page.clone()).await.inspect_err(|_| progress.finish_and_clear())?;
        done.runs += told.runs;
        done.records += told.records;
        done.changed += told.changed;
        done.bytes += told.bytes;
        done.failed.extend(told.failed.iter().map(|(run, error)| (run.to_string(), error.to_string())));
        progress.set_message(format!("read {}", count(done.runs, "run")));
        progress.tick();
        match told.next {
            Some(next) => page = page.with_cursor(next),
            None => break,
        }
    }
    for place in places {
        let place = place.with_keys(keys.clone()).accept_plain(args.accept_plain);
        let before = done.values;
        let tick = |told: &ferrata::blobs::BlobRekeyReport| {
            progress.set_message(format!("read {}", count(before + told.values, "value")));
            progress.tick();
        };
        let told = place.rekey(tenant, !args.yes, tick).await.inspect_err(|_| progress.finish_and_clear())?;
        done.values += told.values;
        done.rekeyed += told.rekeyed;
        done.bytes += told.bytes;
        done.failed.extend(told.failed.into_iter().map(|(path, error)| (path, error.to_string())));
    }
    progress.finish_and_clear();
    report_rekey(context, args, &done)
}

fn report_rekey(
    context: &CommandContext,
    args: &RekeyArgs,
    done: &RekeySummary,
) -> Result<ExitReason, CommandFailure> {
    let RekeySummary { runs, records, changed, values, rekeyed, bytes, failed } = done;
    let failures: Vec<_> =
        failed.iter().map(|(what, error)| json!({ "what": what, "error": error })).collect();
    let value = json!({
        "runs": runs, "records": records, "changed": changed, "values": values, "rekeyed": rekeyed, "bytes": bytes,
        "failed": failures, "dry_run": !args.yes,
    });
    let would = if args.yes { "" } else { "would have " };
    context.out.one(
        &value,
        |_| (records + rekeyed).to_string(),
        |_| {
            format!(
                "runs read: {runs}; values read: {values}; {would}rewritten with the current key: records {records}, values {rekeyed}, bytes {bytes}\n"
            )
        },
    )?;
    if !args.yes {
        context.out.note("dry run, nothing changed; add --yes to rewrite");
    } else if *changed > 0 {
        context.out.note(&format!("records changed by other writers: {changed}; repeat the command"));
    }
    if failed.is_empty() {
        return Ok(ExitReason::Done);
    }
    let message = format!("cannot rekey all runs and values; failed: {}", failed.len());
    let details = failed.iter().map(|(what, error)| format!("{what}: {error}"));
    Err(CommandFailure::new(ExitReason::Internal, message, "ferrata store keys").with_details(details))
}
