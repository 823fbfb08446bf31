//! Shapes of answers, derived and of the standard library: the law that they keep, what they refuse, say and store.

mod cases;
mod law;
mod types;
