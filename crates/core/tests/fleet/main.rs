//! Several processes on one store: what each of them does when it cannot say that it is alive, when another ends, and when it has
//! no room.

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
