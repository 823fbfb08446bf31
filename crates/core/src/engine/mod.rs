//! The machine, from `ferrata-engine`, and its tests on graphs of the builder.

pub(crate) use ferrata_engine::engine::*;

#[cfg(test)]
mod tests;
