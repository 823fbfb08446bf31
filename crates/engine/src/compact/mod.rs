//! Fast paths of the engine; `compact` of `ferrata-core` says which row of the benchmarks pays for each.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_errors_doc,
    reason = "only the runtime sees it"
)]

pub mod pool;
pub mod small_map;
pub mod small_vec;
