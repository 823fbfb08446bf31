//! What `store` takes.

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
    #[command(after_help = "Examples:\n  ferrata store keys\n  ferrata store keys --tenant acme -o json")]
    Keys,
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
