//! Typed states, their derives, and their values.
#![expect(clippy::unwrap_used, reason = "a test that cannot do its work has failed")]

#[cfg(feature = "blobs")]
mod blob_names;
#[cfg(feature = "blobs")]
mod blobs;
mod defaults;
mod derive;
mod ephemeral;
#[cfg(feature = "envelope")]
mod erased;
mod laws;
mod panics;
mod secrets;
mod shapes;
mod typed_parts;
mod values;
