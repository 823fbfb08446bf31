//! A model of two processes, any number of signallers and a purger on one run, explored exhaustively.
//!
//! The page `docs/reference/protocol-model.md` lists the modelled parts and the limits of the model. The model uses no code of the library. It holds
//! the rules for heads, claims, generations, signals, heartbeats, purges and restarts, and detects known mistakes when they are [planted](Mistake).
//! The delivery of outbox messages has a separate [model](letters).

mod executor;
pub mod letters;
mod rules;
mod run;
mod world;

pub use executor::{Driver, Executor, Id, Work};
pub use rules::{Mistake, Protocol};
pub use run::{Place, Run, Status};
pub use world::{Action, Budget, Signal, World};
