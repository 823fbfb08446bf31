//! What has to be the same on every store: families, dropped requests, streams.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work has failed")]

mod bucket;
mod children;
mod dropped;
mod losses;
mod marker;
mod rekey;
mod watching;
