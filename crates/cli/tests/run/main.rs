//! Running pipelines as a shell does: kills, interrupts, answers, and invalid input.
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
