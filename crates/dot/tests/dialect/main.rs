//! The dialect, one module for each part of it.
//!
//! One program, because each of its own would be linked with all that the others are.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod attributes;
mod budget;
mod commands;
mod conditions;
mod crashing;
mod each;
mod entry;
mod external;
mod fidelity;
mod grammar;
mod leaving;
mod limits;
mod lint;
mod manager;
mod open;
mod parallel;
mod pipelines;
mod properties;
mod random;
mod ranking;
mod rules;
mod run_dir;
mod select;
mod tools;
mod transforms;
mod variables;
mod waits;
