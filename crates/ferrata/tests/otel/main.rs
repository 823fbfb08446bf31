//! The spans of a run form one trace, from the request that started it to its last node, across processes, a kill and children.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]
#![expect(clippy::print_stdout, reason = "a process tells the test how far it is")]

mod collector;
mod processes;
mod sampling;
