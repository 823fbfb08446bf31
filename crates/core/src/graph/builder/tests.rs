//! Accepted and rejected declarations of the builder.

mod accepts;
mod fingerprints;
mod mistakes;
mod semantics;
mod subgraphs;

use std::num::NonZeroU32;
use std::time::Duration;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::graph::{Effect, Join, NodeCheckpoint, RetryPolicy};
use crate::state::{Context, Reducer};

/// A builder with nodes that do nothing.
fn nodes(names: &str) -> GraphBuilder<Context> {
    names
        .split_whitespace()
        .fold(Graph::builder("g"), |builder, name| builder.node(name, async |_cx, s| Ok(s)))
}
