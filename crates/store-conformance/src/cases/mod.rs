//! The properties: one function for each sentence of the contract. `registry.rs` lists them. The compiler reports a property that is not listed as
//! unused code.

pub(crate) mod append;
pub(crate) mod checks;
pub(crate) mod concurrency;
pub(crate) mod conflict;
pub(crate) mod content;
pub(crate) mod damage;
pub(crate) mod dropped;
pub(crate) mod due;
pub(crate) mod durability;
pub(crate) mod filters;
pub(crate) mod first_setup;
pub(crate) mod headers;
pub(crate) mod heartbeat;
pub(crate) mod load;
pub(crate) mod misplaced;
pub(crate) mod model;
pub(crate) mod names;
pub(crate) mod next_generation;
pub(crate) mod prune;
pub(crate) mod purge;
pub(crate) mod readers;
pub(crate) mod reseal;
pub(crate) mod retry;
pub(crate) mod runs;
pub(crate) mod setup;
pub(crate) mod transactions;

/// Valid texts for labels that have a meaning in a query language, a pattern, a path or an encoding.
const HOSTILE_TEXTS: [&str; 24] = [
    "'",
    "\"",
    "''",
    "\\",
    "\\'",
    "`",
    "$.",
    "$.*",
    "|",
    "{}",
    "|{}",
    "%",
    "_",
    "*",
    "?",
    "[a-z]",
    "k=v",
    ",",
    "/../",
    "'; drop table runs; --",
    "null",
    "é",
    "e\u{301}",
    "\u{1F980}\u{200D}\u{FFFD}",
];
