//! Random edits of a function between a crash and its replay.
