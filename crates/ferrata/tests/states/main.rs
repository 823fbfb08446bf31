//! Typed states, what the derives write for them, and what their values may be.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work has failed")]

mod defaults;
mod derive;
#[cfg(feature = "envelope")]
mod erased;
mod laws;
mod panics;
mod shapes;
mod typed_parts;
mod values;
