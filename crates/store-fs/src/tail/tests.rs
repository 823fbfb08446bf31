//! Tests of reading the end of a log.
