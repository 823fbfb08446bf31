//! The S3 store on a server in this process with controlled failures, and on a real server.
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
