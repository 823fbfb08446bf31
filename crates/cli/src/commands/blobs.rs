//! `blobs gc`: removes large values that no record names.

use std::path::Path;
use std::sync::Arc;

use ferrata::CheckpointStore;
use ferrata::blobs::{Blobs, CollectOptions};
use serde_json::json;

use crate::args::{BlobsArgs, BlobsCommand, CollectArgs};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::store;

pub(super) async fn run(context: &Context, args: &BlobsArgs) -> Result<Exit, Failure> {
    match &args.command {
        BlobsCommand::Gc(args) => collect(context, args).await,
    }
}

/// Opens a folder of values, which has to be there.
pub(super) fn open(folder: &Path, next: &str) -> Result<Blobs, Failure> {
    if !folder.is_dir() {
        let message = format!("there is no folder {}; name the one that values are put in", folder.display());
        return Err(Failure::new(Exit::NotFound, message, next));
    }
    Ok(Blobs::in_folder(folder)?)
}

async fn collect(context: &Context, args: &CollectArgs) -> Result<Exit, Failure> {
    if context.global.tenant.is_some() {
        let message = "values of all tenants are dealt with; leave --tenant away";
        return Err(Failure::usage(message, "ferrata blobs gc --help"));
    }
    let blobs = open(&args.folder, "ferrata blobs gc FOLDER")?;
    let mut stores: Vec<Arc<dyn CheckpointStore>> = vec![context.store()?];
    for url in &args.and {
        stores.push(store::open_existing(url)?);
    }
    let stores: Vec<&dyn CheckpointStore> = stores.iter().map(|store| &**store).collect();
    let options = CollectOptions::default().with_grace(args.grace).with_dry_run(!args.yes);
    let collected = blobs.collect(&stores, options).await?;
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
    Ok(Exit::Done)
}
