//! What `blobs` takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use crate::time;

/// Deal with large values that are kept beside the records.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata blobs gc /var/lib/app/blobs --yes")]
pub(crate) struct BlobsArgs {
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) command: BlobsCommand,
}

/// What is to be done with large values.
#[derive(Debug, Subcommand)]
pub(crate) enum BlobsCommand {
    /// Remove values that no record names, a grace after no record named them. Tells what it would remove unless --yes is given.
    Gc(CollectArgs),
}

/// Remove values that no record names, a grace after no record named them. Tells what it would remove unless --yes is given.
///
/// Name every store whose runs have values at that place: what another store alone names is removed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata blobs gc /var/lib/app/blobs\n  ferrata blobs gc /var/lib/app/blobs --store postgres://me@db/app --and postgres://me@db/old --yes\n  ferrata blobs gc postgres://me@db/app --store postgres://me@db/app --yes"
)]
pub(crate) struct CollectArgs {
    /// The folder of the values, or the URL of the Postgres database that has them.
    #[arg(value_name = "PLACE")]
    pub(crate) place: PathBuf,
    /// Another store whose runs have values at that place; may be given again.
    #[arg(long, value_name = "URL")]
    pub(crate) and: Vec<String>,
    /// How long a value is kept that no record names, twice: since it was put, and since it was first seen unnamed.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = time::parse)]
    pub(crate) grace: Duration,
    /// Do it.
    #[arg(short, long)]
    pub(crate) yes: bool,
}
