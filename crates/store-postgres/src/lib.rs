//! Keeps the runs of [Ferrata](ferrata_core) in tables of a PostgreSQL database, version 14 or later.

mod append;
mod batch;
mod codes;
mod config;
mod db;
mod error;
mod heartbeat;
mod history;
mod list;
mod load;
mod migrations;
mod names;
mod notices;
mod prune;
mod row;
mod setup;
mod single;
mod store;
mod tail;
mod tasks;

pub use config::{PostgresOptions, SecretUrl};
pub use migrations::Migration;
pub use store::PostgresStore;
