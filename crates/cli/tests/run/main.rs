//! Running pipelines as a shell does it: killed, interrupted, answered, and given things that are wrong.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod bad;
mod children;
mod examples;
mod judged;
mod life;
mod options;
mod places;
mod restored;
mod support;
mod terminal;
mod told;
