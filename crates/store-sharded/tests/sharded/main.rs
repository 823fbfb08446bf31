//! Runs on several stores: distributed, found, listed in one order, started once, and isolated from failures of other shards.
#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod away;
mod executors;
mod listing;
mod moves;
mod silence;
mod starts;
mod world;
