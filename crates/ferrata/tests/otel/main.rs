//! The spans of a run are one trace: from the request that started it to its last node, over processes and a kill, and its children in it.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]
#![expect(clippy::print_stdout, reason = "a process tells the test how far it is")]

mod collector;
mod processes;
mod sampling;
