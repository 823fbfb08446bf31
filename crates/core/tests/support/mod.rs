//! What the seeded tests share: chance from a seed, and a log read as plain JSON, without the code under test.

#![allow(dead_code, reason = "each of the seeded tests uses its part")]

pub(crate) mod dice;
pub(crate) mod log;
