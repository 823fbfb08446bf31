//! Programs that use Ferrata. Each is run from the root of the repository:
//!
//! - `cargo run --example hello`: a graph of one node.
//! - `cargo run --example crash_and_resume`: a process dies in the middle of a chain, and the next one goes on.
//! - `cargo run --release --example survey`: a real job over every file of a directory, which may be killed at any moment.
