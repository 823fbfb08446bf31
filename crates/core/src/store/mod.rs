//! The contract of a store, and what is built from it.
