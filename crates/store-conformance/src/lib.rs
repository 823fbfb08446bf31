//! The contract of a Ferrata store as a test suite, for anyone's store.
//!
//! An author implements [`StoreFactory`] and [`Space`], and calls [`suite!`] in a test: one test for each sentence of the contract.

mod cases;
mod factory;
mod group;
mod memory;
mod model;
mod registry;
mod stage;
mod suite;

pub use factory::{Damage, Space, StoreFactory};
pub use group::Group;
pub use memory::{MemoryFactory, MemorySpace};
pub use model::{ModelTest, SEED_VARIABLE};
pub use registry::{PROPERTIES, Property};
pub use suite::{check, check_on};
#[doc(hidden)]
pub use suite::{check_groups, check_named};
