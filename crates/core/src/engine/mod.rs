//! The machine: what a run is, as a pure state machine. No I/O, no clock, no async.
//!
//! [`Machine::absorb`](machine::Machine::absorb) is the only way its state changes, live and on load. The driver turns what
//! happens into an event, absorbs it, appends it, and does what the machine then asks for; so live order is replay order.

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
