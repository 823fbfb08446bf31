//! Random functions, crashed at each write and edited in between.
//!
//! A program is a tree of steps, timers, races and branches. It keeps a history of everything that it has seen, in order. Each step returns the
//! history at its call. If a replay is given another result, or the same results in another order, the recorded history differs from that of the
//! replay.
//!
//! `FERRATA_FLOW_CASES` sets the number of seeds, and `FERRATA_FLOW_FIRST` the first seed. `FERRATA_FLOW_SEED` runs only one seed.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod crashes;
mod edits;
mod program;
mod recorded;
mod rng;
mod starts;
