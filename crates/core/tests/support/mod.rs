//! Helpers of the tests that drive runs: bounds, random numbers from a seed, and a log read as plain JSON without the code under test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod bounds;
pub(crate) mod dice;
pub(crate) mod letters;
pub(crate) mod log;
