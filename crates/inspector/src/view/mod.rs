//! Runs as the page shows them, without their values.

pub(crate) mod brief;
pub(crate) mod graph;
pub(crate) mod reason;
pub(crate) mod summary;
pub(crate) mod text;
pub(crate) mod tree;
pub(crate) mod unreadable;
