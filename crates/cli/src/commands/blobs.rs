//! The command `blobs gc` removes large values that no record names.

use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;

use ferrata::CheckpointStore;
use ferrata::blobs::{Blobs, CollectOptions};
use serde_json::json;

use crate::args::{BlobsArgs, BlobsCommand, CollectArgs};
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::store;

/// Maximum duration of an upload, even if the grace period is shorter.
#[cfg(feature = "postgres")]
const LONGEST_UPLOAD: Duration = Duration::from_secs(86_400);

pub(super) async fn run(context: &CommandContext, args: &BlobsArgs) -> Result<ExitReason, CommandFailure> {
    match &args.command {
        BlobsCommand::Gc(args) => collect(context, args).await,
    }
}

/// Returns the tables for values in a database; `None` if the location is a folder.
#[cfg(feature = "postgres")]
fn tables(place: &Path) -> Result<Option<ferrata::PostgresObjects>, CommandFailure> {
    use ferrata::{PostgresOptions, PostgresStore};
    match place.to_str().filter(|place| store::is_postgres(place)) {
        Some(url) => Ok(Some(
            PostgresStore::from_url(&store::with_connect_limit(url), PostgresOptions::default())?.objects(),
        )),
        None => Ok(None),
    }
}

/// Opens an existing location of values: a folder, or tables in a database.
pub(super) fn open(place: &Path, next: &str) -> Result<Blobs, CommandFailure> {
    #[cfg(feature = "postgres")]
    if let Some(tables) = tables(place)? {
        return Ok(Blobs::new(Arc::new(tables)));
    }
    if !place.is_dir() {
        let shown = store::redact_url(&place.to_string_lossy());
        let message = format!(
            "cannot find the folder `{shown}`; name the folder of the values, or the URL of a Postgres database"
        );
        return Err(CommandFailure::new(ExitReason::NotFound, message, next));
    }
    Ok(Blobs::in_folder(place)?)
}

/// Removes the parts of unfinished uploads from a database.
#[cfg(feature = "postgres")]
async fn sweep(args: &CollectArgs) -> Result<(), CommandFailure> {
    if let Some(tables) = tables(&args.place)? {
        tables.sweep(args.grace.max(LONGEST_UPLOAD)).await?;
    }
    Ok(())
}

async fn collect(context: &CommandContext, args: &CollectArgs) -> Result<ExitReason, CommandFailure> {
    if context.global.tenant.is_some() {
        let message = "a collection covers the values of all tenants; leave out --tenant";
        return Err(CommandFailure::usage(message, "ferrata blobs gc --help"));
    }
    let blobs = open(&args.place, "ferrata blobs gc PLACE")?;
    let mut stores: Vec<Arc<dyn CheckpointStore>> = vec![context.store()?];
    for url in &args.and {
        stores.push(store::open_existing(url)?);
    }
    let stores: Vec<&dyn CheckpointStore> = stores.iter().map(|store| &**store).collect();
    let options = CollectOptions::default().with_grace(args.grace).with_dry_run(!args.yes);
    let collected = blobs.collect(&stores, options).await?;
    #[cfg(feature = "postgres")]
    if args.yes {
        sweep(args).await?;
    }
    let value = json!({
        "runs": collected.runs, "named": collected.named, "waiting": collected.waiting, "condemned": collected.condemned,
        "removed": collected.removed, "bytes": collected.removed_bytes, "dry_run": !args.yes,
    });
    let would = if args.yes { "" } else { "would have " };
    context.out.one(
        &value,
        |_| collected.removed.to_string(),
        |_| {
            format!(
                "runs read: {}; values that they name: {}; {would}removed: {} other values, {} bytes; unnamed but in the grace period: {}, of them new: {}\n",
                collected.runs,
                collected.named,
                collected.removed,
                collected.removed_bytes,
                collected.waiting,
                collected.condemned,
            )
        },
    )?;
    if !args.yes {
        context.out.note("dry run, nothing removed; add --yes to remove");
    }
    Ok(ExitReason::Done)
}
