//! Behavior beyond the conformance suite: the file, its locks, its write-ahead log, and other programs.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod bit_flips;
mod damage;
mod files;
mod power;
mod read_only_mount;
mod support;
mod transactions;
mod views;
mod writers;
