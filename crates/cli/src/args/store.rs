//! Arguments of `store`.

#[cfg(feature = "envelope")]
use std::path::PathBuf;

use clap::Subcommand;

/// Inspect the store itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata store check --store postgres://me@db/app")]
pub(crate) struct StoreArgs {
    /// Action.
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

/// Action on the store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Connect to the store, and print its guarantees and its latency.
    Check(CheckArgs),
    /// Count records and runs by encryption key, and plain ones. Run it before you remove an old key.
    ///
    /// Reads every record and changes nothing. It needs no keys: each record names its key.
    #[cfg(feature = "envelope")]
    Keys(KeysArgs),
    /// Encrypt all data with the current key, so that older keys can be removed. Lists the work only, unless --yes is given.
    #[cfg(feature = "envelope")]
    Rekey(RekeyArgs),
}

/// Count records and runs by encryption key, and plain ones. Run it before you remove an old key.
#[cfg(feature = "envelope")]
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata store keys --blobs /var/lib/app/blobs\n  ferrata store keys --tenant acme -o json"
)]
pub(crate) struct KeysArgs {
    /// Folder or Postgres URL of large values to count, too; repeatable.
    #[arg(long, value_name = "PLACE")]
    pub(crate) blobs: Vec<PathBuf>,
}

/// Encrypt all data with the current key, so that older keys can be removed. Lists the work only, unless --yes is given.
///
/// FERRATA_KEYS names the file of keys, the current one first. Every process must already write with the current key. Runs continue
/// meanwhile, and keep their history. You may interrupt and repeat the command.
#[cfg(feature = "envelope")]
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  FERRATA_KEYS=keys ferrata store rekey\n  FERRATA_KEYS=keys ferrata store rekey --blobs /var/lib/app/blobs --yes"
)]
pub(crate) struct RekeyArgs {
    /// Folder or Postgres URL of large values to encrypt, too; repeatable.
    #[arg(long, value_name = "PLACE")]
    pub(crate) blobs: Vec<PathBuf>,
    /// Encrypt plain records, too. Their origin cannot be checked.
    #[arg(long)]
    pub(crate) accept_plain: bool,
    /// Execute.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Connect to the store, and print its guarantees and its latency.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata store check --setup\n  ferrata store check --store postgres://me@db/app --print-migrations > ferrata.sql\n  ferrata store check --conformance"
)]
pub(crate) struct CheckArgs {
    /// Prepare the store first: folders, tables, a probe of the server.
    #[arg(long)]
    pub(crate) setup: bool,
    /// Number of records to write and read, in a run that is purged afterwards; 0 only reads.
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub(crate) writes: u32,
    /// Print the SQL that creates the tables of a Postgres store, without a connection.
    #[arg(long, conflicts_with_all = ["setup", "writes", "conformance"])]
    pub(crate) print_migrations: bool,
    /// Run the conformance suite in a temporary area of this store; takes minutes.
    #[arg(long)]
    pub(crate) conformance: bool,
}
