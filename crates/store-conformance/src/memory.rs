//! Runs the suite on the memory store. It is the example of a factory, and shows that a store can pass the suite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{CheckpointStore, Clock, FORMAT, MemoryStore, Record, RunKey, Timestamp};
use ferrata_testing::ManualClock;

use crate::factory::{Damage, Space, StoreFactory};

/// Creates memory stores with a clock that the suite moves.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFactory;

/// A memory store and its clock.
#[derive(Clone, Debug)]
pub struct MemorySpace {
    /// The store. Each clone is another instance.
    pub store: MemoryStore,
    /// The clock of the store.
    pub clock: ManualClock,
}

impl Default for MemorySpace {
    fn default() -> Self {
        let clock = ManualClock::default();
        Self { store: MemoryStore::with_clock(Arc::new(clock.clone())), clock }
    }
}

#[async_trait]
impl StoreFactory for MemoryFactory {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(MemorySpace::default())
    }
}

#[async_trait]
impl Space for MemorySpace {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(self.store.clone())
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let damage_one = |record: &mut Record| match damage {
            Damage::NewerFormat(_) => record.header.format = FORMAT + 1,
            _ => {
                let mut body = record.body.to_vec();
                body[0] ^= 1;
                record.body = body.into();
            }
        };
        match damage {
            Damage::Body(seq) | Damage::NewerFormat(seq) => self.store.tamper(run, |records| {
                records.iter_mut().filter(|record| record.header.seq == seq).for_each(damage_one);
            }),
            Damage::Gone(seq) => {
                self.store.tamper(run, |records| records.retain(|record| record.header.seq != seq))
            }
            // A push to a list cannot be interrupted, and the store has no data outside of the lists.
            _ => false,
        }
    }

    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        self.clock.advance(by);
        Some(self.clock.now())
    }
}
