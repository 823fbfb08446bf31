//! The memory store keeps the contract.

use ferrata_store_conformance::{MemoryFactory, suite};

suite!(MemoryFactory::default(), without: [
    durable = "the memory store keeps nothing beyond the process",
    torn = "a record is never half in memory",
]);
