//! Programs that use Ferrata. Each is run from the root of the repository:
//!
//! - `cargo run --example hello`: a graph of one node.
//! - `cargo run --example crash_and_resume`: a process dies in the middle of a chain, and the next one goes on.
//! - `cargo run --example approval -- start inv-7`: a question that is answered by another process than the one that asks.
//! - `cargo run --example chat`: a conversation that survives `kill -9`.
//! - `cargo run --example time_travel`: a run as it was, a fork of it with one thing changed, and what differs in the end.
//! - `cargo run --release --example survey`: a real job over every file of a directory, which may be killed at any moment.
