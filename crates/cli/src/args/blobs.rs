//! Arguments of `blobs`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use crate::time;

/// Manage large values that are stored next to the records.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata blobs gc /var/lib/app/blobs --yes")]
pub(crate) struct BlobsArgs {
    /// Action.
    #[command(subcommand)]
    pub(crate) command: BlobsCommand,
}

/// Action on large values.
#[derive(Debug, Subcommand)]
pub(crate) enum BlobsCommand {
    /// Remove values that no record has named for a grace period. Lists them only, unless --yes is given.
    Gc(CollectArgs),
}

/// Remove values that no record has named for a grace period. Lists them only, unless --yes is given.
///
/// Name every store whose runs have values there. Values that only a store left out names are removed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata blobs gc /var/lib/app/blobs\n  ferrata blobs gc /var/lib/app/blobs --store postgres://me@db/app --and postgres://me@db/old --yes\n  ferrata blobs gc postgres://me@db/app --store postgres://me@db/app --yes"
)]
pub(crate) struct CollectArgs {
    /// Folder of the values, or URL of their Postgres database.
    #[arg(value_name = "PLACE")]
    pub(crate) place: PathBuf,
    /// Another store whose runs have values there; repeatable.
    #[arg(long, value_name = "URL")]
    pub(crate) and: Vec<String>,
    /// Grace period: the minimum time from the storage of a value to its mark as unnamed, and again from this mark to its removal.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = time::parse)]
    pub(crate) grace: Duration,
    /// Execute.
    #[arg(short, long)]
    pub(crate) yes: bool,
}
