//! Behavior of the store on a server, beyond the conformance suite.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work has failed")]

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod concurrent_names;
mod deadlocks;
mod dropped;
mod idle_connections;
mod kinds;
mod late_writers;
mod lost_replies;
mod notices;
#[cfg(feature = "objects")]
mod objects;
mod outages;
mod pgbouncer;
mod runtime;
mod setup;
mod statements;
mod timeouts;
mod transactional_nodes;
mod transactions;
