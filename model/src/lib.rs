//! A model of the rules by which two processes, any number of signallers and a purger share one run. The model is explored exhaustively.
//!
//! The page `docs/reference/protocol-model.md` lists the properties that the tests check. The model contains no code of the library. The model states
//! the rules for heads, claims, generations, signals, heartbeats, purges and restarts. Mistakes that once existed in the library can be
//! [planted](Mistake) in the rules, and the model finds each of them.
//!
//! # Covered
//!
//! One run has an `External` node, a node that waits for an answer, and a deadline. Its id is started twice. An append is one atomic step.
//!
//! - Two processes start, claim, drive, append, become idle, release, meet conflicts, miss heartbeats, recover, crash and are replaced.
//! - Callers cancel, pause, unpause, answer, answer an unknown outcome with `Retry`, and retry.
//! - Retention purges an ended run unless it has a record that the sweep did not read. An operator purges the run in any state.
//!
//! The default explorations combine two signals of callers with one mishap (a crash, a missed heartbeat, a release and a failing node, a purge), and one
//! signal with several mishaps. `cargo xtask prove` combines two signals with several mishaps.
//!
//! The delivery of outbox messages has a separate [model](letters): two processes, which may die, deliver two or three messages of one run to one topic.
//! The sink may accept, accept and fail, fail, or reject for good. An operator may retry rejected messages.
//!
//! # Not covered
//!
//! - Lost replies, late appends, stores that lose acknowledged records, shards, and checkpoint frequencies other than `EveryNode`.
//! - `.take_over()`, edits, forks, messages, timers and retry policies of nodes, several activations at once.
//! - Durations: the model may delay a step forever.
//! - Several topics of an outbox.
//! - The moment between the check of the owner and the node's own request, which no library can remove.

mod executor;
pub mod letters;
mod rules;
mod run;
mod world;

pub use executor::{Driver, Executor, Id, Work};
pub use rules::{Mistake, Protocol};
pub use run::{Place, Run, Status};
pub use world::{Action, Budget, Signal, World};
