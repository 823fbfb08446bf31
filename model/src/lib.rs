//! A model of the rules by which two processes, any number of signallers and a purger share one run. The model is explored exhaustively.
//!
//! The page `docs/reference/protocol-model.md` describes what the model covers. The model contains no code of the library. The model states the rules
//! for heads, claims, generations, signals, heartbeats, purges and restarts. Mistakes that once existed in the library can be [planted](Mistake) in
//! the rules, and the model finds each of them. The delivery of outbox messages has a separate [model](letters).

mod executor;
pub mod letters;
mod rules;
mod run;
mod world;

pub use executor::{Driver, Executor, Id, Work};
pub use rules::{Mistake, Protocol};
pub use run::{Place, Run, Status};
pub use world::{Action, Budget, Signal, World};
