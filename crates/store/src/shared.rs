//! Implements the store trait for shared pointers, so that wrappers can hold an `Arc<dyn CheckpointStore>`.

use std::sync::Arc;

use async_trait::async_trait;

use super::contract::CheckpointStore;

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: CheckpointStore + ?Sized> CheckpointStore for Arc<S> {
    crate::delegate! {
        |this| **this;
        capabilities, setup, append, load, load_since, headers, head, runs, prune, purge, heartbeat,
        is_alive, transactions, part, resealing, relay, subscribe
    }
}
