//! What `store` takes.

#[cfg(feature = "envelope")]
use std::path::PathBuf;

use clap::Subcommand;

/// Look at the store itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ferrata store check --store postgres://me@db/app")]
pub(crate) struct StoreArgs {
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

/// What is to be done with the store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Reach the store, tell what it promises, and how long it takes.
    Check(CheckArgs),
    /// Count the records and runs under each key that they are encrypted with, and those that are not: before an old key goes.
    ///
    /// Reads every record and changes nothing. It takes no keys: their names stand beside what they encrypt.
    #[cfg(feature = "envelope")]
    Keys(KeysArgs),
    /// Encrypt with the current key what is encrypted with an older one, so that that one can go. Tells what it would do unless --yes is given.
    #[cfg(feature = "envelope")]
    Rekey(RekeyArgs),
}

/// Count the records and runs under each key that they are encrypted with, and those that are not: before an old key goes.
#[cfg(feature = "envelope")]
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata store keys --blobs /var/lib/app/blobs\n  ferrata store keys --tenant acme -o json"
)]
pub(crate) struct KeysArgs {
    /// A folder of large values, or the URL of the Postgres database that has them, which are to be counted, too; may be given again.
    #[arg(long, value_name = "PLACE")]
    pub(crate) blobs: Vec<PathBuf>,
}

/// Encrypt with the current key what is encrypted with an older one, so that that one can go. Tells what it would do unless --yes is given.
///
/// The keys are those of the file that FERRATA_KEYS names, the current one first; every process must write with that one by now. Runs go on
/// meanwhile, and keep their history. One that was cut off is repeated.
#[cfg(feature = "envelope")]
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  FERRATA_KEYS=keys ferrata store rekey\n  FERRATA_KEYS=keys ferrata store rekey --blobs /var/lib/app/blobs --yes"
)]
pub(crate) struct RekeyArgs {
    /// A folder of large values, or the URL of the Postgres database that has them, which are to be encrypted, too; may be given again.
    #[arg(long, value_name = "PLACE")]
    pub(crate) blobs: Vec<PathBuf>,
    /// Encrypt also what is not encrypted at all. Believe it, whoever wrote it.
    #[arg(long)]
    pub(crate) accept_plain: bool,
    /// Do it.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Reach the store, tell what it promises, and how long it takes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ferrata store check --setup\n  ferrata store check --store postgres://me@db/app --print-migrations > ferrata.sql\n  ferrata store check --conformance"
)]
pub(crate) struct CheckArgs {
    /// Prepare the store first: folders, tables, a probe of the server.
    #[arg(long)]
    pub(crate) setup: bool,
    /// How many times a record is written and read, in a run that is purged afterwards; 0 only reads.
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub(crate) writes: u32,
    /// Print the SQL that makes the tables of a Postgres store, and reach nothing.
    #[arg(long, conflicts_with_all = ["setup", "writes", "conformance"])]
    pub(crate) print_migrations: bool,
    /// Hold a place beside this store, made for the purpose, against the contract of stores; takes minutes.
    #[arg(long)]
    pub(crate) conformance: bool,
}
