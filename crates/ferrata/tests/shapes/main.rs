//! Shapes of answers, derived and of the standard library: the law that they keep, what they refuse, say and store.

#![expect(clippy::unwrap_used, reason = "a helper of a test may unwrap as the test may")]

mod cases;
mod law;
mod types;
