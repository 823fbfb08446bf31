//! The test servers, their proxy and their shutdown.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work has failed")]

mod proxy;
mod shared;
mod verbs;
mod watchdog;
