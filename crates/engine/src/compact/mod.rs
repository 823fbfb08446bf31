//! Special-purpose types of the engine that save memory or time. The module `compact` of `ferrata-core` lists the benchmark row that each of them
//! improves.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_errors_doc,
    reason = "only the runtime sees it"
)]

pub mod pool;
pub mod small_map;
pub mod small_vec;
