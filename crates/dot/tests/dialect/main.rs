//! The dialect, with one module per section.
//!
//! All modules are one program, because each program would be linked separately.
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
