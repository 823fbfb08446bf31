//! A run as a pure state machine, without I/O, clock or async code.
//!
//! Only [`Machine::absorb`](machine::Machine::absorb) changes the state of the machine, both in an active run and when a log is loaded. The driver
//! turns everything that happens into an event, applies the event to the machine, appends it to the log, and then does the work that the machine
//! requires. The order of events in an active run is therefore the order of their replay.

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
