//! Several processes on one store: lost heartbeats, the end of other processes, and full capacity.

mod admission;
mod cancelled_families;
mod doubts;
mod endings;
mod fencing;
mod handed_on;
mod idle;
mod last_children;
mod late_parents;
mod left_ways;
mod missing_runs;
mod orphans;
mod panics;
mod queued;
mod silence;
mod stopping_children;
#[path = "../support/mod.rs"]
mod support;
mod suspended_acts;
mod sweepers;
mod unserved;
mod world;
