//! Runs as the page shows them. These views contain no values of the state.

pub(crate) mod brief;
pub(crate) mod graph;
pub(crate) mod reason;
pub(crate) mod summary;
pub(crate) mod text;
pub(crate) mod tree;
pub(crate) mod unreadable;
