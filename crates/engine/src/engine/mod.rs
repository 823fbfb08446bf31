//! The machine: a run as a pure state machine. No I/O, no clock, no async.
//!
//! Only [`Machine::absorb`](machine::Machine::absorb) changes its state, live and on load. The driver turns an occurrence into an event, absorbs
//! it, appends it, and performs the work that the machine then asks for. The live order is therefore the replay order.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_errors_doc,
    reason = "only the runtime sees it"
)]

pub mod decide;
pub mod fold;
pub mod frontier;
pub mod history;
mod inbox;
pub mod machine;
mod nodes;
pub mod outbox;
mod overwrites;
mod progress;
pub mod questions;
pub mod replan;
mod run_state;
mod single_step;
