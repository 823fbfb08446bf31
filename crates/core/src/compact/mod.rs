//! Special-purpose types and functions that save memory or time. Each one improves a row of the benchmark report of `cargo xtask bench`.
//!
//! | type or function | replaces | improved row |
//! |---|---|---|
//! | `small_vec` | `Vec`, which allocates for one item | `core/disabled`, `core/every-node`: allocations for each node |
//! | `small_map` | `BTreeMap`, which allocates for one entry | the same, and `memory/in-progress` |
//! | [`queue`] | a channel of tokio, which reserves memory for 32 items | `memory/in-progress`, `memory/peak`: two for each run, 4 kB each |
//! | [`once_channel`] | a `watch` channel, 300 bytes larger | `memory/peak`: two for each run, and it would miss its goal |
//! | `pool` | an allocation for each body | `core/every-node`: allocations for each node |
//! | `record/write.rs` | serde | `core/every-node`: instructions for each node |
//! | `engine/machine/single_step.rs` | the general code that applies an end | `core/disabled`, `core/every-node`: instructions for each node |
//! | `engine/single_step.rs` | the general code that decides the next nodes | the same |
//!
//! The last three depend on the fields of a record or of the machine, so each of them is in the module of the general code that it replaces. A
//! property test compares each fast path with the general code. Remove a fast path that improves no row.

pub(crate) mod once_channel;
pub(crate) mod queue;

pub(crate) use ferrata_engine::compact::{small_map, small_vec};
