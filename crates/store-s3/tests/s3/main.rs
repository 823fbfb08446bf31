//! The store of S3 on servers: one in this process, which can fail as it is told, and a real one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod author;
mod conformance;
mod costs;
mod faults;
mod index;
mod memory;
mod raw;
mod setup;
mod sleepers;
mod spaces;
mod versions;
