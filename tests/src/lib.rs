//! Helpers for tests of several stores: a separate space per test, in a folder or on a server, removed at its end.

mod bucket;
mod dump;
mod layers;
mod space;
mod streams;

pub use crate::layers::{LAYERS, layers, open, ring};
pub use crate::space::{Space, StoreKind};
