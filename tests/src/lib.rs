//! What tests of several stores share: a space of its own for each test, in a folder or on a server, and gone at its end.

mod space;

pub use crate::space::{Space, StoreKind};
