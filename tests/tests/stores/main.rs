//! Behavior that is equal on every store: run trees, dropped requests, and streams.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work has failed")]

mod bucket;
mod children;
mod dropped;
mod losses;
mod marker;
mod rekey;
mod watching;
