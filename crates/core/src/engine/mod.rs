//! The machine: a run as a pure state machine. No I/O, no clock, no async.
//!
//! Only [`Machine::absorb`](machine::Machine::absorb) changes its state, live and on load. The driver turns an occurrence into an event, absorbs
//! it, appends it, and performs the work that the machine then asks for. The live order is therefore the replay order.

pub(crate) mod decide;
pub(crate) mod fold;
pub(crate) mod frontier;
pub(crate) mod history;
mod inbox;
pub(crate) mod letters;
pub(crate) mod machine;
mod nodes;
mod overwrites;
mod progress;
pub(crate) mod questions;
pub(crate) mod replan;
mod standing;
mod straight;

#[cfg(test)]
mod tests;
