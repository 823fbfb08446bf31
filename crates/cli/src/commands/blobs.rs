//! `blobs gc`: removes large values that no record names.

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

/// Maximum duration of an upload, whatever the grace.
#[cfg(feature = "postgres")]
const LONGEST_UPLOAD: Duration = Duration::from_secs(86_400);

pub(super) async fn run(context: &CommandContext, args: &BlobsArgs) -> Result<ExitReason, CommandFailure> {
    match &args.command {
        BlobsCommand::Gc(args) => collect(context, args).await,
    }
}

/// The tables of values in a database, if a location is a database URL.
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

/// Opens an existing location of values: a folder, or the tables of a database.
pub(super) fn open(place: &Path, next: &str) -> Result<Blobs, CommandFailure> {
    #[cfg(feature = "postgres")]
    if let Some(tables) = tables(place)? {
        return Ok(Blobs::new(Arc::new(tables)));
    }
    if !place.is_dir() {
        let shown = store::redact_url(&place.to_string_lossy());
        let message = format!(
            "there is no folder {shown}; name the one that values are put in, or the URL of a Postgres database"
        );
        return Err(CommandFailure::new(ExitReason::NotFound, message, next));
    }
    Ok(Blobs::in_folder(place)?)
}

/// Removes the remains of uploads to a database that did not finish.
#[cfg(feature = "postgres")]
async fn sweep(args: &CollectArgs) -> Result<(), CommandFailure> {
    if let Some(tables) = tables(&args.place)? {
        tables.sweep(args.grace.max(LONGEST_UPLOAD)).await?;
    }
    Ok(())
}

async fn collect(context: &CommandContext, args: &CollectArgs) -> Result<ExitReason, CommandFailure> {
    if context.global.tenant.is_some() {
        let message = "values of all tenants are dealt with; leave --tenant away";
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
                "read {} runs, which name {} values; {would}removed {} others with {} bytes; {} wait, {} of them since now\n",
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
        context.out.note("nothing was removed; add --yes to do it");
    }
    Ok(ExitReason::Done)
}
