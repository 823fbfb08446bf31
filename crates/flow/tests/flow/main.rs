//! Flows in a test world: their operations, replays, changes of their code, and compensations.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod changes;
mod effects;
mod long;
mod operations;
mod passes;
mod replays;
mod sagas;
