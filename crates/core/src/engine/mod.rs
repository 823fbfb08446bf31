//! Re-exports the state machine of a run from `ferrata-engine`. The tests of this module run the machine on graphs that the graph builder creates.

pub(crate) use ferrata_engine::engine::*;

#[cfg(test)]
mod tests;
