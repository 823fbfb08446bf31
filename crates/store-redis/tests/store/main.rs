//! Behavior of the store on servers, beyond the conformance suite.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work has failed")]

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod cluster;
mod crash;
mod hearing;
mod index;
mod load;
mod refusals;
