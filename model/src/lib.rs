//! How two executors, any number of signallers and a purger share one run: a model of the rules, explored exhaustively.
//!
//! The page `docs/reference/protocol-model.md` says what is modelled and what is not. The model knows no code of the library: it holds the
//! rules by which the library's parts deal with heads, claims, lives, signals, heartbeats, purges and restarts, and it finds the
//! mistakes that were once made in them when they are [planted](Mistake) back. How letters are delivered is a [model](letters) of its own.

mod executor;
pub mod letters;
mod rules;
mod run;
mod world;

pub use executor::{Driver, Executor, Id, Work};
pub use rules::{Mistake, Protocol};
pub use run::{Place, Run, Status};
pub use world::{Action, Budget, Signal, World};
