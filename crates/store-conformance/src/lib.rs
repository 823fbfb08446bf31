//! The contract of a Ferrata store as a test suite that every store can run.
//!
//! Each requirement of [`CheckpointStore`](ferrata_store::CheckpointStore) is a [`Property`] of this crate, and [`suite!`] creates one test for
//! each. A suite cannot omit a property silently: one list contains all properties, and a suite names the groups that do not apply, with the
//! reason. It shows their tests as *ignored*.
//!
//! # How to run it on your store
//!
//! Add this crate to the `dev-dependencies`, and write `tests/conformance.rs`. It needs a factory of fresh spaces, the code that opens your store
//! on a space, and functions that change the data of a space directly.
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use ferrata_store::RunKey;
//! use ferrata_store::CheckpointStore;
//! use ferrata_store_conformance::{Damage, Space, StoreFactory, suite};
//! # use ferrata_store::MemoryStore as MyStore;
//!
//! struct MyFactory;
//!
//! /// A place of its own for one test: a schema, a prefix, a temporary folder.
//! struct MySpace {
//!     store: MyStore,
//! }
//!
//! #[async_trait]
//! impl StoreFactory for MyFactory {
//!     async fn fresh(&self) -> Box<dyn Space> {
//!         Box::new(MySpace { store: MyStore::new() })
//!     }
//! }
//!
//! #[async_trait]
//! impl Space for MySpace {
//!     // Called more than once: for a second process, and to find again what the first one left.
//!     async fn open(&self) -> Arc<dyn CheckpointStore> {
//!         Arc::new(self.store.clone())
//!     }
//!
//!     async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
//!         match damage {
//!             Damage::Gone(seq) => {
//!                 self.store.tamper(run, |records| records.retain(|record| record.header.seq != seq))
//!             }
//!             // Others: see the groups left out.
//!             _ => false,
//!         }
//!     }
//! }
//!
//! suite!(MyFactory, without: [
//!     durable = "nothing survives the process",
//!     clock = "time is the machine's",
//!     damage = "there is no disk to change a byte on",
//!     torn = "a record is never half in memory",
//!     newer = "no other version ever writes to it",
//!     swap = "the logs are all there is: no index leads to them",
//!     tail = "the logs are all there is: nothing beside them says where they end",
//!     transactions = "there is no database to write to",
//! ]);
//! # // What the tests would do, for one property.
//! # let properties = ferrata_store_conformance::PROPERTIES;
//! # let property = properties.iter().find(|property| property.topic() == "conflict").unwrap();
//! # ferrata_store_conformance::check(&MyFactory, property);
//! ```
//!
//! Each property runs on a fresh [`Space`], on several threads, after [`setup`]. If the contract speaks of two writers, the property opens two
//! instances. A failed property fails only its own test, and reports its steps. A property waits in real time only for the expiry of heartbeats,
//! and only if the space cannot advance the store's clock.
//!
//! [`setup`]: ferrata_store::CheckpointStore::setup
//!
//! # Groups
//!
//! | group | what the store or its space must be able to do | may be omitted |
//! |---|---|---|
//! | `core` | no special ability | never |
//! | `instances` | several instances on one space | if `shared` is false |
//! | `durable` | find acknowledged records after it is reopened | if `durable` is false |
//! | `notices` | send notices | if `notices` is false |
//! | `clock` | [`Space::advance_clock`] | yes |
//! | `damage` | [`Damage::Body`] | yes |
//! | `gap` | [`Damage::Gone`] | yes |
//! | `torn` | [`Damage::Torn`] | yes |
//! | `newer` | [`Damage::NewerFormat`] | yes |
//! | `swap` | [`Damage::Swapped`] | yes |
//! | `tail` | [`Damage::Tail`] | yes |
//! | `transactions` | have transactions, and [`Space::transaction_table`] | if the store has no transactions |
//!
//! The store reports `shared`, `durable` and `notices` in its [`Capabilities`](ferrata_store::Capabilities). One test checks that the suite omits
//! no group for an ability that the store reports.
//!
//! # A store that needs a server
//!
//! Whether a test is ignored is decided when it is compiled. So a build script must say whether a server exists:
//!
//! ```
//! // build.rs
//! println!("cargo::rustc-check-cfg=cfg(store_test_server)");
//! for variable in ["STORE_TEST_SERVER_URL", "REQUIRE_SERVICES"] {
//!     println!("cargo::rerun-if-env-changed={variable}");
//!     if std::env::var_os(variable).is_some() {
//!         println!("cargo::rustc-cfg=store_test_server");
//!     }
//! }
//! ```
//!
//! With `needs: store_test_server = "set STORE_TEST_SERVER_URL"` in [`suite!`], every test is ignored with that reason if the variable is not set.
//! With `REQUIRE_SERVICES`, the tests run nevertheless, and the factory fails because it has no address.
//!
//! # Random calls
//!
//! Some properties run the differential test with fixed seeds. [`ModelTest`] runs any other seed:
//!
//! ```
//! use ferrata_store_conformance::{MemoryFactory, ModelTest};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! ModelTest::default().with_seed(42).with_calls(1_000).with_instances(2).run(&MemoryFactory).await;
//! # });
//! ```
//!
//! A failure reports its seed. If [`SEED_VARIABLE`] is set to that seed, the properties of the topic `model` run only that seed.
//!
//! # Why a passed suite means something
//!
//! The tests of this crate contain more than a hundred broken stores. For example, one ignores the expected head, one forgets record ids, one
//! writes a batch record by record, and one counts pages by offset. A table says which of the broken stores each property detects, and a property
//! that detects none fails the build.
//!
//! A passed suite does not prove that a store is correct. The suite cannot cut the power of a machine or a network connection: the other tests of
//! each store must do that.

mod cases;
mod factory;
mod group;
mod memory;
mod model;
mod registry;
mod stage;
mod suite;
mod table;

pub use factory::{Damage, Space, StoreFactory};
pub use group::Group;
pub use memory::{MemoryFactory, MemorySpace};
pub use model::{ModelTest, SEED_VARIABLE};
pub use registry::{PROPERTIES, Property};
pub use suite::{check, check_on};
#[doc(hidden)]
pub use suite::{check_groups, check_named};
pub use table::{NestedEnd, StatementError, StatementErrors, StepResult, TransactionStep, TransactionTable};
