//! The servers, their proxy and their end, each as it is.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work has failed")]

mod proxy;
mod shared;
mod verbs;
mod watchdog;
