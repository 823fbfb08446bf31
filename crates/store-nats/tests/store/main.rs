//! Behavior beyond the conformance suite: cut connections, and servers that are killed, full or wrongly configured.

#[path = "../common/mod.rs"]
mod common;

mod cluster;
mod crash;
mod crowd;
mod data_loss;
mod load;
mod refusals;
mod reseal;
mod surely;
