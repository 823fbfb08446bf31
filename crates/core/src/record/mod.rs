//! The entries of a run's log and their encoding.
