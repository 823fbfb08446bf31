//! Sends signals, messages and edits to runs.

pub(crate) mod edit;
pub(crate) mod send;
pub(crate) mod signal;
pub(crate) mod start_held;
