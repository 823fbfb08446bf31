//! Tests the example programs as a user runs them, and also kills them.
#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod agent;
mod approval;
mod chat;
mod crash;
mod etl;
mod families;
mod stores;
mod support;
mod survey;
mod time_travel;
mod traces;
mod transfer;
