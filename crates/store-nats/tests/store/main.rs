//! What the suite of all stores does not try: connections that are cut, a server that is killed, filled and set wrongly.

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
