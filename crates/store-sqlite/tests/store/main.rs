//! What the suite for every store cannot see: the file, its locks, its write-ahead log, and what other programs do to them.
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
