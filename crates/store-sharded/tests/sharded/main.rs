//! Runs over several stores: spread, found again, listed in one order, started once, and none harmed by another's shard.
#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod away;
mod executors;
mod listing;
mod moves;
mod silence;
mod starts;
mod world;
