//! For tests: a store that fails on purpose, a manual clock, reproducible ids, expected logs, a store with transactions, and varied headers.

mod clock;
mod fault;
mod headers;
mod ids;
mod ledger;
mod log;
mod variety;

pub use clock::ManualClock;
pub use fault::{Fault, FaultOdds, FaultPlan, FaultStore};
pub use headers::every_header;
pub use ids::SeqIds;
pub use ledger::{Ledger, LedgerRows, LedgerStore, LedgerTransaction};
pub use log::{Log, facts};
pub use variety::{any_headers, headers_by_field};
