//! Flows in a test world: their operations, replays, changes of their code, and compensations.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod changes;
mod effects;
mod operations;
mod replays;
mod sagas;
