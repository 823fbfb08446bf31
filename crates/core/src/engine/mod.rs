//! The machine: what a run is, as a pure state machine. No I/O, no clock, no async.
//!
//! [`Machine::absorb`](machine::Machine::absorb) is the only way its state changes, live and on load. The driver turns what
//! happens into an event, absorbs it, appends it, and does what the machine then asks for; so live order is replay order.

mod branch;
pub(crate) mod decide;
mod doubt;
pub(crate) mod fold;
mod forward;
pub(crate) mod frontier;
pub(crate) mod history;
pub(crate) mod machine;
pub(crate) mod memo;
mod naming;
pub(crate) mod questions;
pub(crate) mod replan;
pub(crate) mod snapshot;

#[cfg(test)]
mod tests;
