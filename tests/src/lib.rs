//! What tests of several stores share: a space of its own for each test, in a folder or on a server, and gone at its end.

mod bucket;
mod dump;
mod layers;
mod space;
mod streams;

pub use crate::layers::{LAYERS, layers, open, ring};
pub use crate::space::{Space, StoreKind};
