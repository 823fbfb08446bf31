//! Flows in a test world: their operations, replays, changes of their code, and compensations.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod cancels;
mod changes;
mod child_order;
mod effects;
mod failures;
mod field_order;
mod field_passes;
mod long;
mod operations;
mod passes;
mod replays;
mod sagas;
mod watches;
